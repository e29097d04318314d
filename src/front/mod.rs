//! Front-ends: bytes to what is asked, and what is granted back to bytes.
//!
//! A front-end knows its protocol and nothing of sockets, shards or clocks. [`connection`](crate::server) drives it: hands
//! it the bytes at hand, takes the IDs that it asks for, and has it encode them.

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod native;

pub use native::Native;

use std::time::Duration;

use crate::config::Tokens;
use crate::source::wait_queue::Refusal;
use snowbank_client::layout::Run;
use snowbank_client::protocol::ErrorCode;

/// What front-ends tell clients about the daemon, and hold requests against.
#[derive(Debug)]
pub struct Facts {
    /// The JSON of an INFO reply.
    pub info_json: Vec<u8>,
    /// The most IDs per request.
    pub max_count: u32,
    /// How many sources there are.
    pub sources: usize,
    /// The tokens, one of which a client must send first; `None`: none is asked for.
    pub tokens: Option<Tokens>,
}

/// A request for IDs, whatever its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The index of the source; it exists.
    pub source: usize,
    /// How many IDs, within the daemon's limit.
    pub count: u64,
    /// How long it may wait; `None`: the daemon's default.
    pub wait: Option<Duration>,
    /// Whether fewer are welcome if the wait ends first.
    pub partial: bool,
    /// How the reply is to look; only the front-end reads it.
    pub form: Form,
}

/// What a front-end needs to know again when it encodes the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The client's tag.
    pub tag: u16,
    /// Every ID, not runs.
    pub explicit: bool,
}

/// What the first message in a buffer amounts to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It is not all there yet.
    Incomplete,
    /// It took so many bytes, and its reply is encoded.
    Answered {
        /// Bytes of the message.
        consumed: usize,
        /// The error that the reply is, if it is one.
        error: Option<ErrorCode>,
    },
    /// It took so many bytes and wants IDs.
    Ids {
        /// Bytes of the message.
        consumed: usize,
        /// What it asks.
        ask: Ask,
    },
    /// The last reply is encoded; the connection is to be closed after it.
    Close {
        /// The error that the reply is, if it is one.
        error: Option<ErrorCode>,
    },
}

/// One protocol on one connection.
pub trait Front {
    /// Understands the first message of `bytes`; what it can answer by itself it appends to `out`.
    fn step(&mut self, bytes: &[u8], facts: &Facts, draining: bool, out: &mut Vec<u8>) -> Step;

    /// What an operator should know of the message at the start of `bytes`, which has closed the connection.
    fn rejection(&self, _bytes: &[u8]) -> Option<&'static str> {
        None
    }

    /// How many IDs of that source the messages in `bytes` ask for, as far as a quick look tells.
    fn demand(&self, bytes: &[u8], source: usize, facts: &Facts) -> u64;

    /// What one frame of a reply holds.
    fn frame_limit(&self, form: Form, needs_list: bool) -> FrameLimit;

    /// Encodes one frame of IDs granted; they are within [`frame_limit`](Front::frame_limit).
    fn encode_ids(&self, out: &mut Vec<u8>, form: Form, ids: &FrameIds<'_>, rng: &mut fastrand::Rng);

    /// Encodes a refusal; `source` is the name of what was asked for. Returns the error as which it counts.
    fn refuse(&self, out: &mut Vec<u8>, form: Form, refusal: Refusal, source: &str) -> ErrorCode;
}

/// The most that one frame holds, of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimit {
    /// Runs.
    pub runs: usize,
    /// IDs.
    pub ids: u64,
}

impl FrameLimit {
    /// Whether all of these fit one frame.
    #[inline]
    pub fn fits(&self, runs: &[Run]) -> bool {
        runs.len() <= self.runs
            && (self.ids == u64::MAX || runs.iter().map(|run| u64::from(run.count)).sum::<u64>() <= self.ids)
    }
}

/// IDs of one frame on their way to a client.
#[derive(Debug)]
pub struct FrameIds<'a> {
    /// The runs, increasing.
    pub runs: &'a [Run],
    /// Random fields: each ID gets a draw of each, (size, weight).
    pub random: &'a [(u64, u64)],
    /// Whether the wire's runs cannot say these IDs.
    pub needs_list: bool,
    /// Whether another frame of the reply follows.
    pub more: bool,
}

impl FrameIds<'_> {
    /// The IDs, with their random fields drawn.
    pub fn ids(&self, rng: &mut fastrand::Rng) -> impl Iterator<Item = u64> {
        let draw = |id, rng: &mut fastrand::Rng| {
            self.random.iter().fold(id, |id, &(size, weight)| id + rng.u64(..size) * weight)
        };
        self.runs.iter().flat_map(Run::ids).map(move |id| draw(id, rng))
    }
}

#[cfg(test)]
mod tests;
