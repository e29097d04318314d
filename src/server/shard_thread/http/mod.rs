//! One connection of the HTTP door, on its shard's thread. A library parses heads and frames bodies, `front/http` decides
//! what is asked and answered, and [`draw`](super::draw) draws.
//!
//! - `respond`: the response to one request. `body`: its body, written as the client takes it.
//! - `watched`: a stream that notes when its peer stalls.

mod body;
mod respond;
mod watched;

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use hyper::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep_until};

use self::respond::Responder;
use self::watched::{Activity, Watched};
use super::member::Member;
use crate::access::{Denial, Session};
use crate::admin::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::server::net::lobby::{AUTHORIZED_WITHIN, Guest};
use crate::server::net::rejections;
use crate::server::net::socket_stream::SocketStream;

/// The end of a connection.
enum End {
    /// It was closed in order, or by an error of the peer.
    Closed,
    /// The peer left something half done, or was silent for longer than it may.
    Stalled,
    /// The peer sent bytes that are no request. The library has answered it with 400.
    Stranger,
    /// The client sent no token, and a newcomer needed its place.
    GaveWay,
    /// A reload took away what the client has shown.
    Revoked(Denial),
}

/// Serves one connection to its end. With a place in the lobby, the client owes a token. `is_loopback`: only this machine
/// can reach the listener, without TLS.
pub(super) async fn serve(
    stream: SocketStream,
    is_loopback: bool,
    mut member: Member,
    (session, mut guest): (Session, Option<Guest>),
) {
    let thread = Rc::clone(&member.thread);
    let activity = Rc::new(Activity::default());
    let responder = Responder::new(Rc::clone(&thread), is_loopback, (&stream, Rc::clone(&activity)), session);
    let service = service_fn(async |request: Request<hyper::body::Incoming>| {
        activity.begin_answer();
        let response = responder.respond(&request).await;
        activity.end_answer();
        Ok::<_, Infallible>(response)
    });
    let stream = TokioIo::new(Watched::new(stream, Rc::clone(&activity)));
    let connection = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    let entered = Instant::now();
    let gives_way = guest.as_ref().map(Guest::shown_out);
    let mut gives_way = pin!(async move {
        match gives_way {
            Some(shown_out) => shown_out.await,
            None => pending().await,
        }
    });
    let (mut timer, mut is_stopping) = (pin!(sleep_until(entered)), false);
    let end = poll_fn(|cx| {
        member.remember(cx.waker());
        if let Some(guest) = &mut guest {
            guest.note_heard();
        }
        // Before the next request is looked at.
        if !activity.is_answering()
            && let Err(denial) = responder.renew()
        {
            return Poll::Ready(End::Revoked(denial));
        }
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            let is_stranger = ended.is_err_and(|error| error.is_parse());
            return Poll::Ready(if is_stranger { End::Stranger } else { End::Closed });
        }
        // A client that connected just before the stop may have sent its first request.
        let may_speak = !activity.has_spoken() && thread.awaits_newcomers.get();
        if thread.draining.get() && !is_stopping && !may_speak {
            is_stopping = true;
            connection.as_mut().graceful_shutdown();
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(End::Closed);
            }
        }
        if responder.is_authorized() {
            guest = None;
        }
        if let Some(guest) = guest.as_mut().filter(|_| !activity.is_answering() || responder.is_delaying()) {
            guest.note_silent();
            if gives_way.as_mut().poll(cx).is_ready() {
                return Poll::Ready(End::GaveWay);
            }
        }
        let limits = thread.live_config.borrow().limits.clone();
        let owed = guest.as_ref().map(|_| entered + AUTHORIZED_WITHIN);
        let stalled = activity.deadline(limits.stall_timeout, limits.idle_timeout);
        let Some(deadline) = owed.into_iter().chain(stalled).min() else { return Poll::Pending };
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(cx).map(|()| End::Stalled)
    })
    .await;
    let (peer, origin) = responder.peer();
    match end {
        End::Stranger => rejections::log(
            peer,
            "bytes that are no HTTP request; give the client the address of the server that it looks for",
        ),
        End::Revoked(denial) => rejections::log(peer, &format!("after a reload: {denial}")),
        End::GaveWay => {
            let reason = "it sent no token, and a newcomer needed its place";
            rejections::log_unauthorized(peer, origin, reason);
        }
        End::Stalled if guest.is_some() => {
            rejections::log_unauthorized(peer, origin, "it sent no token within five seconds");
        }
        End::Stalled | End::Closed => {}
    }
    member.note_drained();
}
