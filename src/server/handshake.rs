//! The start of a TLS connection, as part of the connection's own task: a slow handshake keeps nobody else waiting.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::complaints;
use super::secure::{Counted, Secure};
use super::stream::Stream;
use super::worker::Member;
use crate::tls::{Acceptor, Closed};

/// How long a peer whose handshake failed is read on, so that the alert arrives before the reset that unread bytes would
/// cause.
const LINGER: Duration = Duration::from_secs(1);

/// Shakes hands. `None` if that came to nothing, which is then said and done with.
pub(super) async fn shake(socket: TcpStream, acceptor: Acceptor, member: &mut Member) -> Option<Stream> {
    let peer = socket.peer_addr();
    let mut accept = pin!(acceptor.accept(Counted::new(socket)));
    let accepted = poll_fn(|cx| {
        member.remember(cx.waker());
        let polled = accept.as_mut().poll(cx);
        if polled.is_pending() {
            // No request of it has arrived.
            member.note_drained_if_draining();
        }
        polled
    });
    let (closed, socket) = match accepted.await {
        Ok(stream) => return Some(Stream::Tls(Box::new(Secure::new(stream)))),
        Err(failed) => failed,
    };
    if closed != Closed::Left
        && let Ok(peer) = peer
    {
        complaints::say(peer, &format!("no TLS: {closed}"));
    }
    member.note_drained();
    if let Some(socket) = socket {
        linger(socket.into_socket()).await;
    }
    None
}

async fn linger(mut socket: TcpStream) {
    let mut discarded = [0; 1_024];
    let until_end = async {
        socket.shutdown().await?;
        while socket.read(&mut discarded).await? > 0 {}
        std::io::Result::Ok(())
    };
    // However it ends, the connection has.
    let _ = tokio::time::timeout(LINGER, until_end).await;
}
