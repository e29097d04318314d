//! Connections that change under load, and an error budget.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::scripted::fake_daemon::{Asked, FakeDaemon};
use crate::support::scripted::{INFO, Ids, target};
use crate::support::{Ran, loadtest, until_judged};
use snowbank_client::protocol::{ErrorCode, reply};

fn load(address: &str, more: &[&str]) -> Ran {
    let options =
        ["--rate", "2000", "--for", "2s", "--warm-up", "200ms", "--p99.9", "5s", "--connections", "4"];
    loadtest(&[&options[..], &["--address", address], more].concat())
}

/// Accepts this many connections, and closes each further one without an answer.
fn taking(limit: usize) -> FakeDaemon {
    let (ids, taken) = (Ids::default(), AtomicUsize::new(0));
    FakeDaemon::start(move |_, peer| {
        let is_taken = taken.fetch_add(1, Ordering::SeqCst) < limit;
        while let Some((asked, tag)) = peer.read() {
            let goes_on = match asked {
                _ if !is_taken => false,
                Asked::Next(next) => peer.send_run(tag, ids.take(next.count), next.count),
                _ => peer.send(|out| reply::encode_info(out, tag, INFO.as_bytes())),
            };
            if !goes_on {
                return;
            }
        }
    })
}

#[test]
fn connections_change_and_no_request_is_lost() {
    // An open loop with several connections on a thread, one with a single connection on each, and a closed loop.
    let loops: [&[&str]; 3] =
        [&[], &["--connections", "2"], &["--closed", "--depth", "16", "--threads", "2"]];
    for more in loops {
        let ran = until_judged(|| load(&taking(usize::MAX).name(), &[&["--churn", "100/s"], more].concat()));
        assert_eq!(ran.code, 0, "{ran:?}");
        let [due, opened] =
            ["due", "opened"].map(|name| ran.figure("churn", name).as_f64().expect("a number"));
        assert!((1.0..=201.0).contains(&due) && opened > due * 0.9, "{ran:?}");
        assert_eq!(ran.figure("IDs", "requests"), ran.figure("IDs", "answered"), "{ran:?}");
        assert_eq!(ran.figure("IDs", "unanswered"), 0.0, "{ran:?}");
    }
}

#[test]
fn a_target_that_takes_no_new_connection_fails() {
    // One connection greets, four carry the load.
    let ran = until_judged(|| load(&taking(25).name(), &["--churn", "50/s"]));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("the target closed a connection"), "{ran:?}");
}

#[test]
fn an_error_budget_allows_its_share_of_refusals_and_no_more() {
    let one_in = |each: u64| {
        target(INFO, move |number, ids, peer, next, tag| {
            if number % each == each - 1 {
                return peer.refuse(tag, ErrorCode::Exhausted, None, "none left");
            }
            peer.send_run(tag, ids.take(next.count), next.count)
        })
    };
    let ran = until_judged(|| load(&one_in(500).name(), &["--errors", "1%"]));
    assert_eq!((ran.code, ran.figure("load", "errors allowed")), (0, 0.01.into()), "{ran:?}");
    assert!(ran.words().contains("exhausted 8"), "{ran:?}");
    for (each, budget) in [(50, &["--errors", "1%"][..]), (500, &[])] {
        let ran = until_judged(|| load(&one_in(each).name(), budget));
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.result().contains("exhausted x "), "{ran:?}");
    }
}
