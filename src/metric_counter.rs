//! A counter that any thread may read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows. Either one thread adds to it, or all threads share it.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to the number. Only the thread that owns the counter may call this: a shared counter
    /// would lose counts.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Adds 1 to a shared counter.
    pub(crate) fn add_shared(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number as of a moment ago.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
