//! The front end for HTTP/1.1. It turns the head of a request into a request for IDs, and turns IDs
//! and refusals into a response.
//!
//! - `head`: the head of a request, which a library parses.
//! - `route`: the paths: Snowbank's own (`/v1/…`), katsubushi's and Leaf's. `query`: the parameters
//!   of a request.
//! - `listing`: IDs as a body. `reply`: every other body, and refusals. `response`: the bytes of a
//!   response.
//! - `lookup`: answers to requests that draw no IDs, such as the fields of a given ID.
//!
//! No request needs a body. A request with a body is refused, unless it asks for the OpenAPI
//! description. The connection closes after every request with a body.

mod head;
mod listing;
mod lookup;
mod query;
mod reply;
mod response;
mod route;

use std::time::Duration;

use self::head::{Head, Parsed};
use self::listing::Listing;
use self::reply::Reply;
use self::response::Body;
use self::route::answer;
use super::refusals::{STOPPING, Words};
use super::{About, Ask, Conditions, Facts, FrameIds, FrameLimit, FrontEnd, Gets, Step, foreign};
use crate::config::Protocol;
use crate::web::{HEAD_BYTES_MAX, MISDIRECTED, head_too_long, in_line, is_local_name};
use snowbank_id::layout::UnixMicros;
use snowbank_wire::{ErrorCode, MAX_REPLY_SIZE};

/// The facts that the daemon needs about this front end.
pub(super) const ABOUT: About = About {
    client: "an HTTP client",
    listener: "a listener for clients of HTTP",
    address: "an address of [http] or [admin], or of the server that it looks for",
    recognises: is_http,
    refuse_connection,
};

/// The first four bytes of a request, for each method.
const METHODS: [&[u8; 4]; 9] =
    [b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC"];

/// Returns true for bytes that begin with a method of HTTP. A command of Redis or memcached can begin
/// with the same letters, so on their listeners the whole line decides.
fn is_http(bytes: &[u8], listener: Protocol) -> bool {
    match listener {
        Protocol::Resp | Protocol::Memcached => is_line_of_head(bytes),
        _ => METHODS.iter().any(|method| bytes.starts_with(*method)),
    }
}

fn is_version(word: &[u8]) -> bool {
    word.strip_prefix(b"HTTP/").and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit)
}

/// Returns true if a line begins the head of a request, whatever its method. Also true for the
/// words by which Redis knows HTTP. A page of a browser could otherwise send commands in a body.
pub(super) fn is_line_of_head(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let first = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let last = line.rsplit(u8::is_ascii_whitespace).next().unwrap_or_default();
    [&b"post"[..], b"host:"].iter().any(|word| first.eq_ignore_ascii_case(word)) || is_version(last)
}

/// The most bytes of one ID in a body. With a dictionary of two characters, it has 63 digits, each
/// escaped by JSON as two bytes. Two quotes and a comma follow.
const ID_BYTES_MAX: usize = 2 * 63 + 3;

/// The most bytes of a response's head together with what surrounds the IDs of its body.
const HEAD_AND_ENDS_BYTES_MAX: usize = 512;

/// The most runs and IDs in one chunk of a body.
const CHUNK: FrameLimit =
    FrameLimit { runs: usize::MAX, ids: ((MAX_REPLY_SIZE - HEAD_AND_ENDS_BYTES_MAX) / ID_BYTES_MAX) as u64 };

/// The answer to a client that has sent no token.
const NO_TOKEN: &str = "this daemon asks for a token; send it as Authorization: Bearer TOKEN";

/// The answer to a request.
enum Answer {
    /// The request asks for IDs.
    Ids(Ask, Box<Listing>),
    /// The reply is complete.
    Done(Reply),
}

/// The parts of a request that its response needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    takes_chunks: bool,
    keeps_connection: bool,
    /// False if the request asks for several IDs.
    is_for_one: bool,
    /// The wall clock when the request was read.
    date: Option<UnixMicros>,
}

/// The state of the protocol on one connection.
#[derive(Debug, Default)]
pub struct Http {
    /// The number of requests so far.
    requests: usize,
    /// True if the connection ends at a loopback address, and has no TLS: see [`is_local_name`].
    is_loopback: bool,
    /// The form of the body that lists the IDs of the last request. `None` once the body is
    /// complete.
    listing: Option<Box<Listing>>,
    /// True once a response has said that the connection closes.
    is_over: bool,
    /// True if the next reply is the last.
    ends: bool,
    gets: Gets,
    /// True once the client of an unfinished request was told to send its body.
    has_continued: bool,
}

/// The answer to a client that asks before it sends a body. Its body may be empty.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl Http {
    /// The cost of a request apart from the bytes of its head. The unit is a byte of Snowbank's own
    /// small requests, which costs 12 ns. When measured, a request took 0.4 µs, plus 0.6 to 0.9 ns
    /// for each byte of its head.
    pub(crate) const REQUEST_COST_BYTES: usize = 40;

    /// Tells a client that asked to send its body, once.
    fn give_leave(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_continued, true) {
            out.extend_from_slice(CONTINUE);
        }
    }

    fn request(
        &mut self,
        head: &Head<'_>,
        size: usize,
        conditions: &mut Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        self.requests += 1;
        self.has_continued = false;
        // The last response before a stop says that no request may follow, so that the client opens
        // another connection. Requests that arrive while this request waits get no answer.
        let is_last = head.body.is_some() || conditions.is_stopping && !head.has_next;
        let refusal = self.refusal(head, conditions);
        // The connection ends if the head shows that the client may not ask. A client that owes a token
        // would have to send it within seconds, so a check of a load balancer ends it, too.
        let is_last = is_last || refusal.is_some() || !conditions.session.is_authorized();
        let form = Form {
            takes_chunks: head.takes_chunks,
            keeps_connection: head.keeps_connection && !is_last,
            is_for_one: true,
            date: Some(conditions.wall),
        };
        let answer = match refusal {
            Some(refusal) => Answer::Done(refusal),
            None => {
                self.gets.commands += u64::from(route::is_get(head));
                answer(head, conditions).unwrap_or_else(Answer::Done)
            }
        };
        match answer {
            // A reply to HEAD has no body, so IDs would be lost.
            Answer::Ids(_, listing) if head.method == "HEAD" => {
                let reply = Reply::with_body(listing.content_type(), String::new());
                reply.encode(out, Body::InPieces, form);
                self.is_over = !form.keeps_connection;
                Step::Answered { consumed: size, error: None }
            }
            Answer::Ids(ask, listing) if !conditions.draining => {
                self.listing = Some(listing);
                Step::Ids { consumed: size, ask, form: Form { is_for_one: ask.count == 1, ..form } }
            }
            Answer::Ids(..) => {
                let refusal = Reply::refusal(ErrorCode::ShuttingDown, 503, STOPPING, None);
                self.reply(out, &refusal, head.method, form);
                Step::Close { error: refusal.error }
            }
            Answer::Done(reply) => {
                self.reply(out, &reply, head.method, form);
                if reply.closes() || conditions.rejection.is_some() {
                    return Step::Close { error: reply.error };
                }
                Step::Answered { consumed: size, error: reply.error }
            }
        }
    }

    /// Returns the refusal of a request that this client may not make. If tokens are required,
    /// every request needs a token, except those of load balancers and for the OpenAPI description.
    fn refusal(&self, head: &Head<'_>, conditions: &mut Conditions<'_>) -> Option<Reply> {
        if let Some((status, reason)) = self.fault(head) {
            let reply = Reply::refusal(ErrorCode::Malformed, status, &reason, None);
            conditions.rejection = Some(reason);
            return Some(reply);
        }
        let denial = show_token(head.token, conditions);
        // A wrong token is refused on every path.
        let denial = denial.filter(|_| head.token.is_some() || !route::is_open(head));
        let (code, status, reason) = match denial {
            Some(denial) => (ErrorCode::Unauthorized, 401, denial),
            None => (ErrorCode::Malformed, 400, route::body_fault(head)?),
        };
        let reply = Reply::refusal(code, status, &reason, None);
        conditions.rejection = Some(reason);
        Some(reply)
    }

    /// Returns the status and the reason if a request with these headers gets no IDs from anybody.
    fn fault(&self, head: &Head<'_>) -> Option<(u16, String)> {
        if let Err(bad) = head.site.check(!head.takes_chunks).and_then(|()| head.check_authorization()) {
            return Some((400, bad.to_string()));
        }
        // A script of another site could read the answer (DNS rebinding). A load balancer's check may name
        // any site.
        if self.is_loopback && !head.site.host.is_none_or(is_local_name) && !route::is_check(head) {
            return Some((421, MISDIRECTED.to_owned()));
        }
        // A browser sent it for a page of another site.
        let (header, value) = head.site.foreign_site()?;
        let value = in_line(value);
        let allowed = "allowed: pages of this address; send the request from that page's server";
        Some((403, format!("found {header}: \"{value}\", {allowed}")))
    }

    /// Encodes a complete reply.
    fn reply(&mut self, out: &mut Vec<u8>, reply: &Reply, method: &str, form: Form) {
        let body = if method == "HEAD" {
            Body::Left(reply.body.as_bytes())
        } else {
            Body::Whole(reply.body.as_bytes())
        };
        let keeps_connection = form.keeps_connection && !reply.closes() && !self.ends;
        reply.encode(out, body, Form { keeps_connection, ..form });
        self.is_over = !keeps_connection;
    }

    /// Refuses bytes that are no request, and closes the connection.
    fn reject(out: &mut Vec<u8>, status: u16, conditions: &mut Conditions<'_>, reason: String) -> Step<Form> {
        let refusal = Reply::refusal(ErrorCode::Malformed, status, &reason, None);
        let date = Some(conditions.wall);
        let form = Form { takes_chunks: true, keeps_connection: false, is_for_one: true, date };
        refusal.encode(out, Body::Whole(refusal.body.as_bytes()), form);
        conditions.rejection = Some(reason);
        Step::Close { error: Some(ErrorCode::Malformed) }
    }
}

/// Gives the token of a request to the session. Returns the reason if the client gets no IDs.
///
/// Each request brings its own token, because a proxy may send requests of several clients on one
/// connection.
fn show_token(token: Option<&[u8]>, conditions: &mut Conditions<'_>) -> Option<String> {
    let session = &mut *conditions.session;
    let rules = &conditions.facts.access;
    // The token of the previous request does not count for this one. If both requests have the same
    // token, the identity stays connected.
    if !token.is_some_and(|token| session.has_shown(token)) {
        session.forget_token(rules);
        if let Some(token) = token
            && let Err(denial) = session.show_token(token, rules)
        {
            session.forget_token(rules);
            return Some(denial.to_string());
        }
    }
    (!session.is_authorized()).then(|| String::from(NO_TOKEN))
}

impl FrontEnd for Http {
    const PROTOCOL: Protocol = Protocol::Http;

    const TOKEN_MESSAGE_BYTES_MAX: usize = HEAD_BYTES_MAX;

    const BYTES_OF_COST: usize = 16;

    type Form = Form;

    fn at_loopback(self) -> Self {
        Http { is_loopback: true, ..self }
    }

    fn step(&mut self, bytes: &[u8], conditions: &mut Conditions<'_>, out: &mut Vec<u8>) -> Step<Form> {
        self.gets.report(conditions);
        if self.is_over {
            return Step::Close { error: None };
        }
        match head::parse(bytes) {
            Parsed::Incomplete => Step::Incomplete,
            Parsed::Expects => {
                self.give_leave(out);
                Step::Incomplete
            }
            Parsed::Head(head, size) => {
                // Also if the body came along, so that the replies do not depend on the reads.
                if head.expects {
                    self.give_leave(out);
                }
                self.request(&head, size, conditions, out)
            }
            Parsed::TooLong => Http::reject(out, 431, conditions, head_too_long()),
            Parsed::Bad(fault) => {
                let reason = foreign::known(bytes, Protocol::Http);
                let reason = reason
                    .unwrap_or_else(|| format!("a client that sent no valid request of HTTP/1: {fault}"));
                Http::reject(out, 400, conditions, reason)
            }
        }
    }

    fn has_kept_requests(&self) -> bool {
        self.is_over
    }

    fn end_with_next_reply(&mut self) {
        self.ends = true;
    }

    fn extra_cost_bytes(&self) -> usize {
        self.requests * Http::REQUEST_COST_BYTES
    }

    /// Returns 0, because clients of HTTP seldom pipeline requests.
    fn demand(&self, _bytes: &[u8], _source: usize, _facts: &Facts) -> u64 {
        0
    }

    fn frame_limit(&self, _form: Form, _needs_list: bool) -> FrameLimit {
        CHUNK
    }

    fn encode_ids(&mut self, out: &mut Vec<u8>, form: Form, ids: &FrameIds<'_>, rng: &mut fastrand::Rng) {
        let Some(mut listing) = self.listing.take() else { unreachable!("a request for IDs has a listing") };
        self.gets.record(ids);
        let mut body = Vec::new();
        listing.write(ids.ids(rng), !ids.more, &mut body);
        let is_whole = ids.reply_count.is_some() && !ids.more;
        let keeps_connection = form.keeps_connection && !self.ends && (is_whole || form.takes_chunks);
        if ids.reply_count.is_some() {
            let body = if is_whole { Body::Whole(&body) } else { Body::InPieces };
            let reply = Reply::with_body(listing.content_type(), String::new());
            reply.encode(out, body, Form { keeps_connection, ..form });
        }
        if !is_whole {
            response::encode_piece(out, &body, form.takes_chunks, !ids.more);
        }
        if ids.more {
            self.listing = Some(listing);
        } else {
            self.is_over = !keeps_connection;
        }
    }

    /// Encodes nothing: HTTP has no farewell.
    fn farewell(&mut self, _out: &mut Vec<u8>, _words: &Words) {}

    fn refuse(&mut self, out: &mut Vec<u8>, form: Form, words: &Words) {
        self.listing = None;
        self.gets.misses += 1;
        self.reply(out, &Reply::from_words(words, form.is_for_one), "GET", form);
    }
}

/// Encodes the refusal of a connection when the daemon has reached its connection limit.
fn refuse_connection(out: &mut Vec<u8>, message: &str) {
    let refusal = Reply::refusal(ErrorCode::TooBusy, 503, message, Some(Duration::from_secs(1)));
    let form = Form { takes_chunks: true, keeps_connection: false, is_for_one: true, date: None };
    refusal.encode(out, Body::Whole(refusal.body.as_bytes()), form);
}
