//! A daemon that the load test starts: the `snowbank` binary in the directory of the load test's
//! own binary.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use snowbank_wire::Address as Endpoint;
use tempfile::TempDir;

use crate::frontend::{self, Row};

/// The highest worker ID of Twitter's layout: people assign it last. This daemon need not lock its
/// worker ID against other daemons of the machine, because nobody keeps its IDs.
const WORKER_ID: u16 = 1_023;

/// The time limit for a daemon to listen.
const START_TIMEOUT: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };
/// The time limit for its first ID: on a busy disk, a sync takes seconds.
const FIRST_ID_TIMEOUT: &str = "20s";

/// A daemon that this process started. The daemon ends when this value is dropped. It also ends
/// when this process ends or is killed, because that closes the daemon's standard input.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    /// The address for Snowbank's own protocol. If the load uses another protocol, the address for
    /// that protocol follows.
    pub(crate) addresses: Vec<Endpoint>,
    protocol: &'static Row,
    binary: PathBuf,
    /// Has the daemon's state, its locks and its log; removed after the process has ended.
    directory: TempDir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// SIGTERM, which a service manager sends to stop a daemon.
    Stop,
    /// SIGKILL, like a crash.
    Kill,
}

impl Daemon {
    /// Starts a daemon that speaks Snowbank's own protocol and `protocol`, on free ports of the
    /// loopback address, with a temporary state directory.
    ///
    /// # Errors
    /// The system's error, or the last line of the daemon's standard error.
    pub(crate) fn start(protocol: &'static Row) -> io::Result<Self> {
        let binary = binary()?;
        let directory = tempfile::Builder::new().prefix("snowbank-loadtest-").tempdir()?;
        let any = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
        let listeners = if protocol.name == frontend::NATIVE.name { 1 } else { 2 };
        let (child, addresses) = spawn(&binary, directory.path(), protocol, &vec![any; listeners])?;
        let daemon = Self { child, addresses, protocol, binary, directory };
        daemon.wait_for_an_id()?;
        Ok(daemon)
    }

    /// Waits until the daemon hands out IDs: it listens before its disk has stored its first ceiling.
    fn wait_for_an_id(&self) -> io::Result<()> {
        let mut next = Command::new(&self.binary);
        next.env_clear().args(["next", "--timeout", FIRST_ID_TIMEOUT, "--address"]);
        let said = next.arg(self.addresses[0].to_string()).output()?;
        if said.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&said.stderr);
        Err(io::Error::other(format!("the daemon hands out nothing: {}", reason.trim_end())))
    }

    /// Ends the daemon, and starts it again with the same addresses and the same state directory.
    ///
    /// # Errors
    /// The system's error, or the last line of the daemon's standard error.
    pub(crate) fn restart(&mut self, ending: Ending) -> io::Result<()> {
        self.end(match ending {
            Ending::Stop => Signal::TERM,
            Ending::Kill => Signal::KILL,
        });
        (self.child, _) = spawn(&self.binary, self.directory.path(), self.protocol, &self.addresses)?;
        Ok(())
    }

    /// Ends the daemon by a signal. Kills the daemon if it has not ended after some seconds.
    fn end(&mut self, signal: Signal) {
        // This fails only if the daemon has already ended.
        let _ = kill_process(Pid::from_child(&self.child), signal);
        for _ in 0..5_000 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            // This sleep is part of the outage that a run reports, so it is short.
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end(Signal::TERM);
    }
}

/// Starts a daemon and waits until it listens on the addresses `listen`. Returns the process, and
/// the addresses with the ports that the system chose.
fn spawn(
    binary: &Path,
    directory: &Path,
    protocol: &'static Row,
    listen: &[Endpoint],
) -> io::Result<(Child, Vec<Endpoint>)> {
    // Standard error goes to a file, because a full pipe would block the daemon.
    let stderr = directory.join("stderr");
    let mut command = Command::new(binary);
    // The environment must not change the daemon's settings.
    command.env_clear();
    command.args(["serve", "--layout", "twitter", "--worker-id", &WORKER_ID.to_string()]);
    command.arg("--state-dir").arg(directory.join("state"));
    for (option, address) in ["listen", protocol.name].into_iter().zip(listen) {
        command.arg(format!("--{option}={address}"));
    }
    // Not every user may use the machine's lock directory.
    command.arg("--lock-dir").arg(directory.join("locks"));
    command.env("SNOWBANK_LOG_LEVEL", "error");
    // The daemon's standard input is a pipe to which nobody writes. The pipe closes when the load
    // test ends, and then the daemon ends, too.
    command.arg("--stop-at-stdin-eof").stdin(Stdio::piped());
    // Ctrl-C must not reach the daemon: the daemon has to answer until the run is over.
    command.process_group(0);
    command.stdout(Stdio::piped()).stderr(File::create(&stderr)?);
    let mut child = command.spawn()?;
    let lines = child.stdout.take().map(|stdout| first_lines(stdout, listen.len())).unwrap_or_default();
    let names = ["listening", protocol.name].into_iter();
    let addresses: Vec<Endpoint> = names.filter_map(|name| address_of(name, &lines)).collect();
    if addresses.len() == listen.len() {
        return Ok((child, addresses));
    }
    let _ = child.kill();
    child.wait()?;
    let stderr = fs::read_to_string(&stderr).unwrap_or_default();
    let reason = stderr.lines().last().unwrap_or("no reason given");
    Err(io::Error::other(format!("the daemon does not listen: {reason}")))
}

/// Returns the address in the daemon's line `NAME on ADDRESS`.
fn address_of(name: &str, lines: &[String]) -> Option<Endpoint> {
    let address = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(" on "))?;
    address.trim().parse().ok()
}

/// Returns the first lines of the daemon's output, one for each listener, or none if the daemon
/// prints nothing in time.
fn first_lines(stdout: ChildStdout, count: usize) -> Vec<String> {
    let ready = poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&START_TIMEOUT));
    if !ready.is_ok_and(|ready| ready > 0) {
        return Vec::new();
    }
    // The daemon prints all these lines at once, so the wait for the first of them suffices.
    BufReader::new(stdout).lines().map_while(Result::ok).take(count).collect()
}

fn binary() -> io::Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("snowbank");
    if beside.is_file() {
        return Ok(beside);
    }
    let path = beside.display();
    let advice = "build it (cargo build --release) or name a daemon with --address";
    Err(io::Error::other(format!("there is no {path}; {advice}")))
}
