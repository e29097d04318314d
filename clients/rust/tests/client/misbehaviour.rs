//! Daemons that break the protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use snowbank_client::Error;
use snowbank_client::layout::Run;

use crate::fake_daemon::FakeDaemon;
use crate::{client, eventually};

#[tokio::test]
async fn a_reply_that_never_ends_is_cut_off() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let closed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&closed);
    let daemon = FakeDaemon::start(move |_, peer| {
        peer.greet();
        let (_, tag) = peer.read_next();
        let mut first = 1;
        while peer.send_runs(tag, &[Run { first, count: 1, stride: 1 }], true) {
            first += 1;
            counter.fetch_add(1, Ordering::SeqCst);
        }
        peer.wait_for_close();
        seen.store(true, Ordering::SeqCst);
    });
    let client = client(&[&daemon]);
    let error = client.batch(2).await.expect_err("a daemon at fault");
    eventually("the connection is closed", || closed.load(Ordering::SeqCst)).await;
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
    assert!(error.to_string().contains("more than the 2 IDs"), "{error}");
    assert!(sent.load(Ordering::SeqCst) > 2);
}

#[tokio::test]
async fn an_info_that_never_ends_is_cut_off() {
    let daemon = FakeDaemon::start(|_, peer| {
        let (_, tag) = peer.read().expect("the greeting");
        let mut frame = 65_536_u32.to_le_bytes().to_vec();
        frame.extend([0x83, 1, tag as u8, (tag >> 8) as u8]);
        frame.resize(65_540, b' ');
        while peer.send(|out| out.extend_from_slice(&frame)) {}
    });
    let error = client(&[&daemon]).batch(1).await.expect_err("a daemon at fault");
    assert!(error.to_string().contains("the INFO reply exceeds"), "{error}");
}

#[tokio::test]
async fn a_later_version_of_the_protocol_is_named() {
    let future = FakeDaemon::start(|_, peer| {
        peer.greet_with(r#"{"protocol":2,"max_count":1,"sources":[]}"#);
        peer.wait_for_close();
    });
    let error = client(&[&future]).batch(1).await.expect_err("a later protocol");
    assert!(error.to_string().contains("protocol version 2"), "{error}");
}
