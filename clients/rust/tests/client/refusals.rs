//! Refusals that have no case in clients/conformance.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use snowbank_client::Client;
use snowbank_wire::ErrorCode;

use crate::fake_daemon::{Asked, FakeDaemon};
use crate::{client, ms, options};

/// Daemons that are exhausted for one call may have IDs for the next. So the client asks them at
/// once for the next call, although each has named a wait of an hour.
#[tokio::test]
async fn exhausted_daemons_still_serve_smaller_calls() {
    let no_large_ones = || {
        FakeDaemon::start(|_, peer| {
            peer.greet();
            while let Some((Asked::Next(next), tag)) = peer.read() {
                match next.count {
                    1 => peer.send_run(tag, 5, 1),
                    _ => peer.refuse(tag, ErrorCode::Exhausted, Some(Duration::from_secs(3_600)), ""),
                };
            }
        })
    };
    let first = no_large_ones();
    let second = no_large_ones();
    let both = Client::new(options(&[&first, &second]).backoff(ms(1), Duration::from_secs(600)));
    let both = both.expect("a client");
    for _ in 0..3 {
        let error = both.batch(1_000).await.expect_err("no IDs");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(3_600)), "{error}");
        both.batch(1).await.expect("an ID");
    }
}

/// A refused call goes to the next daemon. The reply that another call waits for still arrives on
/// the connection to the refusing daemon.
#[tokio::test]
async fn a_daemon_exhausted_for_one_call_answers_the_others() {
    let other = Arc::new(FakeDaemon::honest(77));
    let asked_next = Arc::clone(&other);
    let refusing = FakeDaemon::start(move |_, peer| {
        peer.greet();
        let first = peer.read_next();
        let second = peer.read_next();
        assert_eq!((first.0.count, second.0.count), (1_000, 1));
        peer.refuse(first.1, ErrorCode::Exhausted, Some(Duration::from_secs(3_600)), "");
        while asked_next.connections() == 0 {
            thread::sleep(ms(1));
        }
        peer.send_run(second.1, 5, 1);
        peer.wait_for_close();
    });
    let both = client(&[&refusing, &other]);
    let (large, small) = tokio::join!(both.batch(1_000), both.batch(1));
    assert_eq!(large.expect("IDs from the other daemon").endpoint(), other.name());
    assert_eq!(small.expect("the reply that was in flight").endpoint(), refusing.name());
}
