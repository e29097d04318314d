//! Runs against scripted targets: each fails for the right reason, and slowness shows.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::scripted::fake_daemon::{FakeDaemon, Peer};
use crate::support::scripted::{INFO, Ids, first_of_tick, sound_target, target};
use crate::support::{Ran, loadtest, until_judged};
use snowbank_client::protocol::{ErrorCode, Next};

/// 2,000 requests, the middle of them timed, with an objective that a busy machine meets.
fn load(target: &FakeDaemon, more: &[&str]) -> Ran {
    let address = target.name();
    let mut options = vec![
        "--address",
        &address,
        "--rate",
        "1000/s",
        "--for",
        "1500ms",
        "--warm-up",
        "500ms",
        "--connections",
        "2",
        // Where a test counts requests, a second run would add its own.
        "--runs",
        "1",
    ];
    if !more.iter().any(|option| option.starts_with("--p99")) {
        options.extend(["--p99.9", "5s"]);
    }
    options.extend(more);
    loadtest(&options)
}

/// Loads a target that answers correctly, except for one request in the middle.
fn odd_once(odd: impl Fn(&Ids, &mut Peer, Next, u16) -> bool + Send + Sync + 'static) -> Ran {
    let target = target(INFO, move |number, ids, peer, next, tag| match number {
        700 => odd(ids, peer, next, tag),
        _ => peer.send_run(tag, ids.take(next.count), next.count),
    });
    load(&target, &["--connections", "1"])
}

#[test]
fn a_sound_target_passes() {
    let ran = until_judged(|| load(&sound_target(), &[]));
    assert_eq!(ran.code, 0, "{ran:?}");
    let result = ran.result();
    assert!(result.starts_with("PASS  ") && result.contains(" IDs/s  p99.9 "), "{ran:?}");
    assert!(result.chars().count() <= 100 && result.contains("machine stood still"), "{ran:?}");
}

#[test]
fn a_stall_shows_in_the_response_times_of_all_requests_it_delayed() {
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
        load(&target, &["--p99.9", "50ms"])
    });
    let of = |quantile: &str| ran.figure("response time", quantile).as_f64().expect("a figure");
    assert!(of("max") >= 190_000.0, "{ran:?}");
    // 200 of 1,500 requests were due during the stalls, so even the 95th percentile waited for 75 ms.
    assert!(of("p99") >= 150_000.0, "{ran:?}");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("p99.9 was"), "{ran:?}");
}

#[test]
fn a_repeated_id_is_a_duplicate() {
    let given = AtomicU64::new(0);
    let target = target(INFO, move |number, ids, peer, next, tag| {
        let first = if number == 701 { given.load(Ordering::SeqCst) } else { ids.take(next.count) };
        given.store(first, Ordering::SeqCst);
        peer.send_run(tag, first, next.count)
    });
    let ran = load(&target, &["--connections", "1"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("duplicate: ") && ran.result().contains("worker=3"), "{ran:?}");
}

#[test]
fn a_duplicate_on_another_connection_is_found() {
    let first = std::sync::Arc::new(AtomicU64::new(0));
    let target = target(INFO, move |number, ids, peer, next, tag| {
        // Two neighbouring requests are on different connections.
        match number {
            700 => first.store(ids.take(next.count), Ordering::SeqCst),
            701 => while first.load(Ordering::SeqCst) == 0 {},
            _ => return peer.send_run(tag, ids.take(next.count), next.count),
        }
        peer.send_run(tag, first.load(Ordering::SeqCst), next.count)
    });
    let ran = load(&target, &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("duplicate: "), "{ran:?}");
}

#[test]
fn an_id_that_goes_back_is_out_of_order() {
    // An ID of the tick before the last one's, which nobody has received.
    let ran = odd_once(|ids, peer, next, tag| {
        let last = *ids.0.lock().expect("no panic") - 1;
        peer.send_run(tag, last - (1 << 22) + 2_000, next.count)
    });
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("wrong order: "), "{ran:?}");
    assert_eq!(ran.result().matches("sequence=").count(), 2, "both IDs are decoded: {ran:?}");
}

#[test]
fn too_few_ids_fail() {
    let target =
        target(INFO, |_, ids, peer, next, tag| peer.send_run(tag, ids.take(next.count), next.count - 1));
    let ran = load(&target, &["--batch", "10"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("too few IDs: 9 came and 10 were asked for"), "{ran:?}");
}

#[test]
fn too_many_ids_fail() {
    let ran = odd_once(|ids, peer, next, tag| peer.send_run(tag, ids.take(next.count + 1), next.count + 1));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("too many IDs"), "{ran:?}");
}

#[test]
fn a_target_that_never_answers_has_stalled() {
    let target = target(INFO, |_, _, _, _, _| true);
    let ran = load(&target, &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("stalled"), "{ran:?}");
}

#[test]
fn a_target_that_closes_after_its_first_id_fails() {
    let target = target(INFO, |_, ids, peer, next, tag| {
        peer.send_run(tag, ids.take(next.count), next.count);
        false
    });
    let ran = load(&target, &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("closed a connection"), "{ran:?}");
}

#[test]
fn ids_of_another_worker_or_layout_than_info_says_fail() {
    const WORKER_4: &str = r#"{"protocol":1,"max_count":1000,"sources":[
        {"index":0,"name":"default","layout":"twitter","worker_ids":[4]}]}"#;
    const CLEARING: &str = r#"{"protocol":1,"max_count":1000,"sources":[
        {"index":0,"name":"default","layout":"time:41,kind:2:constant(1),worker:8,sequence:12;epoch=0","worker_ids":[4]}]}"#;
    for (info, reason) in [(WORKER_4, "wrong worker: "), (CLEARING, "wrong layout: ")] {
        let target =
            target(info, |_, ids, peer, next, tag| peer.send_run(tag, ids.take(next.count), next.count));
        let ran = load(&target, &[]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.result().contains(reason), "{ran:?}");
    }
}

#[test]
fn an_impossible_info_is_the_targets_fault() {
    const NONSENSE: &str = r#"{"protocol":1,"max_count":1000,"sources":[
        {"index":0,"name":"default","layout":"twitter","worker_ids":[5000]}]}"#;
    let ran = load(&target(NONSENSE, |_, _, _, _, _| true), &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("describes source \"default\" wrongly"), "{ran:?}");
}

#[test]
fn ids_outside_the_promised_window_fail() {
    let old = target(INFO, |number, _, peer, next, tag| {
        peer.send_run(tag, first_of_tick(-60_000) + number, next.count)
    });
    let new = target(INFO, |number, _, peer, next, tag| {
        peer.send_run(tag, first_of_tick(60_000) + number, next.count)
    });
    for (target, reason) in [(old, "us older than"), (new, "us newer than")] {
        let ran = load(&target, &["--connections", "1"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.result().contains("wrong time: ") && ran.result().contains(reason), "{ran:?}");
    }
}

#[test]
fn strict_order_holds_over_connections() {
    const STRICT: &str = r#"{"protocol":1,"max_count":1000,"order":"strict","sources":[
        {"index":0,"name":"default","layout":"twitter","worker_ids":[3]}]}"#;
    // Each connection sends every 8 ms, and its IDs increase. One lags 8 ms behind the other, so its IDs are lower
    // than those that the other received 4 ms before.
    let lags = target(STRICT, |number, _, peer, next, tag| {
        let lag_ms = if peer.number % 2 == 0 { 0 } else { -8 };
        peer.send_run(tag, first_of_tick(lag_ms) + number % 4_000, next.count)
    });
    // One thread sends on its connections in turn.
    let ran = load(&lags, &["--rate", "250", "--threads", "1"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("order is strict"), "{ran:?}");
}

#[test]
fn refusals_are_counted_by_code_and_fail() {
    let ran = until_judged(|| {
        let target = target(INFO, |number, ids, peer, next, tag| match number % 100 {
            99 => peer.refuse(tag, ErrorCode::Exhausted, None, "none left"),
            _ => peer.send_run(tag, ids.take(next.count), next.count),
        });
        // One connection, so that the target counts requests in the order in which they are due.
        load(&target, &["--connections", "1"])
    });
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(ran.figure("IDs", "exhausted"), 15.0, "{ran:?}");
    assert!(
        ran.result().contains("15 of 1,500 requests were refused: exhausted x 15 (none left)"),
        "{ran:?}"
    );
}

#[test]
fn refusals_in_the_warm_up_count() {
    let ran = until_judged(|| {
        let target = target(INFO, |number, ids, peer, next, tag| match number {
            0..100 => peer.refuse(tag, ErrorCode::Exhausted, None, "none yet"),
            _ => peer.send_run(tag, ids.take(next.count), next.count),
        });
        load(&target, &["--connections", "1"])
    });
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.result().contains("100 requests of the warm-up refused: exhausted x 100 (none yet)"),
        "{ran:?}"
    );
    assert_eq!(ran.figure("IDs", "exhausted in the warm-up"), 100.0, "{ran:?}");
}

#[test]
fn a_targets_text_cannot_control_the_terminal() {
    let target = target(INFO, |_, _, peer, _, tag| {
        peer.refuse(tag, ErrorCode::Exhausted, None, "none\u{1b}[2J\r\npass: all is well")
    });
    let ran = load(&target, &[]);
    assert!(ran.code != 0 && ran.figure("IDs", "exhausted").as_f64() > Some(0.0), "{ran:?}");
    assert!(
        !ran.stdout.contains('\u{1b}') && !ran.stdout.lines().any(|line| line.starts_with("pass")),
        "{ran:?}"
    );
}

#[test]
fn nonsense_after_info_is_the_targets_fault() {
    let ran = odd_once(|_, peer, _, _| peer.send(|out| out.extend_from_slice(&[0xff; 64])));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("broke the protocol"), "{ran:?}");
    let ran =
        odd_once(|ids, peer, next, tag| peer.send_run(tag.wrapping_add(1), ids.take(next.count), next.count));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("broke the protocol: a reply with tag"), "{ran:?}");
}

/// Listens and runs `with` on each connection.
fn listener(with: impl Fn(std::net::TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(with));
    address
}

#[test]
fn a_server_of_another_protocol_is_no_target() {
    let http = listener(|mut stream| {
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let closes = listener(drop);
    let held = Mutex::new(Vec::new());
    let silent = listener(move |stream| held.lock().expect("no panic").push(stream));
    for (address, reason) in [
        (http, "does not speak snowbank's protocol"),
        (closes, "closed the connection"),
        (silent, "did not answer within 5s"),
    ] {
        let ran = loadtest(&["--address", &address]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(reason) && ran.stderr.lines().count() == 1, "{ran:?}");
    }
}

#[test]
fn an_error_budget_allows_its_share_of_refusals_and_no_more() {
    let load = |each: u64, budget: &[&str]| {
        let target = target(INFO, move |number, ids, peer, next, tag| {
            if number % each == each - 1 {
                return peer.refuse(tag, ErrorCode::Exhausted, None, "none left");
            }
            peer.send_run(tag, ids.take(next.count), next.count)
        });
        let options = ["--rate=2000", "--for=2s", "--warm-up=200ms", "--p99.9=5s", "--runs=1"];
        loadtest(&[&["--address", &target.name()], &options[..], budget].concat())
    };
    let ran = until_judged(|| load(500, &["--errors", "1%"]));
    assert_eq!((ran.code, ran.figure("load", "errors allowed")), (0, 0.01.into()), "{ran:?}");
    assert!(ran.words().contains("exhausted 8"), "{ran:?}");
    for (each, budget) in [(50, &["--errors", "1%"][..]), (500, &[])] {
        let ran = until_judged(|| load(each, budget));
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.result().contains("exhausted x "), "{ran:?}");
    }
}
