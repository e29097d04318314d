//! The time from before the fork to the first ID over TCP.

use std::io;
use std::path::Path;
use std::time::Instant;

use snowbank_testkit::{Ask, Setup};

use crate::server::{self, Server};
use crate::{Effort, median};

pub(crate) fn run(effort: &Effort) -> io::Result<()> {
    println!("\n## Start\n");
    println!(
        "Time from before the fork to the first ID over TCP. Targets: 5 ms after a clean stop, 6 ms after \
         kill -9. For Redis, if it is installed, to the first reply to INCR, without persistence.\n"
    );
    print_header();
    let directory = tempfile::tempdir()?;
    let state = directory.path().join("state");
    print_times("without state", first_ids(effort, true, || server::daemon(Path::new("none"))));
    for (end, is_clean) in [("after a clean stop", true), ("after kill -9", false)] {
        print_times(end, first_ids(effort, is_clean, || server::daemon(&state)));
    }
    let mut times = Vec::new();
    for _ in 0..effort.rounds(20, 5) {
        let begin = Instant::now();
        let Some(redis) = Server::redis()? else { return Ok(()) };
        redis.command("INCR n", ":1\r\n")?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    print_times("Redis", times);
    Ok(())
}

/// Starts the daemon once per round. Returns the time from each start to the first ID, in
/// milliseconds.
pub(crate) fn first_ids(effort: &Effort, is_clean: bool, daemon: impl Fn() -> Setup) -> Vec<f64> {
    let mut times = Vec::new();
    // The first start is not counted: it may find no state, or the state after another kind of
    // stop.
    for round in 0..=effort.rounds(20, 5) {
        let setup = daemon();
        let begin = Instant::now();
        let daemon = setup.start();
        daemon.connect().next(Ask::of(1)).runs();
        if round > 0 {
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        // Without this stop, dropping `daemon` kills the process with SIGKILL.
        if is_clean {
            daemon.stop();
        }
    }
    times
}

pub(crate) fn print_header() {
    println!("| state | median ms | longest ms | times |");
    println!("|---|---:|---:|---:|");
}

pub(crate) fn print_times(state: &str, times: Vec<f64>) {
    let longest = times.iter().copied().fold(0.0, f64::max);
    let count = times.len();
    println!("| {state} | {:.3} | {longest:.3} | {count} |", median(times));
}
