//! A request that waits, from its admission to its end.

use std::time::Duration;

use crate::clock::BootMicros;
use crate::source::Span;

/// The identity of a request in one source's wait queue. Identities sort as the queue does: by
/// deadline, then by admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitId {
    pub(super) due: BootMicros,
    pub(super) number: u64,
}

/// A request that waits for positions.
#[derive(Clone, Copy, Debug)]
pub struct WaitRequest {
    /// The number of positions that it still wants.
    pub count: u64,
    /// The deadline of its wait.
    pub due: BootMicros,
    /// True if it accepts fewer positions at the deadline, but at least one.
    pub partial: bool,
    /// The shard on which it waits.
    pub shard: usize,
}

impl WaitRequest {
    /// Returns how many positions its admission promises: all, or one to a partial request.
    pub(super) fn promised(&self) -> u64 {
        if self.partial { self.count.min(1) } else { self.count }
    }
}

/// The reason why a request gets no IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The positions are not available by the deadline. `Some`: a retry after this time can
    /// succeed. `None`: ask for fewer, or wait for longer.
    Exhausted(Option<Duration>),
    /// The wall clock is too far behind. IDs are available again after this time.
    ClockBehind(Duration),
    /// The source has no stored state, and the wall clock reaches its first tick after this time.
    YetToBegin(Duration),
    /// The ceiling was not raised in time.
    NoCeiling,
    /// Another process may have the worker IDs. Nothing is handed out any more.
    Lost,
    /// The layout's life is over.
    Ended,
    /// The ticket counter has fewer numbers left than the request wants.
    CounterEnded,
    /// The source was sealed, because the daemon stops.
    Sealed,
}

/// A request whose wait is over.
#[derive(Debug)]
pub struct Finished {
    /// The request's identity.
    pub id: WaitId,
    /// The positions claimed for the request, increasing. They are never handed out if it was
    /// refused, or if the grant's generation has changed since.
    pub spans: Vec<Span>,
    /// `None` if the request got all positions, or if it is partial and got some.
    pub refusal: Option<Refusal>,
    /// The grant's generation under which `spans` were claimed.
    pub generation: u64,
}

/// The outcome of an advance of the queue, and the threads to wake.
#[derive(Debug)]
pub struct Advanced {
    /// The time until the next call; `None` if no request waits.
    pub next_in: Option<Duration>,
    /// The shards that have finished requests, and must collect them.
    pub shards: Vec<usize>,
    /// True if a request has met the ceiling, and the keeper must be woken to raise it.
    pub meets_ceiling: bool,
}
