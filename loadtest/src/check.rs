//! Checks every ID against the promise of its source. The checks are pure: the instants that they
//! need are arguments.
//!
//! - [`reply`]: checks one connection's replies: count, order, layout, worker and time.
//! - [`distinct`]: checks in bounded memory that no ID comes twice, on one connection or on
//!   several.

pub(crate) mod distinct;
pub(crate) mod reply;

use crate::promise::Promise;

/// A broken promise. A single one fails the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Violation {
    /// An ID came twice.
    Duplicate { id: u64 },
    /// An ID is smaller than the previous ID of its connection.
    Order { previous: u64, id: u64 },
    /// With strict order: a request that was sent after a reply had been received did not get
    /// larger IDs than that reply.
    Strict { received: u64, id: u64 },
    /// A run that is empty, repeats an ID, or ends beyond 64 bits.
    BadRun { first: u64 },
    /// Fewer or more IDs than were asked for.
    Count { asked: u32, found: u64 },
    /// An ID that does not fit the source's layout.
    Layout { id: u64, previous: Option<u64> },
    /// A counter left out numbers in a reply: inside the run that begins with `id`, or just before
    /// that run.
    Gap { id: u64 },
    /// An ID that contains a worker ID that the source does not hold.
    Worker { id: u64, worker: u64 },
    /// An ID whose time is outside the promised window: after the window by `by_us`, or before it
    /// if `by_us` is negative.
    Time { id: u64, by_us: i64 },
}

impl Violation {
    /// Returns one line for a person, with decoded IDs.
    pub(crate) fn describe(&self, promise: &Promise) -> String {
        match *self {
            Self::Duplicate { id } => format!("duplicate: {} was handed out twice", promise.describe(id)),
            Self::Order { previous, id } => {
                format!(
                    "wrong order: {} follows {} on one connection",
                    promise.describe(id),
                    promise.describe(previous)
                )
            }
            Self::Strict { received, id } => format!(
                "wrong order: {} was asked for after {} was received, and order is strict",
                promise.describe(id),
                promise.describe(received)
            ),
            Self::BadRun { first } => {
                format!(
                    "malformed reply: the run from {} is empty, repeats an ID or exceeds 64 bits",
                    promise.describe(first)
                )
            }
            Self::Count { asked, found } => {
                let compared = if found < u64::from(asked) { "few" } else { "many" };
                format!("too {compared} IDs: {found} came and {asked} were asked for")
            }
            Self::Layout { id, previous } => {
                let before =
                    previous.map(|id| format!("; {} came before", promise.describe(id))).unwrap_or_default();
                format!("wrong layout: {} is not of the layout that INFO names{before}", promise.describe(id))
            }
            Self::Gap { id } => {
                format!("a gap: the reply with {id} leaves out numbers; a reply of a counter must not")
            }
            Self::Worker { id, worker } => {
                format!(
                    "wrong worker: {} has worker {worker}, which INFO does not list",
                    promise.describe(id)
                )
            }
            Self::Time { id, by_us } => {
                let far_us = by_us.unsigned_abs();
                let way = if by_us < 0 { "older" } else { "newer" };
                format!("wrong time: {} is {far_us} us {way} than the promised window", promise.describe(id))
            }
        }
    }
}
