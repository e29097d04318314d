//! Kills, pauses and restarts two real daemons while the client's test draws IDs.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use snowbank_testkit::Port;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, stdin};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::{Outcome, report};

/// The number of daemons. Their worker IDs are 1 and 2.
const DAEMONS: usize = 2;

/// The longest time that a daemon may take to listen, or to end.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The pause between two checks whether a daemon has started or ended.
const POLL: Duration = Duration::from_millis(10);

/// The longest time that the client's test may take to close standard input after `calm`.
const CALM_LIMIT: Duration = Duration::from_secs(60);

/// The time between two faults, in milliseconds.
const PAUSES_MS: std::ops::Range<u64> = 200..700;

/// The time for which a fault keeps a daemon down or paused, in milliseconds.
const OUTAGES_MS: std::ops::Range<u64> = 50..1_500;

struct Daemon {
    program: PathBuf,
    config: PathBuf,
    port: Port,
    child: Child,
}

impl Daemon {
    async fn start(program: &Path, directory: &Path, worker_id: usize) -> Outcome<Self> {
        let port = Port::take();
        let address = port.address();
        let config = directory.join(format!("daemon-{worker_id}.toml"));
        let [state, locks] = ["state", "locks"].map(|name| directory.join(format!("{name}-{worker_id}")));
        let text = format!(
            "listen = [\"{address}\"]\nstate_dir = {state:?}\nlock_dir = {locks:?}\nworker_ids = \"{worker_id}\"\n"
        );
        std::fs::write(&config, text)?;
        let child = spawn(program, &config)?;
        let mut daemon = Self { program: program.to_owned(), config, port, child };
        daemon.wait_until_it_listens().await?;
        Ok(daemon)
    }

    async fn wait_until_it_listens(&mut self) -> Outcome {
        let address = self.port.address();
        let listens = async {
            while TcpStream::connect(address).await.is_err() {
                if let Some(status) = self.child.try_wait()? {
                    return Err(format!("the daemon on {address} ended with {status}").into());
                }
                sleep(POLL).await;
            }
            Ok(())
        };
        let listens = timeout(START_LIMIT, listens).await;
        listens.map_err(|_| format!("no daemon listens on {address} after {START_LIMIT:?}"))?
    }

    fn signal(&self, signal: Signal) {
        // No other process gets the child's process ID before `try_wait` has reported its end.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits until the process has ended, sleeps for the outage, and starts the daemon again.
    async fn restart(&mut self, outage: Duration) -> Outcome {
        let address = self.port.address();
        let ends = async {
            while self.child.try_wait()?.is_none() {
                sleep(POLL).await;
            }
            std::io::Result::Ok(())
        };
        let ended = timeout(START_LIMIT, ends).await;
        ended.map_err(|_| format!("the daemon on {address} did not end within {START_LIMIT:?}"))??;
        sleep(outage).await;
        self.child = spawn(&self.program, &self.config)?;
        self.wait_until_it_listens().await
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn spawn(program: &Path, config: &Path) -> Outcome<Child> {
    let mut command = snowbank_testkit::program::command(program);
    command.arg("serve").arg("--config").arg(config).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.spawn().map_err(|error| format!("{}: {error}", program.display()))?)
}

/// Starts the daemons and prints their endpoints. Makes faults for `seconds`, and then prints the
/// event `calm`. Returns once standard input is closed.
pub(crate) async fn run(program: &str, seconds: &str) -> Outcome {
    let seconds = seconds.parse()?;
    let directory = TempDir::new()?;
    let mut daemons = Vec::new();
    for worker_id in 1..=DAEMONS {
        daemons.push(Daemon::start(Path::new(program), directory.path(), worker_id).await?);
    }
    let endpoints: Vec<String> = daemons.iter().map(|daemon| daemon.port.address().to_string()).collect();
    report::print(&json!({ "endpoints": endpoints, "seconds": seconds }));
    let mut input = Vec::new();
    let mut stdin = stdin();
    let mut ended = std::pin::pin!(stdin.read_to_end(&mut input));
    tokio::select! {
        _ = &mut ended => return Ok(()),
        made = make_faults(&mut daemons, Duration::from_secs(seconds)) => made?,
    }
    report::print(&json!({ "event": "calm" }));
    let closed = timeout(CALM_LIMIT, ended).await;
    closed.map_err(|_| format!("standard input was not closed within {CALM_LIMIT:?} after `calm`"))??;
    Ok(())
}

/// Kills, pauses or stops one random daemon at a time, and brings it back. The other daemon serves
/// meanwhile.
async fn make_faults(daemons: &mut [Daemon], lasts: Duration) -> Outcome {
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        sleep(Duration::from_millis(fastrand::u64(PAUSES_MS))).await;
        let index = fastrand::usize(..daemons.len());
        let daemon = &mut daemons[index];
        let outage = Duration::from_millis(fastrand::u64(OUTAGES_MS));
        let faults = [("SIGKILL", Signal::KILL), ("SIGSTOP", Signal::STOP), ("SIGTERM", Signal::TERM)];
        let (name, signal) = faults[fastrand::usize(..faults.len())];
        report::print(&json!({ "event": name, "daemon": index, "for_ms": outage.as_millis() as u64 }));
        daemon.signal(signal);
        if signal == Signal::STOP {
            sleep(outage).await;
            daemon.signal(Signal::CONT);
        } else {
            daemon.restart(outage).await?;
        }
    }
    Ok(())
}
