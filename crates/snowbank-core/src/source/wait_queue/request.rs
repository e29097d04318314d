//! A request that waits, from its admission to its end.

use std::time::Duration;

use crate::clock::BootMicros;
use crate::source::Span;

/// The identity of a request in one source's wait queue. Identities have the order of the queue: by
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
    /// The wait that it asked for. A part of it may be over before the request is admitted.
    pub wait: Duration,
    /// True if the request accepts fewer positions at the deadline, as long as it gets at least
    /// one.
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
    /// succeed. `None`: only a request for fewer positions, or with a longer wait, can succeed.
    Exhausted(Option<Duration>),
    /// The wall clock is too far behind IDs already handed out. IDs are available again after this
    /// time.
    ClockBehind(Duration),
    /// The source has no stored state, and its first tick has not begun: the wall clock reaches
    /// that tick when this time has passed.
    YetToBegin(Duration),
    /// The ceiling was not raised in time.
    NoCeiling,
    /// Another process, or another copy of the machine, may hand out the same IDs. Nothing is
    /// handed out any more.
    Lost,
    /// The layout has no ticks left.
    Ended,
    /// The ticket counter has too few numbers left, or no range that is large enough.
    CounterEnded,
    /// The source was sealed, because the daemon stops.
    Sealed,
}

/// A request whose wait is over.
#[derive(Debug)]
pub struct Finished {
    /// The request's identity.
    pub id: WaitId,
    /// The positions claimed for the request, in increasing order. They are never handed out if the
    /// request was refused, or if the grant's generation has changed since the claim.
    pub spans: Vec<Span>,
    /// `None` if the request got all positions, or if it is partial and got some.
    pub refusal: Option<Refusal>,
    /// The grant's generation under which `spans` were claimed.
    pub generation: u64,
}

/// The result of advancing the queue, with the shards to wake.
#[derive(Debug)]
pub struct Advanced {
    /// The time until the queue must be advanced again; `None` if no request waits.
    pub next_in: Option<Duration>,
    /// The shards whose requests were finished now. They must collect them.
    pub shards: Vec<usize>,
    /// True if a request has met the ceiling, and the keeper must be woken to raise it.
    pub meets_ceiling: bool,
}
