//! CPU, wake-ups and memory of a daemon without requests.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use snowbank_testkit::{Ask, Daemon};

use crate::{Effort, server};

/// The pause before each row is measured. After this pause, an idle daemon runs only its timers.
const SETTLE: Duration = Duration::from_secs(2);
/// The daemon's own limit of connections.
const CONNECTIONS: u64 = 10_000;
/// The number of file descriptors for everything that is not a connection.
const OTHER_FILES: u64 = 64;

pub(crate) fn run(effort: &Effort) -> io::Result<()> {
    let stretch = effort.stretch(Duration::from_secs(10), Duration::from_secs(3));
    println!("\n## Idle\n");
    println!(
        "Measured over {} s. The daemon has just started or been used, so its ceiling still rises once a second. \
         Targets: 10 wake-ups a second, 2 MiB of anonymous memory, 1 KiB for each connection.",
        stretch.as_secs_f64()
    );
    println!(
        "Each connection has drawn one ID. Anonymous memory, which no file backs, is the heap and the stacks.\n"
    );
    println!("| connections | wake-ups/s | CPU µs/s | resident KiB | anonymous KiB | bytes/connection |");
    println!("|---:|---:|---:|---:|---:|---:|");

    let state = tempfile::tempdir()?;
    let daemon = server::daemon(state.path()).option("--worker-id", "0").start();
    thread::sleep(SETTLE);
    let before_kib = row(&daemon, stretch, 0, None)?;

    let files = getrlimit(Resource::Nofile);
    // If this fails, the limit stays low, and the benchmark opens fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum });
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(OTHER_FILES);
    let connections = CONNECTIONS.min(allowed);
    let mut clients = Vec::new();
    for _ in 0..connections {
        let mut client = daemon.connect();
        client.next(Ask::of(1)).runs();
        clients.push(client);
    }
    thread::sleep(SETTLE);
    row(&daemon, stretch, connections, Some(before_kib))?;
    drop(clients);
    thread::sleep(SETTLE);
    row(&daemon, stretch, 0, None)?;
    Ok(())
}

/// Measures and prints one row of the table. Returns the anonymous memory.
fn row(daemon: &Daemon, stretch: Duration, connections: u64, before_kib: Option<u64>) -> io::Result<u64> {
    let begin = Instant::now();
    let wake_ups = daemon.voluntary_switches();
    let cpu = server::cpu_of(daemon.id())?;
    thread::sleep(stretch);
    let seconds = begin.elapsed().as_secs_f64();
    let wake_ups = (daemon.voluntary_switches() - wake_ups) as f64 / seconds;
    let cpu_us = crate::micros(server::cpu_of(daemon.id())?.saturating_sub(cpu)) / seconds;
    let resident_kib = daemon.resident_kib();
    let anonymous_kib = daemon.anonymous_kib();
    let each =
        before_kib.map(|before| anonymous_kib.saturating_sub(before) as f64 * 1024.0 / connections as f64);
    let each = each.map_or_else(|| String::from("–"), |bytes| format!("{bytes:.0}"));
    println!("| {connections} | {wake_ups:.2} | {cpu_us:.0} | {resident_kib} | {anonymous_kib} | {each} |");
    Ok(anonymous_kib)
}
