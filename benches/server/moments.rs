//! Figures of single moments: a burst from rest, and the start.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use snowbank_testkit::program::snowbank;

use crate::client::Client;
use crate::process::Process;
use crate::{Effort, median};

/// Longer than the burst window, so that its reserve is full again.
const REST: Duration = Duration::from_millis(100);

/// 40,000 IDs in one request after a rest.
pub(crate) fn burst(effort: &Effort) -> io::Result<()> {
    println!("\n## A burst from rest\n");
    println!(
        "Layout `twitter`, worker ID 0, each request after {} ms of rest. Target: 2 ms.\n",
        REST.as_millis()
    );
    println!("| order | IDs | median ms | longest ms | times |");
    println!("|---|---:|---:|---:|---:|");
    for order in ["relaxed", "strict"] {
        let daemon = Process::daemon(&["--worker-id", "0", "--order", order])?;
        let mut client = Client::connect(daemon.address())?;
        for count in [1, 40_000] {
            let mut times = Vec::new();
            for _ in 0..effort.rounds(50, 10) {
                thread::sleep(REST);
                let begin = Instant::now();
                client.take(count)?;
                times.push(begin.elapsed().as_secs_f64() * 1e3);
            }
            print_times(&format!("| {order} | {count}"), times);
        }
    }
    Ok(())
}

const TICKETS: &str = "[[sources]]\nname = \"orders\"\nkind = \"ticket\"\n";

/// From before the fork to the first ID over TCP.
pub(crate) fn start(effort: &Effort) -> io::Result<()> {
    println!("\n## Start\n");
    println!(
        "From before the fork to the first ID over TCP. Targets: 5 ms after a clean stop, 6 ms after kill -9. Redis, \
         where it is installed, keeps nothing and answers its first INCR.\n"
    );
    println!("| state | median ms | longest ms | times |");
    println!("|---|---:|---:|---:|");
    let directory = tempfile::tempdir()?;
    let state = directory.path().join("state");
    let config = directory.path().join("snowbank.toml");
    for source in ["", TICKETS] {
        std::fs::write(&config, source)?;
        let kind = if source.is_empty() { "" } else { "ticket source, " };
        if !source.is_empty() {
            let paths = [
                "--state-dir".as_ref(),
                state.as_os_str(),
                "--lock-dir".as_ref(),
                directory.path().as_os_str(),
            ];
            let set = snowbank(["ticket", "set", "orders", "0"].map(OsStr::new).into_iter().chain(paths));
            assert_eq!(set.code, Some(0), "{}", set.err);
        }
        for (kept, clean) in [("none kept", true), ("after a clean stop", true), ("after kill -9", false)] {
            let state = if kept == "none kept" { Path::new("none") } else { &state };
            // No ticket source starts without its counter.
            if source.is_empty() || kept != "none kept" {
                print_times(&format!("| {kind}{kept}"), first_ids(effort, &config, state, clean)?);
            }
        }
    }
    let mut times = Vec::new();
    for _ in 0..effort.rounds(20, 5) {
        let begin = Instant::now();
        let Some(redis) = Process::redis()? else { return Ok(()) };
        first_incr(redis.address())?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    print_times("| Redis", times);
    Ok(())
}

/// Starts the daemon again and again, with this configuration and state.
fn first_ids(effort: &Effort, config: &Path, state: &Path, clean: bool) -> io::Result<Vec<f64>> {
    let config = config.to_str().ok_or_else(|| io::Error::other("a path that is no text"))?;
    let mut times = Vec::new();
    // The first start may find no state yet, or the state after another kind of stop, and is not
    // counted.
    for round in 0..=effort.rounds(20, 5) {
        let begin = Instant::now();
        let daemon = Process::daemon_with_state(&["--config", config], state, &[])?;
        Client::connect(daemon.address())?.take(1)?;
        if round > 0 {
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        if clean {
            daemon.stop()?;
        }
    }
    Ok(times)
}

fn first_incr(redis: SocketAddr) -> io::Result<()> {
    let mut socket = TcpStream::connect(redis)?;
    socket.write_all(b"INCR n\r\n")?;
    let mut reply = [0; 4];
    socket.read_exact(&mut reply)?;
    match &reply {
        b":1\r\n" => Ok(()),
        _ => Err(io::Error::other(format!("Redis answered INCR with {reply:?}"))),
    }
}

pub(crate) fn print_times(row: &str, times: Vec<f64>) {
    let longest = times.iter().copied().fold(0.0, f64::max);
    let count = times.len();
    println!("{row} | {:.3} | {longest:.3} | {count} |", median(times));
}
