//! The response to one request.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::time::sleep;

use super::body::Body;
use crate::admin::is_local_name;
use crate::config::Protocol;
use crate::front::Conditions;
use crate::front::http::{Answer, Head, Reply, answer};
use crate::server::net::rejections;
use crate::server::shard_thread::draw::draw;
use crate::server::shard_thread::thread_state::ThreadState;
use snowbank_client::protocol::ErrorCode;

/// The delay before a client learns that its token is wrong or missing. It holds one of few places meanwhile, so guesses are
/// slow.
const UNAUTHORIZED_DELAY: Duration = Duration::from_secs(1);

/// Answers the requests of one connection.
pub(super) struct Responder {
    thread: Rc<ThreadState>,
    /// Only this machine can reach the listener, without TLS: see [`is_local_name`].
    is_loopback: bool,
    /// The peer, and its address without the port.
    peer: (String, String),
    /// A request has had a right token, or none is asked for.
    authorized: Cell<bool>,
}

impl Responder {
    pub(super) fn new(thread: Rc<ThreadState>, is_loopback: bool, peer: (String, String)) -> Self {
        let authorized = Cell::new(thread.live_config.borrow().facts.tokens.is_none());
        Responder { thread, is_loopback, peer, authorized }
    }

    /// Returns true unless the client still owes a token.
    pub(super) fn is_authorized(&self) -> bool {
        self.authorized.get()
    }

    /// Returns the response to a request, which may have to wait for its IDs.
    pub(super) async fn respond(&self, request: &Request<Incoming>) -> Response<Body> {
        let headers = request.headers();
        if self.is_loopback && !headers.get(header::HOST).is_none_or(is_local_name) {
            return self.reply(Reply::misdirected());
        }
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let head = Head {
            method: request.method().as_str(),
            path: request.uri().path(),
            query: request.uri().query().unwrap_or_default(),
            accept: text(header::ACCEPT).unwrap_or_default(),
            token: bearer_of(headers),
            has_body: !request.body().is_end_stream(),
        };
        let (ask, listing) = match self.answer(&head) {
            Answer::Draw(ask, listing) => (ask, listing),
            Answer::Done(reply) => {
                if reply.error == Some(ErrorCode::Unauthorized) {
                    self.note_unauthorized().await;
                }
                return self.reply(reply);
            }
        };
        let runs = match draw(&self.thread, Protocol::Http, ask).await {
            Ok(runs) => runs,
            Err(words) => return response_of(Reply::of_words(&words)),
        };
        let content_type = listing.content_type();
        let live_config = self.thread.live_config.borrow();
        let source = Arc::clone(&live_config.supplies[ask.source].source);
        let rng = self.thread.turn.borrow_mut().rng.fork();
        let body = Body::of_ids((ask.source, source), &runs, *listing, rng);
        with_headers(StatusCode::OK, content_type, body)
    }

    fn answer(&self, head: &Head<'_>) -> Answer {
        let live_config = self.thread.live_config.borrow();
        let facts = &live_config.facts;
        if !self.authorized.get()
            && facts.tokens.as_ref().is_none_or(|all| head.token.is_some_and(|token| all.accepts(token)))
        {
            self.authorized.set(true);
        }
        let counts = || self.thread.common.metrics.counts_of(Protocol::Http);
        // A connection that the stop finds idle is closed, and any other after its answer.
        let conditions = Conditions { facts, draining: false, wall: self.thread.now().wall, counts: &counts };
        answer(head, &conditions, &|index| live_config.source(index).numbering())
    }

    /// Notes a request without a right token, and lets the client wait unless it has sent one before.
    async fn note_unauthorized(&self) {
        let (peer, origin) = &self.peer;
        rejections::log_unauthorized(
            peer.clone(),
            origin,
            "no token, or one that is not one of auth.token_file",
        );
        if !self.authorized.get() {
            sleep(UNAUTHORIZED_DELAY).await;
        }
    }

    /// Counts a reply without IDs, and returns it as a response.
    fn reply(&self, reply: Reply) -> Response<Body> {
        match reply.error {
            Some(code) => self.thread.counters.note_error(Protocol::Http, code),
            None => self.thread.counters.other_requests.add(1),
        }
        response_of(reply)
    }
}

/// Returns the token of `Authorization: Bearer`.
fn bearer_of(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn response_of(reply: Reply) -> Response<Body> {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = with_headers(status, reply.content_type, Body::whole(reply.body));
    let headers = response.headers_mut();
    if let Some(after) = reply.retry_after {
        // Whole seconds, rounded up; the body has milliseconds.
        headers
            .insert(header::RETRY_AFTER, HeaderValue::from(after.as_millis().div_ceil(1_000).max(1) as u64));
    }
    if let Some(methods) = reply.allow {
        headers.insert(header::ALLOW, HeaderValue::from_static(methods));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    // A body that is not read would be taken for the next request.
    if matches!(reply.error, Some(ErrorCode::Unauthorized | ErrorCode::Malformed | ErrorCode::ShuttingDown)) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Returns a response with the headers that every one has. No cache may ever hand out an ID again.
fn with_headers(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
