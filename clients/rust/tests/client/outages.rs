//! Daemons that are down, stall or close, and clients that end.

use std::sync::mpsc;
use std::time::Duration;

use snowbank_client::{Client, ClientOptions, Error};
use tokio::time::sleep;

use crate::fake_daemon::FakeDaemon;
use crate::{client, ms, options};

#[tokio::test]
async fn a_call_abandoned_before_it_was_sent_is_never_sent() {
    let (open, opened) = mpsc::channel();
    let opened = std::sync::Mutex::new(opened);
    let daemon = FakeDaemon::start(move |_, peer| {
        opened.lock().expect("no panic").recv().expect("the test opens the gate");
        peer.greet();
        let (next, tag) = peer.read_next();
        assert_eq!(next.count, 1);
        peer.send_run(tag, 1_000, next.count);
        peer.wait_for_close();
    });
    let client = client(&[&daemon]);
    let abandoned = client.batch(7).timeout(ms(50)).await;
    assert!(matches!(abandoned, Err(Error::Deadline { .. })), "{abandoned:?}");
    let (batch, ()) = tokio::join!(client.batch(1).source("orders").into_future(), async {
        sleep(ms(50)).await;
        open.send(()).expect("the daemon waits");
    });
    assert_eq!(batch.expect("the only request that was sent").len(), 1);
}

#[tokio::test]
async fn the_client_stops_connecting_when_no_call_waits() {
    let closing = FakeDaemon::start(|_, _| {});
    let client = client(&[&closing]);
    client.batch(1).timeout(ms(100)).await.expect_err("the daemon always closes");
    // A busy machine may accept the last connection late. A client that did not stop would connect
    // many times a second.
    let mut before = usize::MAX;
    for _ in 0..30 {
        if before == closing.connections() {
            return;
        }
        before = closing.connections();
        sleep(ms(1_000)).await;
    }
    panic!("the client still connects");
}

#[tokio::test]
async fn the_connection_ends_with_the_last_handle() {
    let (closed, closings) = mpsc::channel();
    let daemon = FakeDaemon::start(move |_, peer| {
        peer.greet();
        let (_, tag) = peer.read_next();
        peer.send_run(tag, 1, 1);
        peer.wait_for_close();
        let _ = closed.send(());
    });
    let client = client(&[&daemon]);
    let clone = client.clone();
    client.batch(1).await.expect("IDs");
    drop(client);
    sleep(ms(50)).await;
    assert!(closings.try_recv().is_err(), "a clone is left");
    drop(clone);
    tokio::task::spawn_blocking(move || closings.recv_timeout(Duration::from_secs(60)))
        .await
        .expect("no panic")
        .expect("the daemon sees the connection end");
}

#[test]
fn a_call_fails_after_the_clients_runtime_has_ended() {
    let daemon = FakeDaemon::honest(1);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let first = runtime();
    let client = first.block_on(async { client(&[&daemon]) });
    drop(first);
    let error = runtime().block_on(client.batch(1).into_future()).expect_err("the client's runtime is gone");
    assert_eq!(error, Error::Closed);
}

#[test]
fn a_client_outside_a_runtime_is_refused_with_what_to_do() {
    let error = Client::new(ClientOptions::default()).expect_err("no runtime");
    assert_eq!(error, Error::NoRuntime);
    assert!(error.to_string().contains("call Client::new in async code"), "{error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _entered = runtime.enter();
    assert!(Client::new(ClientOptions::default()).is_ok());
}

/// An endless deadline is the usual way to say "no limit".
#[tokio::test]
async fn the_longest_timeouts_are_allowed() {
    let daemon = FakeDaemon::honest(5);
    let longest = Duration::MAX;
    let options = options(&[&daemon]).timeout(longest).connect_timeout(longest).answer_timeout(longest);
    let client = Client::new(options.backoff(longest, longest)).expect("a client");
    assert_eq!(client.batch(1).await.expect("an ID").iter().next(), Some(5));
    assert_eq!(client.batch(1).max_wait(longest).await.expect("an ID").iter().next(), Some(6));
}
