//! Verdicts on a noisy machine: they tell the machine's stalls from the target's.

mod support;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use support::scripted::fake_daemon::FakeDaemon;
use support::scripted::{INFO, sound_target, target};
use support::{Ran, loadtest, until_quiet};

/// The response time that the standard objective allows.
const OBJECTIVE_MS: f64 = 2.0;

/// Runs one test at a time: each needs all cores.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn load(target: &FakeDaemon, more: &[&str]) -> Ran {
    let address = target.name();
    let options = [
        "--address",
        &address,
        "--rate",
        "2000/s",
        "--for",
        "3s",
        "--warm-up",
        "300ms",
        "--connections",
        "4",
    ];
    loadtest(&[&options[..], more].concat())
}

/// Processes that take a core for 1 to 20 ms at random times, with real-time priority if that is allowed.
struct Noise(Vec<Child>);

impl Noise {
    fn begin() -> Self {
        let script = "import random, time\nwhile True:\n end = time.monotonic() + random.uniform(0.001, 0.02)\n while time.monotonic() < end: pass\n time.sleep(random.uniform(0.001, 0.08))";
        let by = |words: &[&str]| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).args(["python3", "-c", script]);
            command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().ok()
        };
        let run = |_| by(&["chrt", "--fifo", "10"]).or_else(|| by(&["env"]));
        Self((0..2).filter_map(run).collect())
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Asserts the exit code of each run, and shows the output of those with another code.
fn assert_all(all: &[Ran], code: i32) {
    let others: Vec<&Ran> = all.iter().filter(|ran| ran.code != code).collect();
    let evidence = others.iter().map(|ran| ran.json()["machine"].to_string()).collect::<Vec<_>>();
    assert!(others.is_empty(), "{} of {}: {others:#?}\n{evidence:#?}", others.len(), all.len());
}

#[test]
fn a_sound_target_has_its_verdict_on_a_noisy_machine() {
    let _alone = alone();
    let _noise = (runs() > 0).then(Noise::begin);
    let all: Vec<Ran> = (0..runs()).map(|_| load(&sound_target(), &[])).collect();
    assert_all(&all, 0);
    for ran in all {
        let run = ran.json();
        let machine = &run["machine"];
        assert!(machine["stalls"].as_u64() > Some(0), "{ran:?}");
        // If all requests were in time, the verdict is a pass. Otherwise the bare echo shows that the machine
        // was late.
        assert!(machine["holds"].is_boolean(), "{ran:?}");
        let is_late = ran.is_late(OBJECTIVE_MS);
        assert_eq!(is_late, machine["echo_time"].is_object(), "{ran:?}");
        assert_eq!(is_late, ran.last_line().contains("this machine without a target "), "{ran:?}");
    }
}

/// A target that stalls for 5 ms once in a thousand requests.
fn stalling_target() -> FakeDaemon {
    let stall = Mutex::new(());
    target(INFO, move |number, ids, peer, next, tag| {
        let stalled = stall.lock().expect("no panic");
        if number % 1_000 == 999 {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(stalled);
        peer.send_run(tag, ids.take(next.count), next.count)
    })
}

/// Returns the number of runs of the noisy tests. They take the cores from everything else on the machine, so they
/// run only with `SNOWBANK_JUDGE_RUNS=10`. Otherwise the simulation of the judge covers them.
fn runs() -> usize {
    std::env::var("SNOWBANK_JUDGE_RUNS").map_or(0, |runs| runs.parse().expect("a number"))
}

#[test]
fn a_target_that_stalls_once_in_a_thousand_requests_fails() {
    let _alone = alone();
    if let Some(ran) = until_quiet(OBJECTIVE_MS, || load(&stalling_target(), &["--for", "8s"])) {
        assert_eq!(ran.code, 1, "{ran:?}");
    }
}

#[test]
fn a_target_that_stalls_fails_on_a_noisy_machine() {
    let _alone = alone();
    let _noise = (runs() > 0).then(Noise::begin);
    let all: Vec<Ran> = (0..runs()).map(|_| load(&stalling_target(), &[])).collect();
    assert_all(&all, 1);
}

#[test]
fn a_target_that_uses_up_the_cores_has_no_excuse() {
    let _alone = alone();
    let is_over = Arc::new(AtomicBool::new(false));
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let spin = |_| {
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || while !is_over.load(Ordering::Relaxed) {})
    };
    let spinning: Vec<_> = (0..cores * 16).map(spin).collect();
    let ran = until_quiet(OBJECTIVE_MS, || load(&sound_target(), &[]));
    is_over.store(true, Ordering::Relaxed);
    spinning.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    // A fair kernel may serve the requests in time between the other threads.
    if let Some(ran) = ran {
        assert_eq!(ran.code, i32::from(ran.is_late(OBJECTIVE_MS)), "{ran:?}");
    }
}
