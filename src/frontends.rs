//! Front ends: they parse bytes into requests, and encode IDs and refusals into bytes.
//!
//! A front end knows its protocol and nothing of sockets, shards or clocks. A
//! [connection](crate::server) drives the front end. The connection passes on the received bytes,
//! allocates the IDs that a request asks for, and lets the front end encode them.
//!
//! # A new front end
//!
//! 1. Its row and its settings in `config/protocols.rs`. The option, listeners, inherited sockets,
//!    TLS, metrics and the reference of settings follow from the row.
//! 2. A file here: its `ABOUT`, and the type that implements [`FrontEnd`]. Begin with a copy of
//!    `noeqd.rs` (binary, without errors) or of `memcached.rs` (lines, with errors).
//! 3. Its `mod` line below, and its arms in `registry.rs`.
//!
//! The compiler and `cargo test` then name what the tests of the new front end need: non-default
//! values of its settings, a row in `tests/daemon/front_ends.rs`, its longest frame in `tests.rs`.
//! The following is easy to forget:
//!
//! - its fuzz target (`fuzzing.rs`; CONTRIBUTING.md has the steps);
//! - its client in the load test (a file and a row of `loadtest/src/frontend.rs`, its option in
//!   `cli/load.rs`, and a row in the tests of each);
//! - a test of its bytes, such as `tests/daemon/frontend_noeqd.rs`, and its clients in the
//!   `FOREIGN` rows of `front_ends.rs`;
//! - its section in docs/frontends.md, and CHANGELOG.md.
//!
//! # Modules
//!
//! - `registry`: the front end of each protocol.
//! - `statistics`: the statistics of katsubushi, counted by its rules.
//! - `exact`: numbers that JavaScript reads exactly, and the form of all others.
//! - `facts`: the facts about the daemon that front ends use.
//! - `refusals`: the reasons of refusals, in the same words for every protocol.
//! - `foreign`: names for clients that speak another protocol.

mod exact;
mod facts;
mod foreign;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod http;
mod memcached;
mod native;
mod noeqd;
mod redis_info;
mod refusals;
mod registry;
mod resp;
mod statistics;

pub use exact::{IdForm, IncrConnections};
pub use facts::Facts;
pub use http::Http;
pub use memcached::Memcached;
pub use native::{Form, Native};
pub use noeqd::Noeqd;
pub use refusals::{Reason, Words, in_words, no_grant, removed};
pub(crate) use registry::WithFrontEnd;
pub use resp::Resp;
pub use statistics::{GetCounters, Gets};

use std::fmt::Debug;
use std::time::Duration;

use crate::access::{Denial, Session};
use crate::config::Protocol;
use snowbank_core::source::LastNumber;
use snowbank_id::layout::{Run, UnixMicros};
use snowbank_wire::{ErrorCode, MAX_REQUEST_SIZE};

/// The parts of a front end that the rest of the daemon uses.
pub(crate) struct About {
    /// A client of the protocol, in messages: `a Redis client`.
    pub(crate) client: &'static str,
    /// A listener of the protocol, in messages: `a listener for clients of Redis`.
    pub(crate) listener: &'static str,
    /// The address that a client of the protocol should have, if it came to another listener.
    pub(crate) address: &'static str,
    /// Returns true if a client that sends these first bytes to a listener of the given protocol
    /// speaks this protocol.
    pub(crate) recognises: fn(&[u8], Protocol) -> bool,
    /// Encodes the refusal of a connection above the daemon's connection limit. Encodes nothing if
    /// the protocol has no message for refusals.
    pub(crate) refuse_connection: fn(&mut Vec<u8>, &str),
}

/// The most bytes of one message. A connection keeps no more of an unfinished message, however much
/// its client sends. A front end may allow less.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The most pipelined requests that a front end parses to estimate their demand. Few clients
/// pipeline more. The estimate must cost less than the claim that it saves.
const LOOK_AHEAD: usize = 64;

/// A request for IDs, whatever its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The index of an existing source.
    pub source: usize,
    /// The number of IDs, within the daemon's limit.
    pub count: u64,
    /// The longest wait. `None`: the daemon's default.
    // Not a `Duration`: few requests wait, and all would pay for the conversion.
    pub wait_ms: Option<u32>,
    /// True if fewer IDs, at least one, are accepted at the end of the wait.
    pub partial: bool,
}

impl Ask {
    /// Creates a request for all of these IDs within the daemon's default wait.
    #[inline]
    fn new(source: usize, count: u64) -> Self {
        Ask { source, count, wait_ms: None, partial: false }
    }

    /// Returns the number of IDs in the reply with these runs.
    #[inline]
    pub fn count_in(&self, runs: &[Run]) -> u64 {
        if self.partial { ids_in(runs) } else { self.count }
    }
}

/// Returns the number of IDs in these runs.
// Not inlined: few requests call it, and inlining would make all others save more registers.
#[inline(never)]
fn ids_in(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

/// The conditions under which a message is answered.
pub struct Conditions<'f> {
    /// The facts about the daemon.
    pub facts: &'f Facts,
    /// The client's session. It takes the token that the client shows. No request draws IDs before
    /// the session is authorized.
    pub session: &'f mut Session,
    /// True if requests for IDs are refused because the daemon stops.
    pub draining: bool,
    /// True if the daemon stops, or has announced that it will. If nothing follows a message, its reply
    /// is then the connection's last.
    pub is_stopping: bool,
    /// The wall clock's reading of this turn.
    pub wall: UnixMicros,
    /// Counts connections by the form of IDs in replies to increments.
    pub incr_connections: &'f IncrConnections,
    /// The daemon around the front end.
    pub daemon: &'f dyn Daemon,
    /// The reason, for the log, why a message closes its connection, if the peer is at fault. It is
    /// not in [`Step`], so that a step stays in registers.
    pub rejection: Option<String>,
}

/// The most bytes that the clock adds to the JSON of INFO.
pub const CLOCK_BYTES_MAX: usize = 40;

impl Conditions<'_> {
    /// Gives the session the token that the client shows. Keeps the reason of a refusal for the
    /// log.
    fn show_token(&mut self, token: &[u8]) -> Result<(), Denial> {
        let shown = self.session.show_token(token, &self.facts.access);
        self.rejection = shown.err().map(|denial| denial.to_string());
        shown
    }

    /// Returns the JSON of INFO for this client, with the wall clock. It has the last numbers of
    /// the ticket sources that the client may draw from.
    fn info_json(&self) -> Vec<u8> {
        let identity = self.session.identity();
        let made = identity.map_or(&self.facts.info_json, |identity| &identity.info_json);
        // This leaves the closing brace out, so that another member can follow.
        let made = String::from_utf8_lossy(&made[..made.len() - 1]);
        let mut tickets = self.facts.tickets();
        let mut json = String::with_capacity(made.len() + CLOCK_BYTES_MAX);
        for (at, part) in made.split(TICKET).enumerate() {
            if at > 0 {
                json += TICKET;
                let last = tickets.next().and_then(|source| self.last_number(source).ok());
                if let Some(LastNumber { number, is_exact }) = last {
                    // As text, because JavaScript's integers end at 2^53.
                    json += &format!(",\"last\":\"{number}\",\"last_is_exact\":{is_exact}");
                }
            }
            json += part;
        }
        json += &format!(",\"clock_unix_ms\":{}}}", self.wall.0.div_euclid(1_000));
        json.into_bytes()
    }

    /// Returns whether JavaScript reads the next ID of a source exactly.
    fn is_exact(&self, source: usize) -> bool {
        let is_ticket = self.facts.layout(source).is_none();
        let is_high = || self.last_number(source).is_ok_and(|last| last.number >= exact::EXACT_MAX);
        self.facts.has_exact_ids(source) && !(is_ticket && is_high())
    }

    /// Returns the last number of a ticket source: see [`Source::last_number`].
    ///
    /// # Errors
    /// The client may not draw from the source, or the source hands out nothing now.
    ///
    /// [`Source::last_number`]: snowbank_core::source::Source::last_number
    fn last_number(&self, source: usize) -> Result<LastNumber, Words> {
        let name = &self.facts.sources[source];
        if !self.session.may_draw(source) {
            return Err(in_words(Reason::Denied, self.session.name(), name, None, false));
        }
        self.daemon.last_number(source).ok_or_else(|| no_grant(name, None))
    }
}

/// What INFO has of a ticket source, and of no other. The last number follows it.
const TICKET: &str = "\"kind\":\"ticket\"";

/// What front ends ask of the daemon around them.
pub trait Daemon {
    /// Appends a WELCOME frame with this tag, for a client of Snowbank's own protocol.
    fn welcome(&self, tag: u16, out: &mut Vec<u8>);

    /// Returns the counts of a protocol, for its clients that ask for statistics.
    fn counts_of(&self, _protocol: Protocol) -> Counts {
        Counts::default()
    }

    /// Returns the last number of a ticket source. `None` while the source hands out nothing, and for
    /// other sources.
    fn last_number(&self, _source: usize) -> Option<LastNumber> {
        None
    }

    /// Adds to the gets of all protocols, if anything keeps them.
    fn add_gets(&self, _gets: Gets) {}
}

/// The counts of one protocol since the daemon's start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// The time since the start.
    pub uptime: Duration,
    /// The connections that are open.
    pub open: u64,
    /// All connections that were accepted.
    pub accepted: u64,
    /// The gets of all protocols.
    pub gets: Gets,
}

/// The result of parsing the first message in a buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<F> {
    /// The message is not complete yet. HTTP may have encoded leave to send the rest.
    Incomplete,
    /// Bytes to which there is no reply, such as a part of a refused value.
    Skipped {
        /// The number of bytes.
        consumed: usize,
    },
    /// The message needed no IDs, and its reply is encoded.
    Answered {
        /// As in [`Step::Ids`].
        consumed: usize,
        /// The error code, if the reply is an error.
        error: Option<ErrorCode>,
    },
    /// The message asks for IDs.
    Ids {
        /// The size of the message in bytes; 0 for a request that was kept from an earlier message.
        consumed: usize,
        /// The request.
        ask: Ask,
        /// The form of the reply.
        form: F,
    },
    /// The token is wrong, and the refusal is encoded. The connection closes soon. Until then, what
    /// the client sends is only refused.
    Denied {
        /// As in [`Step::Ids`].
        consumed: usize,
    },
    /// The last reply is encoded. The connection must be closed after it is sent.
    Close {
        /// The error code, if the reply is an error.
        error: Option<ErrorCode>,
    },
}

/// One protocol on one connection. `default` returns the state of a new connection.
pub trait FrontEnd: Default {
    /// The protocol.
    const PROTOCOL: Protocol;

    /// The most bytes of a message with a token. A pending connection keeps no more bytes.
    const TOKEN_MESSAGE_BYTES_MAX: usize = MAX_REQUEST_SIZE;

    /// The number of this protocol's request bytes that cost as much as one byte of a small request
    /// in Snowbank's own protocol.
    const BYTES_OF_COST: usize = 1;

    /// The details of a request that the front end needs to encode its reply.
    type Form: Copy + Debug;

    /// Tells the front end that its connection ends at a loopback address, and has no TLS.
    fn at_loopback(self) -> Self {
        self
    }

    /// Parses the first message of `bytes`. If the message needs no IDs, appends the reply to
    /// `out`. A message that does not end within [`MESSAGE_BYTES_MAX`] bytes is refused, never
    /// incomplete.
    fn step(&mut self, bytes: &[u8], conditions: &mut Conditions<'_>, out: &mut Vec<u8>) -> Step<Self::Form>;

    /// Returns how many bytes of requests the front end keeps, for the budget of all connections.
    fn kept_bytes(&self) -> usize {
        0
    }

    /// Returns the number of the message of which a part was dropped and the rest is still to come.
    /// It counts from 1, and is 0 if there is none. The connection keeps no byte of such a message.
    fn unfinished(&self) -> u64 {
        0
    }

    /// Returns true while an earlier message needs another [`step`](FrontEnd::step). That step
    /// ignores `bytes`: it answers the next request of the message, or closes the connection.
    fn has_kept_requests(&self) -> bool {
        false
    }

    /// Tells the front end that the daemon stops, and that nothing follows the request that waits
    /// for its IDs. So its reply can say that the connection closes.
    fn end_with_next_reply(&mut self) {}

    /// Returns what the connection's requests have cost so far, apart from their bytes. The unit is
    /// one byte of a small request in Snowbank's own protocol. The cost never falls.
    /// A front end needs this if a request can cost more than its bytes say, such as a request of
    /// a single byte.
    fn extra_cost_bytes(&self) -> usize {
        0
    }

    /// Estimates how many IDs of this source the messages in `bytes` ask for.
    fn demand(&self, bytes: &[u8], source: usize, facts: &Facts) -> u64;

    /// Counts the messages that follow the first one in `bytes` and equal it, at most `most()`. The
    /// first message has this size, and its reply this form. Returns 0 unless it asks for one ID.
    /// Each counted message gets one too, perhaps encoded with the first reply. May count fewer.
    #[inline]
    fn alike(&self, _bytes: &[u8], _size: usize, _form: Self::Form, _most: impl FnOnce() -> usize) -> usize {
        0
    }

    /// Returns the most that one frame of a reply holds.
    fn frame_limit(&self, form: Self::Form, needs_list: bool) -> FrameLimit;

    /// Encodes one frame of IDs, which are within [`frame_limit`](FrontEnd::frame_limit).
    fn encode_ids(
        &mut self,
        out: &mut Vec<u8>,
        form: Self::Form,
        ids: &FrameIds<'_>,
        rng: &mut fastrand::Rng,
    );

    /// Encodes the reason why the connection is closed. It is sent after the connection's last
    /// reply.
    fn farewell(&mut self, out: &mut Vec<u8>, words: &Words);

    /// Encodes a refusal.
    fn refuse(&mut self, out: &mut Vec<u8>, form: Self::Form, words: &Words);
}

/// The most that one frame holds. A full frame of any front end has at most
/// [`MAX_REPLY_SIZE`](snowbank_wire::MAX_REPLY_SIZE) bytes, which bounds the queue of a
/// slow reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimit {
    /// The most runs.
    pub runs: usize,
    /// The most IDs.
    pub ids: u64,
}

/// A number of IDs of one run that fits into any frame of any front end, even a small one.
pub const FEW_IDS: u32 = 8;

/// A full frame holds this many times as much as a small frame.
const SMALL_FRAME_PART: usize = 24;

impl FrameLimit {
    /// Returns the limit of a small frame: about three KiB.
    #[cold]
    pub fn small(self) -> FrameLimit {
        FrameLimit { runs: self.runs / SMALL_FRAME_PART, ids: self.ids / SMALL_FRAME_PART as u64 }
    }

    /// Returns whether all runs fit into one frame.
    #[inline]
    pub fn fits(&self, runs: &[Run]) -> bool {
        runs.len() <= self.runs && (self.ids == u64::MAX || ids_in(runs) <= self.ids)
    }
}

/// The IDs of one frame of a reply.
#[derive(Clone, Copy, Debug)]
pub struct FrameIds<'a> {
    /// The runs, increasing.
    pub runs: &'a [Run],
    /// The random fields as (size, weight). Each ID gets its own random value in each field.
    pub random: &'a [(u64, u64)],
    /// True if runs on the wire cannot express these IDs.
    pub needs_list: bool,
    /// In the reply's first frame, the number of IDs of the whole reply; in later frames, `None`.
    pub reply_count: Option<u64>,
    /// True if another frame of the reply follows.
    pub more: bool,
}

impl FrameIds<'_> {
    /// Returns the IDs, with random values in their random fields.
    pub fn ids(&self, rng: &mut fastrand::Rng) -> impl Iterator<Item = u64> {
        self.runs
            .iter()
            .flat_map(Run::ids)
            .map(move |id| self.random.iter().fold(id, |id, &(size, weight)| id + rng.u64(..size) * weight))
    }
}

#[cfg(test)]
mod tests;
