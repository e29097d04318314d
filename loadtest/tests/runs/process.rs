//! CPU time and memory of a local target, second by second, and the distance to a target's clock.

use crate::support::scripted::{INFO, first_of_tick, sound_target, target};
use crate::support::{Ran, loadtest, until};
use serde_json::Value;

fn load(address: &str, more: &str) -> Ran {
    loadtest(&format!("--rate 500 --for 3s --warm-up 200ms --p99.9 5s --address {address} {more}"))
}

/// Returns the figure of each of the three whole seconds.
fn by_second<'a>(run: &'a Value, name: &str) -> Vec<&'a Value> {
    run["seconds"].as_array().into_iter().flatten().take(3).map(|second| &second[name]).collect()
}

#[test]
fn each_second_has_cpu_time_and_memory_of_the_target() {
    let directory = tempfile::tempdir().expect("a directory");
    let csv = directory.path().join("seconds.csv");
    let to_csv = format!("--csv {}", csv.display());
    let is_seen = |ran: &Ran| {
        let run = ran.json();
        let shares = by_second(&run, "target_cpu_share");
        let memory = by_second(&run, "target_memory_bytes");
        ran.figure("CPU, memory", "target's CPU").as_f64() > Some(0.0)
            && shares.len() == 3
            && shares[1].as_f64() > Some(0.0)
            && memory.iter().all(|bytes| bytes.as_u64() > Some(0))
    };
    let ran = until(|| load(&sound_target().name(), &to_csv), |ran| ran.code == 0 && is_seen(ran));
    assert!(ran.code == 0 && is_seen(&ran), "{ran:?}: {}", ran.json()["seconds"]);
    assert!(ran.words().contains(" MiB, generator"), "{ran:?}");
    let text = std::fs::read_to_string(&csv).expect("a file");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    for name in ["second", "p50_us", "target_memory_bytes"] {
        let column = lines[0].iter().position(|&column| column == name).expect("a column for the key");
        assert_eq!(lines[2][column], by_second(&ran.json(), name)[1].to_string(), "{text}");
    }
}

#[test]
fn the_distance_between_clocks_is_measured() {
    // The target dates its IDs 40 ms ahead, like a target on a machine whose clock is ahead.
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
    let ran = until(|| load(&ahead.name(), ""), is_seen);
    assert!(is_seen(&ran), "{ran:?}");
}
