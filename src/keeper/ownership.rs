//! Whether the worker IDs and the state are still this process's. The keeper asks with each look; while it waits for storage,
//! another thread does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::ceiling::store::StateLock;
use crate::ceiling::{TakenOver, WorkerLocks};
use crate::source::Source;

/// What no other process may have while this one hands out IDs.
#[derive(Debug, Default)]
pub struct Ownership {
    sources: RwLock<Vec<Owned>>,
    /// The state directory's lock, where there is one.
    state: Option<StateLock>,
    /// Why it is not this process's any more. Never unset.
    lost: OnceLock<TakenOver>,
    is_told: AtomicBool,
}

/// A source and the machine's locks of its worker IDs, where there are any.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) source: Arc<Source>,
    pub(super) locks: Option<Arc<WorkerLocks>>,
}

impl Ownership {
    /// Of these sources, and of a state under this lock.
    pub(super) fn new(sources: Vec<Owned>, state: Option<StateLock>) -> Self {
        Ownership { sources: RwLock::new(sources), state, ..Ownership::default() }
    }

    /// Looks whether every lock is still this process's. At the first that is not, all grants are taken away for good. It
    /// looks at names alone, and writes nothing.
    ///
    /// # Errors
    /// When another process could have a worker ID or the state, now or at an earlier look.
    pub fn look(&self) -> Result<(), TakenOver> {
        self.look_at_worker_ids()?;
        let state = self.state.as_ref().map_or(Ok(()), StateLock::still_ours);
        state.inspect_err(|taken_over| self.lose(taken_over))
    }

    /// The same without the state's lock, whose name is on the state's disk: looking at it may have to wait.
    ///
    /// # Errors
    /// As [`look`](Ownership::look).
    pub fn look_at_worker_ids(&self) -> Result<(), TakenOver> {
        self.lost().map_or(Ok(()), |lost| Err(lost.clone()))?;
        let found = {
            let sources = self.sources.read().unwrap_or_else(PoisonError::into_inner);
            sources.iter().filter_map(|owned| owned.locks.as_ref()).try_for_each(|locks| locks.still_ours())
        };
        found.inspect_err(|taken_over| self.lose(taken_over))
    }

    /// Takes all grants away for good: another process could have what they are for.
    pub(super) fn lose(&self, taken_over: &TakenOver) {
        // Who comes second brings one more reason.
        let _ = self.lost.set(taken_over.clone());
        let sources = self.sources.read().unwrap_or_else(PoisonError::into_inner);
        sources.iter().for_each(|owned| owned.source.grant().lose());
    }

    /// Takes in sources that join, before anything is granted to them.
    ///
    /// # Errors
    /// All was lost before: they are not to be granted anything.
    pub(super) fn add(&self, joining: impl Iterator<Item = Owned>) -> Result<(), TakenOver> {
        self.sources.write().unwrap_or_else(PoisonError::into_inner).extend(joining);
        // Lost after this, they lose their grants with the others.
        self.lost().map_or(Ok(()), |lost| Err(lost.clone()))
    }

    /// Why it is not this process's any more, if it is not.
    pub(super) fn lost(&self) -> Option<&TakenOver> {
        self.lost.get()
    }

    /// Whether there is a state, and so storage to wait for.
    pub fn is_of_state(&self) -> bool {
        self.state.is_some()
    }

    /// Whether nobody has been told of the loss yet. True once.
    pub fn is_news(&self) -> bool {
        !self.is_told.swap(true, Ordering::Relaxed)
    }
}
