//! A sweep finds the rate that its target can hold, names the limit, and never accepts wrong IDs.
//! The scripted targets have limits that do not depend on the machine. A pause of the machine can
//! only lower the result. So no sweep may find much more than the target's capacity, and a sweep
//! that a pause ended is run again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::scripted::fake_daemon::{Asked, FakeDaemon, INFO, Peer};
use crate::support::scripted::with_capacity;
use crate::support::{Ran, figure, loadtest, poll, scripted, start, until};
use rustix::process::Signal;
use snowbank_wire::{ErrorCode, Next};

/// Short steps on one connection. The p99.9 of so few requests is their maximum.
const QUICK: &str =
    "sweep --for 500ms --warm-up 200ms --connections 1 --start 100 --p99.9 100ms --resolution 10%";

fn offered(step: &serde_json::Value) -> Option<f64> {
    figure(&step["run"], "load", "offered").as_f64()
}

fn options(target: &FakeDaemon, more: &str) -> String {
    format!("{QUICK} --address {} {more}", target.name())
}

/// Sweeps a target, up to ten times, until the exit code is `code` and the result begins with
/// `begin`. Fails if no sweep ends so: a pause of the machine may spoil one, but hardly all.
fn assert_ends(new: impl Fn() -> FakeDaemon, more: &str, code: i32, begin: &str) -> Ran {
    let ends = |ran: &Ran| ran.code == code && ran.result().starts_with(begin);
    let ran = until(|| loadtest(&options(&new(), more)), ends);
    assert!(ends(&ran), "{begin}: {ran:?}");
    ran
}

/// Runs a target that calls `script` to answer a request, with the number of earlier requests.
fn target(script: impl Fn(u64, &mut Peer, Next, u16) -> bool + Send + Sync + 'static) -> FakeDaemon {
    scripted::target(INFO, move |number, _, peer, next, tag| script(number, peer, next, tag))
}

/// Sweeps targets that answer a thousand requests/s, until a sweep names `limit` as its limit.
fn swept_below_capacity(new: impl Fn() -> FakeDaemon, more: &str, limit: &str) -> Ran {
    let swept = || {
        let ran = loadtest(&options(&new(), more));
        // A confirmation lasts 1.2 s. At more than 1,150 requests/s, the target would answer the
        // last request of a confirmation too late.
        assert!(ran.json()["saturation"].as_f64() <= Some(1_150.0), "{ran:?}");
        ran
    };
    let is_met = |ran: &Ran| ran.code == 0 && ran.json()["limit"] == limit;
    let ran = until(swept, is_met);
    assert!(is_met(&ran), "{ran:?}");
    ran
}

#[test]
fn the_saturation_point_of_a_slow_target_is_confirmed() {
    let ran = swept_below_capacity(|| with_capacity(1_000.0, Arc::default()), "", "latency");
    let file = ran.json();
    let saturation = file["saturation"].as_f64().expect("a saturation point");
    assert!(file["missed"].as_f64() > Some(saturation) && file["confirmed"] == true, "{ran:?}");
    let steps = file["steps"].as_array().expect("steps");
    let held = steps.iter().filter(|step| offered(step) == Some(saturation) && step["holds"] == true);
    assert!(held.count() >= 2, "{ran:?}");
    let last = steps.last().expect("a step");
    assert_eq!((&last["phase"], &last["holds"]), (&"confirm".into(), &true.into()), "{ran:?}");
    assert!(figure(&last["run"], "response time", "p99.9").as_f64() > Some(0.0), "{ran:?}");
    let result = ran.result().replace(',', "");
    let expected = format!("saturation point: {saturation:.0} IDs/s with p99.9 within 100 ms confirmed");
    assert!(result.starts_with(&expected), "{ran:?}");
    assert!(ran.stdout.lines().count() > steps.len(), "{ran:?}");
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 110), "{ran:?}");
}

#[test]
fn an_objective_missed_at_the_first_step_is_a_failure() {
    let late = || {
        target(|number, peer, next, tag| {
            std::thread::sleep(Duration::from_millis(20));
            peer.send_run(tag, number + 1, next.count)
        })
    };
    let begin =
        "no saturation point: p99.9 within 10 ms does not hold at the first step, 20 IDs/s: p99.9 was";
    let file = assert_ends(late, "--start 20 --p99.9 10ms --for 1s", 1, begin).json();
    assert!(file["saturation"].is_null() && file["confirmed"] == false, "{file}");
}

#[test]
fn refusals_for_lack_of_ids_are_the_layouts_limit() {
    let scarce = || {
        let window = Mutex::new((Instant::now(), 0));
        target(move |number, peer, next, tag| {
            let mut window = window.lock().expect("no panic");
            if window.0.elapsed() > Duration::from_millis(100) {
                *window = (Instant::now(), 0);
            }
            window.1 += 1;
            if window.1 > 100 {
                return peer.refuse(tag, ErrorCode::Exhausted, None, "none left");
            }
            peer.send_run(tag, number + 1, next.count)
        })
    };
    let ran = swept_below_capacity(scarce, "--p99.9 5s", "layout");
    assert!(ran.json_text().contains("exhausted x "), "{ran:?}");
}

#[test]
fn an_id_repeated_in_another_step_is_a_failure() {
    // Each run begins with INFO, and the target then starts its IDs again from 1. Within a run, IDs
    // are distinct.
    let repeats = || {
        let next_id = Mutex::new(1);
        FakeDaemon::start(move |_, peer| {
            while let Some((asked, tag)) = peer.read() {
                let mut next_id = next_id.lock().expect("no panic");
                if matches!(asked, Asked::Info) {
                    *next_id = 1;
                }
                peer.answer(&asked, tag, &mut next_id);
            }
        })
    };
    let ran = assert_ends(repeats, "--p99.9 5s", 1, "fail: duplicate: ");
    assert!(ran.result().contains("twice") && ran.json()["ended"]["broken"].is_string(), "{ran:?}");
}

#[test]
fn a_sweep_fails_if_its_target_serves_only_the_first_run() {
    // The sweep greets the target on one connection, and the first run uses two more. The target
    // closes all later connections.
    let leaves = || {
        FakeDaemon::start(move |connection, peer| {
            let mut next_id = 1_000_000 * connection as u64;
            while let Some((asked, tag)) = peer.read() {
                if connection >= 3 {
                    return;
                }
                peer.answer(&asked, tag, &mut next_id);
            }
        })
    };
    let begin = "fail: the target could not be loaded again: ";
    let ran = assert_ends(leaves, "--p99.9 5s --runs 1", 1, begin);
    assert!(ran.json()["ended"]["gone"].is_string(), "{ran:?}");
}

/// Interrupts a sweep in its second step, if the sweep gets that far. The first step has 220
/// requests.
fn interrupted() -> Ran {
    let asked = Arc::new(AtomicU64::new(0));
    let target = with_capacity(1_000.0, Arc::clone(&asked));
    let mut sweep = start(&options(&target, "--for 2s --p99.9 5s --runs 1"));
    poll("300 requests", || (asked.load(Ordering::SeqCst) >= 300 || sweep.has_ended()).then_some(()));
    if !sweep.has_ended() {
        sweep.signal(Signal::INT);
    }
    sweep.wait()
}

#[test]
fn an_interrupted_sweep_reports_what_was_measured() {
    let ran = until(interrupted, |ran| ran.json()["ended"] == "interrupted");
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.result().starts_with("no saturation point: interrupted; p99.9 within 5 s "), "{ran:?}");
    let file = ran.json();
    assert_eq!((&file["ended"], &file["confirmed"]), (&"interrupted".into(), &false.into()), "{ran:?}");
    assert!(file["steps"].as_array().is_some_and(|steps| !steps.is_empty()), "{ran:?}");
}
