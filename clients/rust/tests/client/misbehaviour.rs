//! Daemons that break the protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use snowbank_client::Error;
use snowbank_client::layout::Run;
use snowbank_client::protocol::{ErrorCode, reply};

use crate::fake_daemon::{FakeDaemon, Peer};
use crate::{client, eventually};

/// Replies to a call for two IDs with `answer`, and returns the caller's error once the client has closed the
/// connection.
async fn told(answer: impl Fn(&mut Peer, u16) + Send + Sync + 'static) -> Error {
    let closed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&closed);
    let daemon = FakeDaemon::start(move |_, peer| {
        peer.greet();
        let (_, tag) = peer.read_next();
        answer(peer, tag);
        peer.wait_for_close();
        seen.store(true, Ordering::SeqCst);
    });
    let client = client(&[&daemon]);
    let error = client.batch(2).await.expect_err("a daemon at fault");
    eventually("the connection is closed", || closed.load(Ordering::SeqCst)).await;
    error
}

/// Has `answer` reply, and expects the caller's error to be a breach of protocol that contains `reason`.
async fn breach(reason: &str, answer: impl Fn(&mut Peer, u16) + Send + Sync + 'static) {
    let error = told(answer).await;
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
    assert!(error.to_string().contains(reason), "{error}");
}

#[tokio::test]
async fn garbage_is_a_breach_of_protocol() {
    breach("it answers in HTTP", |peer, _| {
        peer.send(|out| out.extend(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    })
    .await;
    breach("kind 0x42", |peer, tag| {
        peer.send(|out| out.extend([4, 0, 0, 0, 0x42, 0, tag as u8, (tag >> 8) as u8]));
    })
    .await;
    breach("a length of 65537", |peer, _| {
        peer.send(|out| out.extend(65_537_u32.to_le_bytes()));
    })
    .await;
}

#[tokio::test]
async fn replies_that_do_not_fit_the_request_are_a_breach_of_protocol() {
    breach("tag", |peer, tag| {
        peer.send_run(tag.wrapping_add(1), 1, 2);
    })
    .await;
    breach("more than the 2 IDs", |peer, tag| {
        peer.send_run(tag, 1, 3);
    })
    .await;
    breach("1 IDs and 2 were asked", |peer, tag| {
        peer.send_run(tag, 1, 1);
    })
    .await;
    breach("do not increase", |peer, tag| {
        peer.send_runs(
            tag,
            &[Run { first: 9, count: 1, stride: 1 }, Run { first: 9, count: 1, stride: 1 }],
            false,
        );
    })
    .await;
    breach("wrong kind", |peer, tag| {
        peer.send(|out| reply::encode_ok(out, tag));
    })
    .await;
    breach("wrong kind", |peer, tag| {
        peer.send_runs(tag, &[Run { first: 9, count: 1, stride: 1 }], true);
        peer.refuse(tag, ErrorCode::Exhausted, None, "an error never follows a part of a reply");
    })
    .await;
}

#[tokio::test]
async fn a_reply_that_never_ends_is_cut_off() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    breach("more than the 2 IDs", move |peer, tag| {
        let mut first = 1;
        while peer.send_runs(tag, &[Run { first, count: 1, stride: 1 }], true) {
            first += 1;
            counter.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
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
async fn a_reply_to_nothing_ends_the_connection() {
    let daemon = FakeDaemon::start(|number, peer| {
        peer.greet();
        let (_, tag) = peer.read_next();
        peer.send(|out| {
            reply::encode_runs_frame(out, tag, &[Run { first: 5, count: 1, stride: 1 }], false)
                .expect("fits");
            if number == 0 {
                reply::encode_ok(out, tag);
            }
        });
        peer.wait_for_close();
    });
    let client = client(&[&daemon]);
    client.batch(1).await.expect("the reply was sound");
    client.batch(1).await.expect("on a new connection");
    assert_eq!(daemon.connections(), 2);
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
