//! A sweep finds the rate that its target can hold, names the limit, and never accepts wrong IDs. The scripted
//! targets have limits that do not depend on the machine, and a slow machine only lowers the result. So these tests
//! assert the highest possible saturation point and the kind of limit. If the machine starved the generator, the sweep reports
//! that and is run again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::scripted::fake_daemon::{Asked, FakeDaemon, INFO, Peer};
use crate::support::{Ran, figure, has_daemon, loadtest, start};
use rustix::process::Signal;
use snowbank_client::protocol::{ErrorCode, Next, reply};

/// Short steps on one connection. The p99.9 of so few requests is their maximum.
const QUICK: [&str; 15] = [
    "sweep",
    "--for",
    "500ms",
    "--warm-up",
    "200ms",
    "--connections",
    "1",
    "--start",
    "100",
    "--p99.9",
    "100ms",
    "--factor",
    "4",
    "--resolution",
    "10%",
];

fn offered(step: &serde_json::Value) -> Option<f64> {
    figure(&step["run"], "load", "offered").as_f64()
}

fn sweep(address: &str, more: &[&str]) -> Ran {
    loadtest(&[&QUICK[..], &["--address", address], more].concat())
}

/// Sweeps a new target each time until the generator was not the limit, at most ten times. The last sweep is judged
/// in any case.
fn until_the_target_limits(run: impl Fn() -> Ran) -> Ran {
    let by_generator = |ran: &Ran| ran.json()["limit"] == "machine";
    let mut ran = run();
    for _ in 0..9 {
        if !by_generator(&ran) {
            break;
        }
        ran = run();
    }
    ran
}

/// Answers each request by `script`, with the number of requests before it. INFO does not reset this number.
fn target(script: impl Fn(u64, &mut Peer, Next, u16) -> bool + Send + Sync + 'static) -> FakeDaemon {
    let requests = AtomicU64::new(0);
    FakeDaemon::start(move |_, peer| {
        while let Some((asked, tag)) = peer.read() {
            let goes_on = match asked {
                Asked::Next(next) => script(requests.fetch_add(1, Ordering::SeqCst), peer, next, tag),
                _ => peer.send(|out| reply::encode_info(out, tag, INFO.as_bytes())),
            };
            if !goes_on {
                return;
            }
        }
    })
}

/// Answers at most one request per ms, however long the others wait.
fn slow_target() -> FakeDaemon {
    counted_slow_target().0
}

/// The same, and the number of requests that have come.
fn counted_slow_target() -> (FakeDaemon, Arc<AtomicU64>) {
    let (free_at, asked) = (Mutex::new(Instant::now()), Arc::new(AtomicU64::new(0)));
    let asks = Arc::clone(&asked);
    let slow = target(move |number, peer, next, tag| {
        asks.store(number + 1, Ordering::SeqCst);
        let mut free_at = free_at.lock().expect("no panic");
        *free_at = (*free_at).max(Instant::now()) + Duration::from_millis(1);
        std::thread::sleep(free_at.saturating_duration_since(Instant::now()));
        peer.send_run(tag, number + 1, next.count)
    });
    (slow, asked)
}

/// Waits until so many requests have come.
fn await_requests(asked: &AtomicU64, count: u64) {
    let begun = Instant::now();
    while asked.load(Ordering::SeqCst) < count {
        assert!(begun.elapsed() < Duration::from_secs(60), "{count} requests do not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_saturation_point_of_a_slow_target_is_below_its_capacity() {
    let ran = until_the_target_limits(|| sweep(&slow_target().name(), &[]));
    assert_eq!(ran.code, 0, "{ran:?}");
    let file = ran.json();
    assert_eq!((&file["kind"], &file["limit"]), (&"sweep".into(), &"latency".into()), "{ran:?}");
    // At 1,150 requests/s the last request of a confirmation's 1.2 s is later than the objective.
    let saturation = file["saturation"].as_f64().expect("a saturation point");
    assert!((100.0..=1_150.0).contains(&saturation), "{ran:?}");
    assert!(file["missed"].as_f64() > Some(saturation) && file["confirmed"] == true, "{ran:?}");
    let steps = file["steps"].as_array().expect("steps");
    let held = steps.iter().filter(|step| offered(step) == Some(saturation) && step["holds"] == true);
    assert!(held.count() >= 2, "{ran:?}");
    let last = steps.last().expect("a step");
    assert_eq!((&last["phase"], &last["holds"]), (&"confirm".into(), &true.into()), "{ran:?}");
    assert!(figure(&last["run"], "response time", "p99.9").as_f64() > Some(0.0), "{ran:?}");
    assert!(
        ran.result()
            .starts_with(&format!("saturation point: {saturation} IDs/s with p99.9 within 100ms, confirmed"))
    );
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines.len() > steps.len(), "{ran:?}");
    for line in &lines {
        assert!(line.chars().count() <= 110, "{} columns: {line}", line.chars().count());
    }
}

#[test]
fn an_objective_that_does_not_hold_at_first_is_a_failure() {
    let late = || {
        target(|number, peer, next, tag| {
            std::thread::sleep(Duration::from_millis(20));
            peer.send_run(tag, number + 1, next.count)
        })
    };
    let options = ["--start", "20", "--p99.9", "10ms", "--for", "1s"];
    let ran = until_the_target_limits(|| sweep(&late().name(), &options));
    assert_eq!(ran.code, 1, "{ran:?}");
    let reason =
        "no saturation point: p99.9 within 10ms does not hold at the first step, 20 IDs/s: p99.9 was";
    assert!(ran.result().starts_with(reason), "{ran:?}");
    assert_eq!(
        (&ran.json()["saturation"], &ran.json()["confirmed"]),
        (&serde_json::Value::Null, &false.into())
    );
}

#[test]
fn refusals_for_lack_of_ids_are_reported_as_the_layouts_limit() {
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
    // With this bound, a pause of the machine does not make latency the limit.
    let ran = until_the_target_limits(|| sweep(&scarce().name(), &["--p99.9", "5s"]));
    assert_eq!((ran.code, &ran.json()["limit"]), (0, &"layout".into()), "{ran:?}");
    assert!(ran.json()["saturation"].as_f64() <= Some(1_150.0), "{ran:?}");
    let steps = ran.json()["steps"].to_string();
    assert!(steps.contains("exhausted x "), "{steps}");
}

#[test]
fn an_id_repeated_in_another_step_is_a_failure() {
    // Each run begins with INFO, and each hands out the same IDs. Within a run they are distinct.
    let next_id = AtomicU64::new(1);
    let repeats = FakeDaemon::start(move |_, peer| {
        while let Some((asked, tag)) = peer.read() {
            let goes_on = match asked {
                Asked::Next(next) => {
                    let first = next_id.fetch_add(next.count.into(), Ordering::SeqCst);
                    peer.send_run(tag, first, next.count)
                }
                _ => {
                    next_id.store(1, Ordering::SeqCst);
                    peer.send(|out| reply::encode_info(out, tag, INFO.as_bytes()))
                }
            };
            if !goes_on {
                return;
            }
        }
    });
    let ran = sweep(&repeats.name(), &["--p99.9", "5s"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().starts_with("fail: ") && ran.result().contains("twice"), "{ran:?}");
    assert!(ran.json()["ended"]["broken"].is_string(), "{ran:?}");
}

#[test]
fn a_target_that_goes_away_is_a_failure() {
    // The sweep greets on one connection, and each run has two.
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
    let ran = until_the_target_limits(|| sweep(&leaves().name(), &["--p99.9", "5s", "--runs", "1"]));
    assert!(ran.code == 1 && ran.json()["ended"]["gone"].is_string(), "{ran:?}");
    assert!(ran.result().starts_with("fail: the target took no further run: "), "{ran:?}");
}

#[test]
fn an_interrupted_sweep_reports_what_was_measured() {
    let (target, asked) = counted_slow_target();
    let address = target.name();
    // With this bound, a pause of the machine does not end the sweep at its first step.
    let sweep = start(&[&QUICK[..], &["--address", &address, "--for", "2s", "--p99.9", "5s"]].concat());
    // The first step has 220, and the second has begun.
    await_requests(&asked, 300);
    sweep.signal(Signal::INT);
    let ran = sweep.wait();
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.result().starts_with("no saturation point: interrupted; p99.9 within 5s "), "{ran:?}");
    let file = ran.json();
    assert_eq!((&file["ended"], &file["confirmed"]), (&"interrupted".into(), &false.into()), "{ran:?}");
    assert!(file["steps"].as_array().is_some_and(|steps| !steps.is_empty()), "{ran:?}");
}

#[test]
fn a_real_daemon_is_swept() {
    if !has_daemon() {
        return;
    }
    let options = ["--batch", "10", "--start", "2000", "--limit", "5000", "--p99.9", "5s"];
    let ran = until_the_target_limits(|| loadtest(&[&QUICK[..], &options].concat()));
    assert_eq!(ran.code, 0, "{ran:?}");
    let file = ran.json();
    assert_eq!((&file["saturation"], &file["at_least"]), (&5_000.0.into(), &true.into()), "{ran:?}");
    let steps = file["steps"].as_array().expect("steps");
    let rates: Vec<_> = steps.iter().map(offered).collect();
    assert_eq!(rates.last(), Some(&Some(5_000.0)), "{ran:?}");
    let layout = "time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657";
    assert!(steps.iter().all(|step| figure(&step["run"], "target", "layout") == layout), "{ran:?}");
    for (row, name) in [("CPU, memory", "target's CPU"), ("target", "worker IDs"), ("origin", "cores")] {
        assert!(figure(&steps[0]["run"], row, name).as_f64() > Some(0.0), "{name}: {ran:?}");
    }
}

#[test]
fn wrong_options_of_a_sweep_are_one_line() {
    for (options, reason) in [
        (&["--factor", "1"][..], "is not a factor"),
        (&["--factor", "inf"], "is not a factor"),
        (&["--resolution", "5"], "not a share"),
        (&["--resolution", "100%"], "not a share"),
        (&["--start", "0"], "not a rate"),
        (&["--limit", "-1"], "not a rate"),
        (&["--for", "0s"], "not a time"),
        (&["--rate", "5"], "unexpected argument"),
        (&["--closed"], "unexpected argument"),
        (&["--threads", "2"], "each thread needs a connection"),
        (&["--address", "127.0.0.1:1"], "cannot connect"),
        (&["--start", "200", "--limit", "100"], "--start 200/s is above 100, where --limit ends the sweep"),
    ] {
        let target = slow_target();
        let ran = sweep(&target.name(), options);
        assert_eq!(ran.code, 2, "{options:?}: {ran:?}");
        assert!(ran.stderr.contains(reason), "{options:?}: {ran:?}");
        assert_eq!((ran.stderr.lines().count(), ran.stdout.len()), (1, 0), "{options:?}: {ran:?}");
    }
}
