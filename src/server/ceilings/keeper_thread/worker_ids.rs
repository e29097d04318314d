//! The worker IDs of a daemon: their locks, and how far they are marked as granted.

use std::io;

use crate::ceiling::{TakenOver, WorkerLocks};

/// The machine's locks of the worker IDs, by source. They are not on the state's disk, so checking them does not block.
#[derive(Debug)]
pub(super) struct WorkerIds {
    locks: Vec<WorkerLocks>,
    /// By source, why the last grant could not be marked.
    unmarked: Vec<Option<String>>,
}

impl WorkerIds {
    pub(super) fn new(locks: Vec<WorkerLocks>) -> WorkerIds {
        let unmarked = vec![None; locks.len()];
        WorkerIds { locks, unmarked }
    }

    /// Checks that no other process could have a worker ID.
    pub(super) fn still_ours(&self) -> Result<(), TakenOver> {
        self.locks.iter().try_for_each(WorkerLocks::still_ours)
    }

    /// Marks the IDs of a source as granted up to this bound.
    pub(super) fn mark(&self, index: usize, id_bound: u64) -> io::Result<()> {
        self.locks[index].mark_granted(id_bound)
    }

    /// Marks the IDs of a source as granted up to this bound, and its worker IDs as returned to the fleet.
    pub(super) fn mark_returned(&self, index: usize, id_bound: u64) -> io::Result<()> {
        self.locks[index].mark_returned(id_bound)
    }

    /// Marks, and notes a failure. A failure stops nothing, because the state has the bound as well.
    pub(super) fn note_granted(&mut self, index: usize, id_bound: u64) {
        self.unmarked[index] = self.mark(index, id_bound).err().map(|error| error.to_string());
    }

    pub(super) fn unmarked(&self) -> Option<&str> {
        self.unmarked.iter().find_map(Option::as_deref)
    }
}
