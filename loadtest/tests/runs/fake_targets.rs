//! Runs against scripted targets: each bad target fails for its own reason, and the figures show
//! the stalls of a slow target.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::support::scripted::fake_daemon::{FakeDaemon, Peer};
use crate::support::scripted::{INFO, Ids, WORKER_4, first_of_tick, sound_but_for, sound_target, target};
use crate::support::{Ran, loadtest, until_in_time, until_judged};
use snowbank_id::layout::Run;
use snowbank_wire::{ErrorCode, Next};

/// Sends 2,000 requests on one connection. Three quarters of the requests are timed, with an
/// objective that even a busy machine meets.
fn load(target: &FakeDaemon, more: &str) -> Ran {
    let timed = "--rate 1000/s --for 1500ms --warm-up 500ms --p99.9 5s";
    // Some tests count requests, and a second run would add to the number.
    loadtest(&format!("--address {} {timed} --connections 1 --runs 1 {more}", target.name()))
}

/// Runs a target that answers correctly, except that `odd` answers request 700.
fn odd_once(odd: impl Fn(&Ids, &mut Peer, Next, u16) -> bool + Send + Sync + 'static) -> FakeDaemon {
    target(INFO, move |number, ids, peer, next, tag| match number {
        700 => odd(ids, peer, next, tag),
        _ => peer.send_run(tag, ids.take(next.count), next.count),
    })
}

/// Runs a load test. Returns its result, and the longest pause of this process, which also runs the
/// target.
fn with_longest_pause(run: impl FnOnce() -> Ran) -> (Ran, Duration) {
    let (running, is_running) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let mut longest = Duration::ZERO;
        let mut looked = Instant::now();
        while is_running.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
            longest = longest.max(looked.elapsed());
            looked = Instant::now();
        }
        longest.max(looked.elapsed())
    });
    let ran = run();
    drop(running);
    (ran, watch.join().expect("no panic"))
}

#[test]
fn a_sound_target_passes() {
    // A sound target may seem late only if this process paused.
    let mut tries = 0..10;
    let ran = loop {
        let (ran, longest) = with_longest_pause(|| until_judged(|| load(&sound_target(), "")));
        if ran.code == 0 || longest < Duration::from_millis(50) || tries.next().is_none() {
            break ran;
        }
    };
    assert_eq!(ran.code, 0, "{ran:?}");
    let result = ran.result();
    assert!(result.starts_with("PASS  ") && result.contains(" IDs/s  p99.9 "), "{ran:?}");
    assert!(result.chars().count() <= 100 && result.contains("machine stood still"), "{ran:?}");
    assert!(ran.figure("a bare echo", "p50").is_number(), "{ran:?}");
}

#[test]
fn a_stall_counts_for_every_request_that_it_delayed() {
    let ran = until_judged(|| {
        let stall = Mutex::new(());
        let target = target(INFO, move |number, ids, peer, next, tag| {
            let stalled = stall.lock().expect("no panic");
            if number % 1_000 == 999 {
                std::thread::sleep(Duration::from_millis(200));
            }
            drop(stalled);
            peer.send_run(tag, ids.take(next.count), next.count)
        });
        load(&target, "--connections 2 --p99.9 50ms")
    });
    let of = |quantile: &str| ran.figure("response time", quantile).as_f64().expect("a figure");
    assert!(of("max") >= 190_000.0, "{ran:?}");
    // 200 of 1,500 requests were due during a stall, so even the request at the 99th percentile
    // waited for 185 ms.
    assert!(of("p99") >= 150_000.0, "{ran:?}");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("p99.9 was"), "{ran:?}");
}

/// A target that breaks a promise, the options of its run, and words that the reasons must contain.
struct Broken(fn() -> FakeDaemon, &'static str, &'static [&'static str]);

/// Returns a target that hands out `size(count)` IDs to a request for `count` IDs.
fn counting(size: fn(u32) -> u32) -> FakeDaemon {
    target(INFO, move |_, ids, peer, next, tag| {
        let count = size(next.count);
        peer.send_run(tag, ids.take(count), count)
    })
}

/// Returns a target that gives one ID to two successive requests, on different connections.
fn repeats_on_another_connection() -> FakeDaemon {
    let first = AtomicU64::new(0);
    target(INFO, move |number, ids, peer, next, tag| {
        match number {
            700 => first.store(ids.take(next.count), Ordering::SeqCst),
            701 => while first.load(Ordering::SeqCst) == 0 {},
            _ => return peer.send_run(tag, ids.take(next.count), next.count),
        }
        peer.send_run(tag, first.load(Ordering::SeqCst), next.count)
    })
}

fn repeats() -> FakeDaemon {
    let given = AtomicU64::new(0);
    target(INFO, move |number, ids, peer, next, tag| {
        let first = if number == 701 { given.load(Ordering::SeqCst) } else { ids.take(next.count) };
        given.store(first, Ordering::SeqCst);
        peer.send_run(tag, first, next.count)
    })
}

/// Returns a target whose IDs are dated `ahead_ms` after now.
fn dated(ahead_ms: i64) -> FakeDaemon {
    target(INFO, move |number, _, peer, next, tag| {
        peer.send_run(tag, first_of_tick(ahead_ms) + number, next.count)
    })
}

/// Returns a target whose IDs increase on each connection, but one of two connections lags by 8 ms.
/// Each connection sends every 8 ms, so the lagging IDs are lower than the IDs that the other
/// connection received 4 ms before.
fn lags_on_one_connection() -> FakeDaemon {
    const STRICT: &str = r#"{"protocol":1,"max_count":1000,"order":"strict","sources":[
        {"name":"default","layout":"twitter","worker_ids":[3]}]}"#;
    target(STRICT, |number, _, peer, next, tag| {
        let lag_ms = if peer.number % 2 == 0 { 0 } else { -8 };
        peer.send_run(tag, first_of_tick(lag_ms) + number % 4_000, next.count)
    })
}

const CLEARING: &str = r#"{"protocol":1,"max_count":1000,"sources":[
    {"name":"default","layout":"time:41,kind:2:constant(1),worker:8,sequence:12;epoch=0","worker_ids":[4]}]}"#;

const COUNTER: &str = r#"{"protocol":1,"max_count":1000,"sources":[
    {"name":"default","kind":"ticket","increment":1,"offset":1}]}"#;

/// Returns a target that hands out numbers of a counter. It answers each request for ten numbers
/// with these runs, and moves the runs up by 100 for each request.
fn counter(runs: &'static [Run]) -> FakeDaemon {
    target(COUNTER, move |number, _, peer, _, tag| {
        let moved = runs.iter().map(|run| Run { first: run.first + number * 100, ..*run });
        peer.send_runs(tag, &moved.collect::<Vec<_>>(), false)
    })
}

const EVERY_SECOND: [Run; 1] = [Run { first: 1, count: 10, stride: 2 }];
const ALL_BUT_6: [Run; 2] = [Run { first: 1, count: 5, stride: 1 }, Run { first: 7, count: 5, stride: 1 }];

const BROKEN: [Broken; 16] = [
    Broken(repeats, "", &["duplicate: ", "worker=3"]),
    Broken(repeats_on_another_connection, "--connections 2", &["duplicate: "]),
    // Request 700 gets an unused ID, one tick before the last ID. The message decodes both IDs.
    Broken(
        || {
            odd_once(|ids, peer, next, tag| {
                let last = *ids.0.lock().expect("no panic") - 1;
                peer.send_run(tag, last - (1 << 22) + 2_000, next.count)
            })
        },
        "",
        &["wrong order: ", ") follows ", ") on one connection"],
    ),
    Broken(|| counting(|asked| asked - 1), "--batch 10", &["too few IDs: 9 came and 10 were asked for"]),
    Broken(|| counting(|asked| asked + 1), "", &["too many IDs"]),
    Broken(|| target(INFO, |_, _, _, _, _| true), "", &["stalled"]),
    Broken(|| target(INFO, |_, _, _, _, _| false), "--connections 2", &["closed a connection"]),
    Broken(|| sound_but_for(WORKER_4), "", &["wrong worker: "]),
    Broken(|| sound_but_for(CLEARING), "", &["wrong layout: "]),
    Broken(|| counter(&EVERY_SECOND), TENS, &["a gap: the reply with 1 leaves out numbers"]),
    Broken(|| counter(&ALL_BUT_6), TENS, &["a gap: the reply with 7 leaves out numbers"]),
    Broken(|| dated(-60_000), "", &["wrong time: ", "us older than"]),
    Broken(|| dated(60_000), "", &["wrong time: ", "us newer than"]),
    // A single thread sends on its two connections in turn.
    Broken(lags_on_one_connection, "--connections 2 --rate 250 --threads 1", &["order is strict"]),
    Broken(
        || odd_once(|_, peer, _, _| peer.send(|out| out.extend_from_slice(&[0xff; 64]))),
        "",
        &["broke the protocol"],
    ),
    Broken(
        || odd_once(|ids, peer, next, tag| peer.send_run(tag + 1, ids.take(next.count), next.count)),
        "",
        &["broke the protocol: a reply with tag"],
    ),
];

const TENS: &str = "--batch 10 --rate 10000/s";

#[test]
fn each_broken_promise_fails_with_its_reason() {
    for Broken(target, options, reason) in BROKEN {
        // If the generator stood still, the judge does not blame the target for a closed
        // connection, so the run may have no verdict.
        let ran = until_judged(|| load(&target(), options));
        assert_eq!(ran.code, 1, "{reason:?}: {ran:?}");
        assert!(reason.iter().all(|words| ran.result().contains(words)), "{reason:?}: {ran:?}");
    }
}

/// Runs a target that refuses requests by their numbers. On one connection, the numbers follow the
/// order in which requests are due.
fn refusing(is_refused: impl Fn(u64) -> bool + Send + Sync + 'static) -> FakeDaemon {
    target(INFO, move |number, ids, peer, next, tag| {
        if is_refused(number) {
            return peer.refuse(tag, ErrorCode::Exhausted, None, "none\u{1b}[2J\r\npass: left");
        }
        peer.send_run(tag, ids.take(next.count), next.count)
    })
}

#[test]
fn refusals_count_by_code_and_fail_unless_allowed() {
    let each_hundredth = |number| number % 100 == 99;
    for (is_refused, name, reason) in [
        (
            each_hundredth as fn(u64) -> bool,
            "exhausted",
            "15 of 1,500 requests were refused: exhausted x 15 (none",
        ),
        (
            |number| number < 100,
            "exhausted in the warm-up",
            "100 requests of the warm-up were refused: exhausted x 100 (none",
        ),
    ] {
        let ran = until_judged(|| load(&refusing(is_refused), ""));
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.result().contains(reason) && ran.figure("IDs", name).as_f64() >= Some(15.0), "{ran:?}");
        // A target's message cannot control the terminal.
        let is_raw = ran.stdout.contains('\u{1b}') || ran.stdout.lines().any(|line| line.starts_with("pass"));
        assert!(!is_raw, "{ran:?}");
    }
    let ran = until_judged(|| load(&refusing(each_hundredth), "--errors 0.9%"));
    assert!(ran.code == 1 && ran.result().contains("exhausted x "), "{ran:?}");
    let ran = until_in_time(|| load(&refusing(each_hundredth), "--errors 2%"));
    assert_eq!((ran.code, ran.figure("load", "errors allowed")), (0, 0.02.into()), "{ran:?}");
    assert!(ran.words().contains("exhausted 15"), "{ran:?}");
}
