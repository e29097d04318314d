//! One connection of the HTTP door, on its shard's thread. A library parses heads and frames bodies, `front/http` decodes
//! requests and decides answers, and [`allocate`](super::allocate) has the IDs.
//!
//! - `respond`: the response to one request. `body`: its body, written as the client takes it.
//! - `attend`: decides when the connection has a turn, and when it ends. `turn_cost`: the cost of that turn.
//! - `watched`: a stream that notes when its peer stalls.

mod attend;
mod body;
mod respond;
mod turn_cost;
mod watched;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use self::attend::{Attendant, End};
use self::respond::Responder;
use self::watched::{Activity, Watched};
use super::authorization;
use super::member::Member;
use super::thread_state::ThreadState;
use crate::access::Session;
use crate::admin::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::config::Protocol;
use crate::front::http::describe_stranger;
use crate::server::net::lobby::Guest;
use crate::server::net::rejections;
use crate::server::net::socket_stream::SocketStream;
use snowbank_client::protocol::ErrorCode;

/// Serves one connection to its end. With a place in the lobby, the client owes a token. `is_loopback`: only this machine
/// can reach the listener, without TLS.
pub(super) async fn serve(
    stream: SocketStream,
    is_loopback: bool,
    member: Member,
    (session, guest): (Session, Option<Guest>),
) {
    let thread = Rc::clone(&member.thread);
    let activity = Rc::new(Activity::default());
    let responder = Responder::new(Rc::clone(&thread), is_loopback, (&stream, Rc::clone(&activity)), session);
    let service = service_fn(async |request: Request<Incoming>| {
        activity.begin_answer();
        poll_fn(|cx| activity.cost.poll_request(cx)).await;
        let response = responder.respond(&request).await;
        activity.end_answer();
        Ok::<_, Infallible>(response)
    });
    let stream = TokioIo::new(Watched::new(stream, Rc::clone(&activity), Rc::clone(&thread)));
    let connection = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    let mut attendant = Attendant::new(member, (&activity, &responder), guest);
    let end = poll_fn(|cx| attendant.poll(connection.as_mut(), cx)).await;
    if matches!(end, End::Stalled) {
        activity.give_up(thread.live_config.borrow().limits.stall_timeout);
    }
    log_end(&thread, responder.peer(), (end, &activity));
}

fn log_end(thread: &ThreadState, (peer, origin): &(String, String), (end, activity): (End, &Activity)) {
    match end {
        End::Stranger => {
            thread.counters.note_other(Protocol::Http, Some(ErrorCode::Malformed));
            rejections::log(peer, &describe_stranger(&activity.first_bytes()));
        }
        End::TooLong => {
            thread.counters.note_other(Protocol::Http, Some(ErrorCode::Malformed));
            let text =
                format!("a request's head of more than {HEAD_BYTES_MAX} bytes or {HEADERS_MAX} headers");
            rejections::log(peer, &text);
        }
        End::Revoked(denial) => authorization::log_revoked(peer, denial),
        End::NoToken(why) => authorization::note_no_token(thread, (peer, origin), why),
        End::Stalled | End::Closed => {}
    }
}
