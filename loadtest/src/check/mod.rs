//! Checks every ID against the promise of its source. Pure: instants come in with the reply.
//!
//! - [`reply`]: one connection's replies: count, order, layout, worker and time.
//! - [`distinct`]: no ID twice over all connections, in bounded memory.

pub(crate) mod distinct;
pub(crate) mod reply;

use crate::promise::Promise;

/// A broken promise; one of them fails the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Violation {
    /// An ID was handed out twice.
    Duplicate { id: u64 },
    /// An ID is not above the one before it on the same connection.
    Order { previous: u64, id: u64 },
    /// With strict order: a request sent after a reply was received did not get larger IDs.
    Strict { received: u64, id: u64 },
    /// A run of no IDs.
    EmptyRun,
    /// A run that ends beyond 64 bits, or whose IDs do not differ.
    BadRun { first: u64 },
    /// Fewer or more IDs than were asked for.
    Count { asked: u32, found: u64 },
    /// An ID that is not of the source's layout.
    Layout { id: u64, previous: Option<u64> },
    /// An ID of a worker ID that the source does not hold.
    Worker { id: u64, worker: u64 },
    /// An ID dated before the window that is promised.
    TooOld { id: u64, by_us: i64 },
    /// An ID dated after the window that is promised.
    TooNew { id: u64, by_us: i64 },
}

impl Violation {
    /// Returns one line for a person, IDs decoded.
    pub(crate) fn describe(&self, promise: &Promise) -> String {
        let decoded = |id: u64| promise.describe(id);
        match *self {
            Self::Duplicate { id } => {
                format!("duplicate: {} was handed out twice", decoded(id))
            }
            Self::Order { previous, id } => {
                format!("wrong order: {} follows {} on one connection", decoded(id), decoded(previous))
            }
            Self::Strict { received, id } => format!(
                "wrong order: {} was asked for after {} was received, and order is strict",
                decoded(id),
                decoded(received)
            ),
            Self::EmptyRun => "malformed reply: a run of no IDs".to_owned(),
            Self::BadRun { first } => {
                format!("malformed reply: the run from {} repeats itself or leaves 64 bits", decoded(first))
            }
            Self::Count { asked, found } if found < u64::from(asked) => {
                format!("too few IDs: {found} came and {asked} were asked for")
            }
            Self::Count { asked, found } => {
                format!("too many IDs: {found} came and {asked} were asked for")
            }
            Self::Layout { id, previous } => {
                let before = previous.map(|id| format!("; {} came before", decoded(id))).unwrap_or_default();
                format!("wrong layout: {} is not of the layout that INFO names{before}", decoded(id))
            }
            Self::Worker { id, worker } => {
                format!("wrong worker: {} has worker {worker}, which INFO does not list", decoded(id))
            }
            Self::TooOld { id, by_us } => {
                format!("wrong time: {} is {by_us} us older than the promised window", decoded(id))
            }
            Self::TooNew { id, by_us } => {
                format!("wrong time: {} is {by_us} us newer than the promised window", decoded(id))
            }
        }
    }
}
