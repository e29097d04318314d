//! The Rust client draws IDs from two real daemons that are killed, paused and restarted.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::program::{self, Program};
use super::steps::texts;
use crate::{Client, ClientOptions, Error};

/// The deadline of a call. It is much longer than the outage of a daemon.
const DEADLINE: Duration = Duration::from_secs(10);

/// The longest delay with which a busy machine wakes a task.
const LATE: Duration = Duration::from_secs(5);

const TASKS: usize = 8;

/// Returns the path of the daemon's program: SNOWBANK_DAEMON, or `snowbank` beside the conformance
/// program. Returns `None` if the file does not exist.
fn daemon() -> Option<PathBuf> {
    let path = std::env::var_os("SNOWBANK_DAEMON")
        .map_or_else(|| program::path().with_file_name("snowbank"), PathBuf::from);
    path.exists().then_some(path)
}

#[test]
fn no_id_comes_twice_while_daemons_die() {
    let Some(daemon) = daemon() else {
        println!("skipped: there is no daemon; run cargo build --bin snowbank, or set SNOWBANK_DAEMON");
        return;
    };
    let daemon = daemon.to_str().expect("UTF-8");
    let mut program = Program::start(&["against_daemons", "--daemon", daemon, "--seconds", "20"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let seen = runtime.expect("a runtime").block_on(async {
        let endpoints = texts(&program.line().await["endpoints"]);
        let calm = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for _ in 0..TASKS {
            tasks.push(tokio::spawn(draw(endpoints.clone(), Arc::clone(&calm))));
        }
        loop {
            let line = program.line().await;
            if line["event"] == "calm" {
                break;
            }
            assert!(!line.is_null(), "the program ended early: {:?}", program.end());
        }
        calm.store(true, Ordering::Relaxed);
        let mut seen = Vec::new();
        for task in tasks {
            seen.extend(task.await.expect("no panic"));
        }
        program.end().expect("the program starts each daemon again");
        seen
    });
    let distinct: HashSet<u64> = seen.iter().copied().collect();
    assert_eq!(distinct.len(), seen.len(), "at least one ID came twice");
    println!("{} IDs", seen.len());
}

/// Checks that a call has ended in time, and returns its answer.
fn in_time<T>(began: Instant, answer: Result<T, Error>) -> T {
    assert!(began.elapsed() < DEADLINE + LATE, "a call took {:?}", began.elapsed());
    answer.expect("one of the daemons always serves")
}

/// Draws batches and single IDs in rounds. The last two rounds begin after the event `calm`.
async fn draw(endpoints: Vec<String>, calm: Arc<AtomicBool>) -> Vec<u64> {
    let options = ClientOptions::new(endpoints).expect("sound addresses").timeout(DEADLINE);
    let client = Client::new(options).expect("a client");
    let mut ids = client.ids();
    let mut drawn = Vec::new();
    let mut rounds_left = 2;
    while rounds_left > 0 {
        if calm.load(Ordering::Relaxed) {
            rounds_left -= 1;
        }
        let began = Instant::now();
        let batch = in_time(began, client.batch(100).await);
        assert!(batch.is_sorted_by(|one, next| one < next));
        drawn.extend(batch);
        for _ in 0..50 {
            let began = Instant::now();
            drawn.push(in_time(began, ids.next().await));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drawn
}
