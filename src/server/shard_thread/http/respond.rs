//! The response to one request.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use rustls::pki_types::CertificateDer;
use tokio::time::sleep;

use super::body::Body;
use super::watched::Activity;
use crate::access::{Denial, Session, Shown};
use crate::admin::{foreign_site, host_of, is_local_name};
use crate::config::Protocol;
use crate::front::Conditions;
use crate::front::http::{Answer, Head, Reply, answer};
use crate::server::net::rejections;
use crate::server::net::socket_stream::SocketStream;
use crate::server::shard_thread::allocate::allocate;
use crate::server::shard_thread::authorization::{UNAUTHORIZED_DELAY, log_newcomer};
use crate::server::shard_thread::thread_state::ThreadState;
use snowbank_client::protocol::ErrorCode;

/// The answer to a client that has sent no token.
const NO_TOKEN: &str = "this daemon asks for a token; send it as Authorization: Bearer TOKEN";

/// Answers the requests of one connection.
pub(super) struct Responder {
    thread: Rc<ThreadState>,
    /// Only this machine can reach the listener, without TLS: see [`is_local_name`].
    is_loopback: bool,
    /// The peer, and its address without the port.
    peer: (String, String),
    /// The certificates that the client has shown, and the digest of the authorities that checked them. `None` without
    /// TLS.
    shown: Option<(Vec<CertificateDer<'static>>, u64)>,
    activity: Rc<Activity>,
    /// The identity of its client. `None` while a request waits for IDs.
    session: RefCell<Option<Session>>,
    /// True if a request was authorized, or needs no authorization.
    authorized: Cell<bool>,
    /// The refusal of a client is held back.
    is_delaying: Cell<bool>,
    /// A reload removed the client's token or certificate.
    revoked: Cell<Option<Denial>>,
}

impl Responder {
    pub(super) fn new(
        thread: Rc<ThreadState>,
        is_loopback: bool,
        (stream, activity): (&SocketStream, Rc<Activity>),
        session: Session,
    ) -> Self {
        let owned = |shown: Shown<'_>| {
            (shown.chain.iter().map(|one| one.clone().into_owned()).collect(), shown.checked_by)
        };
        Responder {
            thread,
            is_loopback,
            peer: (stream.peer(), stream.origin()),
            shown: stream.shown().map(owned),
            activity,
            authorized: Cell::new(session.is_authorized()),
            session: RefCell::new(Some(session)),
            is_delaying: Cell::new(false),
            revoked: Cell::new(None),
        }
    }

    /// Returns true unless the client still owes a token.
    pub(super) fn is_authorized(&self) -> bool {
        self.authorized.get()
    }

    /// The peer, and its address without the port.
    pub(super) fn peer(&self) -> &(String, String) {
        &self.peer
    }

    /// Returns true while the client waits only for its delayed refusal. Others may have its place.
    pub(super) fn is_delaying(&self) -> bool {
        self.is_delaying.get()
    }

    /// Follows a reload between two requests.
    ///
    /// # Errors
    /// The configuration no longer accepts the client's token or certificate, so the connection must be closed.
    pub(super) fn renew(&self) -> Result<(), Denial> {
        if let Some(denial) = self.revoked.get() {
            return Err(denial);
        }
        let renewed = self.follow_reload();
        self.revoked.set(renewed.err());
        renewed
    }

    fn follow_reload(&self) -> Result<(), Denial> {
        let live_config = self.thread.live_config.borrow();
        let mut session = self.session.borrow_mut();
        let Some(session) = session.as_mut().filter(|session| !session.is_of(live_config.version)) else {
            return Ok(());
        };
        let shown = self.shown.as_ref().map(|(chain, checked_by)| Shown { chain, checked_by: *checked_by });
        session.renew((&live_config.facts.access, live_config.version), shown)
    }

    /// Returns the response to a request, which may have to wait for its IDs.
    pub(super) async fn respond(&self, request: &Request<Incoming>) -> Response<Body> {
        let headers = request.headers();
        let host = match host_of(request.version(), headers) {
            Ok(host) => host,
            Err(text) => return self.reply(Reply::refusal(ErrorCode::Malformed, 400, &text, None)),
        };
        if self.is_loopback && !host.is_none_or(is_local_name) {
            return self.reply(Reply::misdirected());
        }
        if let Some((name, value)) = foreign_site(host, headers) {
            return self.reply(Reply::of_foreign_site(name.as_str(), value.as_bytes()));
        }
        let denial = self.denial_of(bearer_of(headers));
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let head = Head {
            method: request.method().as_str(),
            path: request.uri().path(),
            query: request.uri().query().unwrap_or_default(),
            accept: accept.unwrap_or_default(),
            denial: denial.as_deref(),
            has_body: !request.body().is_end_stream(),
        };
        let (ask, listing) = match self.answer(&head) {
            Answer::Draw(ask, listing) => (ask, listing),
            Answer::Done(reply) => {
                if reply.error == Some(ErrorCode::Unauthorized) {
                    self.note_unauthorized(head.denial).await;
                }
                return self.reply(reply);
            }
        };
        let Some(mut session) = self.session.take() else {
            unreachable!("a connection has one request at a time");
        };
        let allocated = allocate(&self.thread, &mut session, Protocol::Http, ask).await;
        self.session.replace(Some(session));
        let runs = match allocated {
            Ok(runs) => runs,
            Err(words) => return response_of(Reply::of_words(&words)),
        };
        let content_type = listing.content_type();
        let live_config = self.thread.live_config.borrow();
        let source = Arc::clone(&live_config.supplies[ask.source].source);
        let body = Body::of_ids((ask.source, source), &runs, *listing, (&self.thread, &self.activity));
        with_headers(StatusCode::OK, content_type, body)
    }

    /// Shows the token of a request. Returns why the client may not draw, if so.
    ///
    /// Each request brings its own token: a proxy sends requests of several clients on one connection.
    fn denial_of(&self, token: Option<&[u8]>) -> Option<String> {
        // If the previous request had another token, that one does not count for this request. If it had the same, the
        // identity stays connected.
        let has_same = |session: &Session| token.is_some_and(|token| session.has_shown(token));
        let is_same = self.session.borrow().as_ref().is_some_and(has_same);
        if !is_same && let Some(session) = self.session.borrow_mut().as_mut() {
            session.forget_token(&self.thread.live_config.borrow().facts.access);
        }
        if let Err(denial) = self.renew() {
            return Some(denial.to_string());
        }
        let live_config = self.thread.live_config.borrow();
        let (rules, mut session) = (&live_config.facts.access, self.session.borrow_mut());
        let Some(session) = session.as_mut() else {
            unreachable!("a connection has one request at a time");
        };
        if !is_same
            && let Some(token) = token
            && let Err(denial) = session.show_token(token, rules)
        {
            session.forget_token(rules);
            return Some(denial.to_string());
        }
        log_newcomer(session, || self.peer.0.clone());
        if !session.is_authorized() {
            return Some(String::from(NO_TOKEN));
        }
        self.authorized.set(true);
        None
    }

    fn answer(&self, head: &Head<'_>) -> Answer {
        let live_config = self.thread.live_config.borrow();
        let counts = || self.thread.common.metrics.counts_of(Protocol::Http);
        let mut session = self.session.borrow_mut();
        let Some(session) = session.as_mut() else {
            unreachable!("a connection has one request at a time");
        };
        let wall = self.thread.now().wall;
        // Not draining: a stop closes idle connections, and others after their answers.
        let conditions =
            Conditions { facts: &live_config.facts, session, draining: false, wall, counts: &counts };
        answer(head, &conditions, &|index| live_config.source(index).numbering())
    }

    /// Logs a request with a wrong or missing token. Delays the client unless an earlier request was authorized.
    async fn note_unauthorized(&self, denial: Option<&str>) {
        let (peer, origin) = &self.peer;
        rejections::log_unauthorized(peer.clone(), origin, denial.unwrap_or(NO_TOKEN));
        if !self.authorized.get() {
            self.is_delaying.set(true);
            sleep(UNAUTHORIZED_DELAY).await;
            self.is_delaying.set(false);
        }
        self.thread.counters.unauthorized_refusals.add(1);
    }

    /// Counts a reply without IDs, and returns it as a response.
    fn reply(&self, reply: Reply) -> Response<Body> {
        self.thread.counters.note_other(Protocol::Http, reply.error);
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
        headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
    }
    if let Some(methods) = reply.allow {
        headers.insert(header::ALLOW, HeaderValue::from_static(methods));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    // After these errors the connection serves nothing more.
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

/// Returns the whole seconds after which this time has passed, at least 1.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_try_again_is_never_too_short() {
        let of = |us| whole_seconds(Duration::from_micros(us));
        assert_eq!([0, 1, 1_000_000, 1_000_001, 1_999_999].map(of), [1, 1, 1, 2, 2]);
    }
}
