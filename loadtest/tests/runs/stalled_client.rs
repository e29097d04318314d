//! A client that stalls on purpose: its own requests are late, and those of other clients are not.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::support::scripted::fake_daemon::{Asked, FakeDaemon};
use crate::support::scripted::{INFO, Ids, sound_target};
use crate::support::{Ran, has_daemon, loadtest, until_judged, until_seen};
use serde_json::Value;

/// Far longer than a busy machine keeps anything waiting.
const STALL: [&str; 10] =
    ["--rate", "1000", "--for", "6s", "--warm-up", "200ms", "--p99.9", "2s", "--stall-client", "4s@1s"];

fn stall(address: &str, more: &[&str]) -> Ran {
    loadtest(&[&STALL[..], &["--address", address], more].concat())
}

#[test]
fn a_stalled_client_recovers_and_only_the_others_are_judged() {
    for more in [&[][..], &["--closed", "--rate", "1"]] {
        let is_soon =
            |run: &Value| run["client_stall"]["caught_up_after_us"].as_f64().is_some_and(|us| us < 1e6);
        let ran = until_seen(|| stall(&sound_target().name(), more), is_soon);
        assert_eq!(ran.code, 0, "{ran:?}");
        let run = ran.json();
        let figures = &run["client_stall"];
        assert_eq!(figures["ended"], "recovered", "{ran:?}");
        assert!(is_soon(&run), "{ran:?}");
        // Its own requests waited for 4 s.
        assert!(run["response_time"]["quantiles_us"]["max"].as_f64() < Some(3_500_000.0), "{ran:?}");
        assert!(ran.words().contains("one connection not read for 4s at 1s: it recovered"), "{ran:?}");
        if more.is_empty() {
            // At least an eighth of a second's requests: the load test did not send them on the other connections instead.
            assert!(figures["excused"].as_u64() >= Some(120), "{ran:?}");
            assert_eq!(
                run["requests"].as_u64().zip(figures["excused"].as_u64()).map(|(n, m)| n + m),
                Some(6_000)
            );
        }
    }
}

/// A target that closes a connection, depending on its number and on the time since the first request. The target cannot
/// see who does not read; that it closes is what matters.
fn closes_one(closes_when: impl Fn(usize, Duration) -> bool + Send + Sync + 'static) -> FakeDaemon {
    let (ids, began) = (Ids::default(), OnceLock::new());
    FakeDaemon::start(move |accepted, peer| {
        // The first connection asks for INFO, and requests no IDs.
        let number = accepted.wrapping_sub(1);
        while let Some((asked, tag)) = peer.read() {
            let goes_on = match asked {
                Asked::Next(next) => {
                    !closes_when(number, began.get_or_init(Instant::now).elapsed())
                        && peer.send_run(tag, ids.take(next.count), next.count)
                }
                _ => {
                    peer.send(|out| snowbank_client::protocol::reply::encode_info(out, tag, INFO.as_bytes()))
                }
            };
            if !goes_on {
                return;
            }
        }
    })
}

#[test]
fn a_target_may_close_the_stalled_client_and_only_that() {
    // The stall is from 1.2 s to 5.2 s after the first request; one thread's requests on the first connection come
    // first.
    let one_thread = ["--threads", "1"];
    let within = |elapsed: Duration| (2.0..3.5).contains(&elapsed.as_secs_f64());
    let ran =
        until_judged(|| stall(&closes_one(move |number, at| number == 0 && within(at)).name(), &one_thread));
    assert_eq!(ran.code, 0, "{ran:?}");
    let run = ran.json();
    assert_eq!(run["client_stall"]["ended"], "closed by the target", "{ran:?}");
    assert!(run["client_stall"]["closed_after_us"].as_f64() > Some(0.0), "{ran:?}");
    assert!(ran.words().contains("the target closed it"), "{ran:?}");

    let ran =
        until_judged(|| stall(&closes_one(move |number, at| number == 1 && within(at)).name(), &one_thread));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("closed a connection"), "{ran:?}");
}

#[test]
fn a_daemon_continues_to_serve_the_other_clients() {
    if !has_daemon() {
        return;
    }
    let ran = until_judged(|| loadtest(&STALL));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.json()["client_stall"]["ended"], "recovered", "{ran:?}");
}

#[test]
fn a_stall_option_without_other_connections_or_an_end_is_refused() {
    for (options, reason) in [
        (&["--connections", "1"][..], "--connections 2 or more"),
        (&["--stall-client", "6s@1s"], "does not end within"),
        (&["--stall-client", "1s"], "a length and a start"),
        (&["--kill-daemon-at", "1s"], "cannot be used with"),
    ] {
        let ran = loadtest(&[&STALL[..], options].concat());
        assert_eq!((ran.code, ran.stderr.lines().count()), (2, 1), "{ran:?}");
        assert!(ran.stderr.contains(reason), "{ran:?}");
    }
    let ran = loadtest(&["--closed", "--count", "10", "--stall-client", "1s@1s"]);
    assert!(ran.code == 2 && ran.stderr.contains("--for instead of --count"), "{ran:?}");
}
