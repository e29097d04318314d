//! Front-ends: they parse bytes into requests, and encode IDs and refusals into bytes.
//!
//! A front-end knows its protocol and nothing of sockets, shards or clocks. A [connection](crate::server) drives it: passes
//! the received bytes, takes the IDs that the request asks for, and lets the front-end encode them.

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod native;
mod stranger;

pub use native::Native;

use std::time::Duration;

use crate::access::{Denial, Rules, Session};
use crate::source::wait_queue::Refusal;
use snowbank_client::layout::Run;
use snowbank_client::protocol::ErrorCode;

/// The facts about the daemon that front-ends send to clients and check requests against.
#[derive(Debug)]
pub struct Facts {
    /// The JSON of an INFO reply.
    pub info_json: Vec<u8>,
    /// The most IDs per request.
    pub max_count: u32,
    /// The number of sources.
    pub sources: usize,
    /// Decides who a client is.
    pub access: Rules,
}

/// A request for IDs, whatever its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The index of an existing source.
    pub source: usize,
    /// The number of IDs, within the daemon's limit.
    pub count: u64,
    /// The longest wait. `None`: the daemon's default.
    pub wait: Option<Duration>,
    /// Accepts fewer IDs at the end of the wait, at least one.
    pub partial: bool,
    /// The form of the reply. Only the front-end reads it.
    pub form: Form,
}

/// The details of a request that the front-end needs to encode its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The client's tag.
    pub tag: u16,
    /// The reply lists every ID instead of runs.
    pub explicit: bool,
}

/// The result of parsing the first message in a buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The message is not complete yet.
    Incomplete,
    /// The message needed no IDs, and its reply is encoded.
    Answered {
        /// The size of the message in bytes.
        consumed: usize,
        /// The error code, if the reply is an error.
        error: Option<ErrorCode>,
    },
    /// The message asks for IDs.
    Ids {
        /// The size of the message in bytes.
        consumed: usize,
        /// The request.
        ask: Ask,
    },
    /// The last reply is encoded. The connection must be closed after it is sent.
    Close {
        /// The error code, if the reply is an error.
        error: Option<ErrorCode>,
    },
}

/// One protocol on one connection.
pub trait Front {
    /// Parses the first message of `bytes`. If it needs no IDs, appends the reply to `out`. A token goes to the session, and
    /// only a session that is authorized asks for IDs, of sources that it may draw from.
    fn step(
        &mut self,
        bytes: &[u8],
        facts: &Facts,
        session: &mut Session,
        draining: bool,
        out: &mut Vec<u8>,
    ) -> Step;

    /// Encodes the last message of a connection that has lost its authorization.
    fn revoke(&self, out: &mut Vec<u8>, denial: Denial);

    /// Returns the reason for the log if the message at the start of `bytes`, which closed the connection, is a rejection.
    fn rejection(&self, _bytes: &[u8], _session: &Session) -> Option<&'static str> {
        None
    }

    /// Estimates how many IDs of that source the messages in `bytes` ask for.
    fn demand(&self, bytes: &[u8], source: usize, facts: &Facts) -> u64;

    /// Returns the most that one frame of a reply holds.
    fn frame_limit(&self, form: Form, needs_list: bool) -> FrameLimit;

    /// Encodes one frame of IDs, which are within [`frame_limit`](Front::frame_limit).
    fn encode_ids(&self, out: &mut Vec<u8>, form: Form, ids: &FrameIds<'_>, rng: &mut fastrand::Rng);

    /// Encodes a refusal. Returns the error code for the metrics.
    fn refuse(&self, out: &mut Vec<u8>, form: Form, refused: Refused<'_>) -> ErrorCode;
}

/// A refusal, and what its words need.
#[derive(Clone, Copy, Debug)]
pub struct Refused<'a> {
    /// The refusal.
    pub refusal: Refusal,
    /// The source's name.
    pub source: &'a str,
    /// The longest wait that the daemon allows, if the request's was shorter.
    pub longer_wait: Option<Duration>,
}

/// The most that one frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimit {
    /// The most runs.
    pub runs: usize,
    /// The most IDs.
    pub ids: u64,
}

impl FrameLimit {
    /// Returns whether all runs fit into one frame.
    #[inline]
    pub fn fits(&self, runs: &[Run]) -> bool {
        runs.len() <= self.runs
            && (self.ids == u64::MAX || runs.iter().map(|run| u64::from(run.count)).sum::<u64>() <= self.ids)
    }
}

/// The IDs of one frame of a reply.
#[derive(Debug)]
pub struct FrameIds<'a> {
    /// The runs, increasing.
    pub runs: &'a [Run],
    /// The random fields as (size, weight). Each ID gets its own random value of each.
    pub random: &'a [(u64, u64)],
    /// True if runs on the wire cannot express these IDs.
    pub needs_list: bool,
    /// True if another frame of the reply follows.
    pub more: bool,
}

impl FrameIds<'_> {
    /// Returns the IDs, with random values in their random fields.
    pub fn ids(&self, rng: &mut fastrand::Rng) -> impl Iterator<Item = u64> {
        let draw = |id, rng: &mut fastrand::Rng| {
            self.random.iter().fold(id, |id, &(size, weight)| id + rng.u64(..size) * weight)
        };
        self.runs.iter().flat_map(Run::ids).map(move |id| draw(id, rng))
    }
}

#[cfg(test)]
mod tests;
