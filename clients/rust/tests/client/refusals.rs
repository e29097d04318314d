//! Refusals: the ones that the client retries, and the ones that it returns.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use snowbank_client::protocol::{ErrorCode, reply};
use snowbank_client::{Client, IdsOptions};

use crate::fake_daemon::{Asked, FakeDaemon};
use crate::{client, ms, options};

#[tokio::test]
async fn refusals_of_the_request_are_not_retried() {
    let codes = [
        ErrorCode::Malformed,
        ErrorCode::Unsupported,
        ErrorCode::BadCount,
        ErrorCode::UnknownSource,
        ErrorCode::Unauthorized,
        ErrorCode::Exhausted,
    ];
    for code in codes {
        let refusing = FakeDaemon::start(move |_, peer| {
            peer.greet();
            let (_, tag) = peer.read_next();
            peer.refuse(tag, code, Some(ms(70)), "no, thank you");
            peer.wait_for_close();
        });
        let other = FakeDaemon::honest(1);
        let error = client(&[&refusing, &other]).batch(1).await.expect_err("a refusal");
        assert_eq!((error.code(), error.retry_after()), (Some(code), Some(ms(70))));
        assert!(error.to_string().contains(&format!("{code}: no, thank you")), "{error}");
        assert_eq!(other.requests(), 0, "{code}");
    }
}

#[tokio::test]
async fn refusals_for_the_daemons_state_go_to_the_next_endpoint() {
    let codes = [ErrorCode::ClockBehind, ErrorCode::NoCeiling, ErrorCode::ShuttingDown, ErrorCode::TooBusy];
    for code in codes {
        let refusing = FakeDaemon::start(move |_, peer| {
            peer.greet();
            let (_, tag) = peer.read_next();
            peer.refuse(tag, code, Some(Duration::from_secs(100)), "");
            peer.wait_for_close();
        });
        let other = FakeDaemon::honest(77);
        let client = client(&[&refusing, &other]);
        let batch = client.batch(1).await.expect("IDs from the other");
        assert_eq!((batch.iter().next(), batch.endpoint()), (Some(77), &*other.name()), "{code}");
        // The client stays with the second daemon.
        client.batch(1).await.expect("IDs from the other");
        assert_eq!((refusing.requests(), other.requests()), (1, 2), "{code}");
    }
}

/// Starts a daemon that refuses every request for IDs as `exhausted` for this time.
fn exhausted_for(time: Duration) -> FakeDaemon {
    FakeDaemon::start(move |_, peer| {
        peer.greet();
        while let Some((_, tag)) = peer.read() {
            peer.refuse(tag, ErrorCode::Exhausted, Some(time), "");
        }
    })
}

#[tokio::test]
async fn a_daemon_that_is_exhausted_beyond_the_deadline_is_left_for_the_next() {
    let refusing = exhausted_for(Duration::from_secs(3_600));
    let other = FakeDaemon::honest(77);
    let both = client(&[&refusing, &other]);
    let batch = both.batch(1).await.expect("IDs from the other");
    assert_eq!(batch.endpoint(), other.name());
    let mut ids = both.ids(IdsOptions::default()).expect("IDs");
    ids.next().await.expect("IDs from the other");
    assert_eq!((refusing.requests(), other.requests()), (1, 2));

    // If all daemons are exhausted, each is asked once, and the error has the shortest time.
    let sooner = exhausted_for(Duration::from_secs(600));
    let longest = exhausted_for(Duration::from_secs(7_200));
    let error = client(&[&refusing, &sooner, &longest]).batch(1).await.expect_err("no IDs");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(600)), "{error}");
    assert_eq!((sooner.requests(), longest.requests()), (1, 1));
    let alone = client(&[&refusing]).batch(1).await.expect_err("no IDs");
    assert_eq!(alone.code(), Some(ErrorCode::Exhausted));
}

/// Daemons that are exhausted for one call may have IDs for the next. So they serve it at once, though each named an
/// hour.
#[tokio::test]
async fn exhausted_daemons_serve_calls_that_they_can() {
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
    let (first, second) = (no_large_ones(), no_large_ones());
    let both = Client::new(options(&[&first, &second]).backoff(ms(1), Duration::from_secs(600)));
    let both = both.expect("a client");
    for _ in 0..3 {
        let error = both.batch(1_000).await.expect_err("no IDs");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(3_600)), "{error}");
        both.batch(1).await.expect("an ID");
    }
}

/// A refused call goes to the next daemon. The reply that another call waits for still arrives on the same
/// connection.
#[tokio::test]
async fn an_exhausted_call_leaves_the_others_their_connection() {
    let other = Arc::new(FakeDaemon::honest(77));
    let asked_next = Arc::clone(&other);
    let refusing = FakeDaemon::start(move |_, peer| {
        peer.greet();
        let (first, second) = (peer.read_next(), peer.read_next());
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
    assert_eq!(large.expect("IDs from the other").endpoint(), other.name());
    assert_eq!(small.expect("the reply that was in flight").endpoint(), refusing.name());
}

#[tokio::test]
async fn too_busy_before_the_greeting_goes_to_the_next_endpoint() {
    let busy = FakeDaemon::start(|_, peer| {
        peer.refuse(0, ErrorCode::TooBusy, None, "10000 connections");
    });
    let other = FakeDaemon::honest(77);
    let batch = client(&[&busy, &other]).batch(1).await.expect("IDs from the other");
    assert_eq!(batch.iter().next(), Some(77));

    let alone = Client::new(options(&[&busy]).fail_fast(true)).expect("a client");
    let error = alone.batch(1).await.expect_err("nobody else is there");
    assert_eq!(error.code(), Some(ErrorCode::TooBusy), "{error}");
}

#[tokio::test]
async fn a_lone_daemon_is_asked_again_on_its_connection() {
    let daemon = FakeDaemon::start(|_, peer| {
        peer.greet();
        for _ in 0..3 {
            let (_, tag) = peer.read_next();
            peer.refuse(tag, ErrorCode::ClockBehind, Some(ms(5)), "");
        }
        let (_, tag) = peer.read_next();
        peer.send_run(tag, 5, 1);
        peer.wait_for_close();
    });
    let batch = client(&[&daemon]).batch(1).await.expect("IDs in the end");
    assert_eq!((batch.iter().next(), daemon.connections()), (Some(5), 1));
}

/// Forty seconds are allowed and a minute would be needed: waiting would be in vain.
#[tokio::test]
async fn a_wait_beyond_the_deadline_is_refused_at_once() {
    let daemon = FakeDaemon::start(|_, peer| {
        peer.greet();
        let (_, tag) = peer.read_next();
        peer.refuse(tag, ErrorCode::NoCeiling, Some(Duration::from_secs(60)), "");
        peer.wait_for_close();
    });
    let error = client(&[&daemon]).batch(1).await.expect_err("a refusal");
    assert_eq!(error.code(), Some(ErrorCode::NoCeiling), "{error}");
}

#[tokio::test]
async fn the_token_goes_first() {
    let daemon = FakeDaemon::start(|_, peer| {
        let (asked, tag) = peer.read().expect("a request");
        if asked != Asked::Auth(b"s3cret".to_vec()) {
            peer.refuse(tag, ErrorCode::Unauthorized, None, "show a token first");
            return;
        }
        peer.send(|out| reply::encode_ok(out, tag));
        peer.greet();
        let (_, tag) = peer.read_next();
        peer.send_run(tag, 5, 1);
        peer.wait_for_close();
    });
    let other = FakeDaemon::honest(1);
    let with = Client::new(options(&[&daemon]).token("s3cret")).expect("a client");
    with.batch(1).await.expect("IDs");
    let without = client(&[&daemon, &other]).batch(1).await.expect_err("a refusal");
    assert_eq!(without.code(), Some(ErrorCode::Unauthorized), "{without}");
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn a_source_is_found_by_name() {
    let info = r#"{"protocol":1,"max_count":9,"sources":[{"index":0,"name":"a"},{"index":1,"name":"b"}]}"#;
    let daemon = FakeDaemon::start(move |_, peer| {
        peer.greet_with(info);
        let (next, tag) = peer.read_next();
        assert_eq!(next.source, 1);
        peer.send_run(tag, 2, 1);
        peer.wait_for_close();
    });
    let client = client(&[&daemon]);
    client.batch(1).source("b").await.expect("b is there");
    let error = client.batch(1).source("c").await.expect_err("c is not");
    assert_eq!(error.to_string(), format!("{} has no source named \"c\"; it has a, b", daemon.name()));
}
