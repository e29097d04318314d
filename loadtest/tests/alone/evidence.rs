//! The evidence for docs/capacity.md: whole runs, which together take half an hour on an idle
//! machine. Each test prints its figures, and fails if they contradict the page. The page also has
//! the command for these tests.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::alone;
use crate::machine::{Neighbours, Noise};
use crate::support::scripted::fake_daemon::FakeDaemon;
use crate::support::scripted::{INFO, target, with_capacity};
use crate::support::{Ran, compare, has_daemon, loadtest};

#[test]
#[ignore = "for a quiet machine: two minutes"]
fn a_sound_daemon_passes_each_time() {
    let _alone = alone();
    assert!(has_daemon(), "cargo build --release --workspace makes the daemon");
    for _ in 0..10 {
        let ran = loadtest("");
        eprintln!("{}", ran.result());
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

#[test]
#[ignore = "takes the cores from everything else for ten minutes"]
fn thirty_sound_runs_beside_noises_never_fail() {
    let _alone = alone();
    assert!(has_daemon(), "cargo build --release --workspace makes the daemon");
    let mut codes = [0; 3];
    for noise in [Noise::AsIs, Noise::BusyLoops, Noise::RealTimeBursts] {
        let _neighbours = Neighbours::begin(noise);
        for _ in 0..10 {
            let ran = loadtest("--for 5s");
            eprintln!("{noise:?}: {}", ran.result());
            codes[usize::try_from(ran.code).expect("an exit code")] += 1;
        }
    }
    eprintln!("pass {}, fail {}, no verdict {}", codes[0], codes[1], codes[2]);
    assert_eq!(codes[1], 0);
}

/// The capacity of the fake daemon in requests per second.
const CAPACITY: f64 = 5_000.0;

#[test]
#[ignore = "for a quiet machine: five minutes"]
fn a_sweep_finds_the_known_capacity_and_never_more() {
    let _alone = alone();
    for _ in 0..5 {
        let fake = with_capacity(CAPACITY, Arc::default());
        let ran = loadtest(&format!("sweep --address {} --start 1000 --p99.9 20ms --for 3s", fake.name()));
        eprintln!("{}", ran.result());
        let saturation = ran.json()["saturation"].as_f64().expect("a saturation point");
        assert!((CAPACITY * 0.9..=CAPACITY).contains(&saturation), "{saturation}: {ran:?}");
    }
}

/// Returns a target that uses the processor for the time `each` before each answer.
fn costing(each: Duration) -> FakeDaemon {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a time");
    target(INFO, move |_, ids, peer, next, tag| {
        let begun = used();
        while used() - begun < each {}
        peer.send_run(tag, ids.take(next.count), next.count)
    })
}

/// Loads the two targets in turn, five times each, and compares the runs.
fn compared(a: &FakeDaemon, b: &FakeDaemon) -> Ran {
    let directory = tempfile::tempdir().expect("a directory");
    let mut files: [Vec<String>; 2] = Default::default();
    for number in 0..5 {
        for (side, fake) in [a, b].into_iter().enumerate() {
            let load = "--rate 1000 --for 1s --warm-up 200ms --runs 1 --p99.9 5s";
            let ran = loadtest(&format!("--address {} {load}", fake.name()));
            let path = directory.path().join(format!("{side}-{number}.json"));
            std::fs::write(&path, ran.json_text()).expect("a file");
            files[side].push(path.display().to_string());
        }
    }
    let ran = compare(&files[0], &files[1], "--fail-if-worse");
    eprintln!("{}", ran.stdout.lines().next().unwrap_or_default());
    ran
}

const COST: Duration = Duration::from_micros(200);

#[test]
#[ignore = "for a quiet machine: six minutes"]
fn equal_targets_are_never_called_different() {
    let _alone = alone();
    for _ in 0..20 {
        let ran = compared(&costing(COST), &costing(COST));
        assert!(["equal: ", "cannot tell: "].iter().any(|word| ran.stdout.starts_with(word)), "{ran:?}");
    }
}

#[test]
#[ignore = "for a quiet machine: two minutes"]
fn fifteen_per_cent_more_processor_time_is_found() {
    let _alone = alone();
    for _ in 0..5 {
        // System calls add a tenth of `COST`, so 17 % of `COST` is about 15 % of the whole cost.
        let ran = compared(&costing(COST), &costing(COST.mul_f64(1.17)));
        assert!(
            ran.code == 1 && ran.stdout.lines().next().is_some_and(|summary| summary.contains("more CPU")),
            "{ran:?}"
        );
    }
}
