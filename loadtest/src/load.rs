//! The threads of the load. Each has some connections, one epoll and, in an open loop, a schedule.
//!
//! The thread sleeps in `epoll_wait` until the next request is due or a reply arrives. Spinning
//! would take a core from a target on the same machine. In each turn, the thread first sends the
//! requests that are due, with one `send` for each connection, and then reads the replies. In an
//! open loop, the thread never waits for an answer before it sends. Most late requests are late
//! because something else uses the core of their thread. So a thread also sends the overdue
//! requests of other threads (`lanes`).

mod clocks;
mod connection;
mod lanes;
mod meter;
mod outage;
mod receive;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant, SystemTime};

use crate::frontend::{Access, FrontEnd};
use crate::machine::Watched;
use crate::machine::owner::Owner;
use crate::measure::{Counts, Fault, Second};
use crate::promise::{Promise, Span};
use crate::scenario::Scenario;

pub(crate) use clocks::Clock;
pub(crate) use lanes::Lanes;
pub(crate) use worker::run;

/// The most requests in flight on one connection of an open loop. A connection has this many tags.
pub(crate) const MAX_IN_FLIGHT: usize = 1 << 16;

pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The time within which a target has to recover, from the start of an outage.
pub(crate) const RECOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between two attempts to open connections again.
const RETRY_NS: u64 = 5_000_000;

/// One of the targets, as all threads see it.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Opens connections again after an outage.
    pub(crate) access: Access,
    pub(crate) front_end: Box<dyn FrontEnd>,
    /// The version that the target reported before the load.
    pub(crate) version: Option<String>,
    pub(crate) promise: Promise,
    pub(crate) owner: Owner,
    pub(crate) clock: Clock,
    /// With strict order: the largest ID received from this target so far.
    pub(crate) highest: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) peers: Vec<Peer>,
    /// The record of this machine's stalls, and instant 0 of the run.
    pub(crate) watched: Watched,
    /// The schedules of the requests of an open loop.
    pub(crate) lanes: Lanes,
    /// True once the run is over. All threads of the run then end.
    pub(crate) stop: AtomicBool,
}

/// A message from a load thread to the collector.
#[derive(Debug)]
pub(crate) enum Message {
    /// Positions received from each target. All IDs that this thread has yet to receive are dated
    /// `low_us` or later. `low_us` is `None` if no such instant is known.
    Spans { thread: usize, spans: Vec<Vec<Span>>, low_us: Option<i64> },
    /// A second of the measurement is over on this thread.
    Second { thread: usize, number: u64, second: Box<Second> },
    /// The thread has ended, because of `fault` if there is one.
    Done { thread: usize, counts: Box<Counts>, fault: Option<Fault> },
}

/// An instant on the run's clock and on the wall clock.
#[derive(Debug, Clone, Copy)]
struct Now {
    /// Nanoseconds since the start of the run; 0 before the start.
    ns: u64,
    /// The wall clock, Unix microseconds.
    wall_us: i64,
}

impl Shared<'_> {
    fn now(&self) -> Now {
        let ns = Instant::now().saturating_duration_since(self.watched.origin).as_nanos() as u64;
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Now { ns, wall_us: since_1970.as_micros() as i64 }
    }
}
