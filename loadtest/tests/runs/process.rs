//! CPU time and memory of a target on this machine, second by second, and the clock of another one.

use std::process::Command;

use crate::support::scripted::{INFO, first_of_tick, sound_target, target};
use crate::support::{CLOSED, Ran, has_daemon, loadtest, start_by, until};
use serde_json::Value;

fn load(address: &str, more: &[&str]) -> Ran {
    let options = ["--rate", "500", "--for", "3s", "--warm-up", "200ms", "--p99.9", "5s"];
    loadtest(&[&options[..], &["--address", address], more].concat())
}

/// Returns the figure of each whole second.
fn of_seconds<'a>(run: &'a Value, name: &str) -> Vec<&'a Value> {
    run["seconds"].as_array().into_iter().flatten().take(3).map(|second| &second[name]).collect()
}

#[test]
fn each_second_has_cpu_time_and_memory_of_the_target() {
    let directory = tempfile::tempdir().expect("a directory");
    let csv = directory.path().join("seconds.csv");
    let file = csv.to_str().expect("UTF-8");
    let is_seen = |ran: &Ran| {
        let run = ran.json();
        let shares = of_seconds(&run, "target_cpu_share");
        let memory = of_seconds(&run, "target_memory_bytes");
        ran.figure("CPU, memory", "target's CPU").as_f64() > Some(0.0)
            && shares.len() == 3
            && shares[1].as_f64() > Some(0.0)
            && memory.iter().all(|bytes| bytes.as_u64() > Some(0))
    };
    let ran = until(|| load(&sound_target().name(), &["--csv", file]), |ran| ran.code == 0 && is_seen(ran));
    assert!(ran.code == 0 && is_seen(&ran), "{ran:?}: {}", ran.json()["seconds"]);
    assert!(ran.words().contains(" MiB, generator"), "{ran:?}");
    let text = std::fs::read_to_string(&csv).expect("a file");
    let columns: Vec<&str> = text.lines().nth(2).expect("a second").split(',').collect();
    assert_eq!(columns[10], of_seconds(&ran.json(), "target_memory_bytes")[1].to_string(), "{text}");
}

#[test]
fn the_difference_of_the_clocks_is_measured() {
    // IDs dated 40 ms ahead, as from a machine whose clock is ahead.
    let ahead = target(INFO, |_, ids, peer, next, tag| {
        let mut next_id = ids.0.lock().expect("no panic");
        let first = (*next_id).max(first_of_tick(40));
        *next_id = first + u64::from(next.count);
        peer.send_run(tag, first, next.count)
    });
    let is_seen = |ran: &Ran| {
        let apart = ran.figure("clocks", "furthest apart").as_f64();
        ran.code == 0 && apart.is_some_and(|us| (30_000.0..60_000.0).contains(&us))
    };
    let ran = until(|| load(&ahead.name(), &[]), is_seen);
    assert!(is_seen(&ran), "{ran:?}");
}

/// Starts a daemon of the run's own whose process has another name, as if /proc did not tell who it
/// is.
const OTHER_NAME: &str = r#"d="$1"; shift; ln "$0" "$d/loadtest" && ln -s "${0%/*}/snowbank" "$d/other" &&
    printf '#!/bin/sh\nexec "${0%%/*}/other" "$@"\n' > "$d/snowbank" && chmod +x "$d/snowbank" &&
    exec "$d/loadtest" "$@""#;

#[test]
fn the_runs_own_daemon_has_this_machines_clock() {
    if !has_daemon() {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut renamed = Command::new("sh");
    renamed.args(["-c", OTHER_NAME, env!("CARGO_BIN_EXE_snowbank-loadtest")]).arg(directory.path());
    let ran = start_by(renamed, &CLOSED).wait();
    assert_eq!((ran.code, ran.figure("target", "started for this run")), (0, "yes".into()), "{ran:?}");
    assert_eq!(ran.figure("clocks", "furthest apart"), Value::Null, "it is not measured: {ran:?}");
}
