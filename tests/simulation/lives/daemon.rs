//! One process: the shipped types, and the simulation's notes about the process.

use std::sync::Arc;

use snowbank_core::clock::{BootMicros, Now, Wall};
use snowbank_core::keeper::Keeper;
use snowbank_core::shard::{Shard, Taken};
use snowbank_core::source::Source;
use snowbank_core::source::wait_queue::WaitId;
use snowbank_state::WorkerLocks;

use super::SHARDS;

pub(crate) struct Daemon {
    pub(crate) source: Arc<Source>,
    pub(crate) wall: Arc<Wall>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) keeper: Keeper,
    pub(crate) locks: WorkerLocks,
    /// The last ID of each shard's only connection.
    pub(crate) last_ids: [u64; SHARDS],
    /// The highest ID that any connection has received.
    pub(crate) last_of_all: u64,
    /// The waiting request of each shard.
    pub(crate) waiting: Vec<Option<Waiting>>,
    /// A shard whose thread lost the processor after it had read the clock, and what it had read.
    pub(crate) paused: Option<(usize, Now)>,
    pub(crate) renewal: Renewal,
}

/// The ceilings that must be durable before IDs flow again, after a grant was taken away.
pub(crate) struct Renewal {
    pub(crate) generation: u64,
    /// The number of each writer's last write.
    pub(crate) last: Vec<u64>,
    /// The number of each writer's last write before the grant was taken away.
    pub(crate) last_before: Vec<u64>,
    /// For each writer, true once a write after the one in `last_before` is durable.
    pub(crate) is_done: Vec<bool>,
}

impl Renewal {
    pub(crate) fn record(&mut self, generation: u64) {
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
    /// The deadline of the request, and whether it then accepts fewer IDs.
    pub(crate) wait: (BootMicros, bool),
    /// The IDs that the request had before it waited.
    pub(crate) taken: Taken,
    /// The highest ID that was handed out before the request was admitted.
    pub(crate) above: u64,
    /// The lowest wall time believed since its admission. No ID of this request is older than the
    /// burst window at that time.
    pub(crate) earliest_us: i64,
    /// The highest wall time since its admission. IDs claimed before a step back stay claimed.
    pub(crate) latest_us: i64,
}
