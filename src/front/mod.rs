//! Front-ends: bytes to what is asked, and what is granted back to bytes.
//!
//! A front-end knows its protocol and nothing of sockets, shards or clocks. [`connection`](crate::server) drives it: hands
//! it the bytes at hand, takes the IDs that it asks for, and has it encode them.

mod native;

pub use native::Native;

use std::time::Duration;

use crate::config::Tokens;
use crate::layout::Run;
use crate::source::line::Refusal;

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
    },
    /// It took so many bytes and wants IDs.
    Ids {
        /// Bytes of the message.
        consumed: usize,
        /// What it asks.
        ask: Ask,
    },
    /// The last reply is encoded; the connection is to be closed after it.
    Close,
}

/// One protocol on one connection.
pub trait Front {
    /// Understands the first message of `bytes`; what it can answer by itself it appends to `out`.
    fn step(&mut self, bytes: &[u8], facts: &Facts, draining: bool, out: &mut Vec<u8>) -> Step;

    /// How many IDs of that source the messages in `bytes` ask for, as far as a quick look tells.
    fn demand(&self, bytes: &[u8], source: usize, facts: &Facts) -> u64;

    /// Encodes IDs granted, one frame at a time. True when it was the last.
    fn grant(&self, out: &mut Vec<u8>, form: Form, ids: &mut Granted<'_>, rng: &mut fastrand::Rng) -> bool;

    /// Encodes a refusal; `source` is the name of what was asked for.
    fn refuse(&self, out: &mut Vec<u8>, form: Form, refusal: Refusal, source: &str);
}

/// IDs on their way to a client: runs, and how far they are encoded.
#[derive(Debug)]
pub struct Granted<'a> {
    /// The runs, increasing.
    pub runs: &'a [Run],
    /// How many IDs of the first run are encoded already.
    pub offset: u32,
    /// Random fields: each ID gets a draw of each, (size, weight).
    pub random: &'a [(u64, u64)],
    /// Whether the wire's runs cannot say these IDs.
    pub needs_list: bool,
}

impl Granted<'_> {
    /// How many IDs are not encoded yet.
    pub fn left(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.count)).sum::<u64>() - u64::from(self.offset)
    }

    /// The next ID, with its random fields drawn.
    #[inline]
    pub fn next_id(&mut self, rng: &mut fastrand::Rng) -> Option<u64> {
        let run = self.runs.first()?;
        let id = run.first + u64::from(self.offset) * run.stride;
        self.offset += 1;
        if self.offset == run.count {
            self.offset = 0;
            self.runs = &self.runs[1..];
        }
        Some(self.random.iter().fold(id, |id, &(size, weight)| id + rng.u64(..size) * weight))
    }
}
