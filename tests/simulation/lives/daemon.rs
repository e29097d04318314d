//! One process: the shipped types, and the simulation's notes about it.

use std::sync::Arc;

use snowbank::ceiling::WorkerLocks;
use snowbank::clock::{BootMicros, Now, Wall};
use snowbank::keeper::Keeper;
use snowbank::shard::{Shard, Taken};
use snowbank::source::Source;
use snowbank::source::wait_queue::WaitId;

use super::SHARDS;

pub(crate) struct Daemon {
    pub(crate) source: Arc<Source>,
    pub(crate) wall: Arc<Wall>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) keeper: Keeper,
    pub(crate) locks: WorkerLocks,
    /// The last ID of each shard's only connection, and of all connections in strict order.
    pub(crate) last_ids: [u64; SHARDS],
    pub(crate) last_of_all: u64,
    /// Each shard's request that waits.
    pub(crate) waiting: Vec<Option<Waiting>>,
    /// A wake-up whose thread was paused after it had read the clock.
    pub(crate) paused: Option<(usize, Now)>,
    pub(crate) renewal: Renewal,
}

/// The ceilings that must be durable before IDs flow again, after a grant was taken away.
pub(crate) struct Renewal {
    pub(crate) generation: u64,
    /// By writer, the number of the last write: so far, and before the grant was taken away.
    pub(crate) last: Vec<u64>,
    pub(crate) last_before: Vec<u64>,
    /// By writer, whether a later write is durable.
    pub(crate) is_done: Vec<bool>,
}

impl Renewal {
    pub(crate) fn note(&mut self, generation: u64) {
        if generation != self.generation {
            self.generation = generation;
            self.last_before.clone_from(&self.last);
            self.is_done.fill(false);
        }
    }
}

pub(crate) struct Waiting {
    pub(crate) id: WaitId,
    pub(crate) count: u64,
    /// The end of its wait, and whether it accepts fewer IDs then.
    pub(crate) wait: (BootMicros, bool),
    /// The IDs that it had before it waited.
    pub(crate) taken: Taken,
    /// The highest ID that was handed out before its admission.
    pub(crate) above: u64,
    /// The lowest wall time believed since its admission. No ID of this request is older than the
    /// burst window at that time.
    pub(crate) earliest_us: i64,
    /// The highest wall time since its admission. A step back does not revoke IDs claimed before
    /// it.
    pub(crate) latest_us: i64,
}
