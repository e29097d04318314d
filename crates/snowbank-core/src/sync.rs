//! The one place that replaces the standard atomics with loom's. So the models of
//! [`shard`](crate::shard) and of a shared counter's ranges check the shipped code.
//!
//! Run the models with `RUSTFLAGS="--cfg snowbank_loom"` and `cargo test --release --package
//! snowbank-core --lib models`.

#[cfg(snowbank_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
};
#[cfg(not(snowbank_loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
};

#[cfg(not(snowbank_loom))]
pub(crate) use crossbeam::queue::ArrayQueue;

/// A bounded queue that has crossbeam's interface and is built on loom's mutex. The models check
/// how the queue is used, not crossbeam's queue itself.
#[cfg(snowbank_loom)]
#[derive(Debug)]
pub(crate) struct ArrayQueue<T> {
    capacity: usize,
    items: Mutex<std::collections::VecDeque<T>>,
}

#[cfg(snowbank_loom)]
impl<T> ArrayQueue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        ArrayQueue { capacity, items: Mutex::new(std::collections::VecDeque::new()) }
    }

    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut items = lock(&self.items);
        if items.len() == self.capacity {
            return Err(item);
        }
        items.push_back(item);
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<T> {
        lock(&self.items).pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.items).len()
    }
}

/// Locks, even if another thread panicked while it held the lock. The data behind these locks is
/// valid between any two statements, so a poisoned lock can be used.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Checks a model in every interleaving of its threads, with at most three forced switches between
/// them.
#[cfg(all(test, snowbank_loom))]
pub(crate) fn check_model(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // By Loom's documentation, two or three are enough to catch most bugs.
    builder.preemption_bound = Some(3);
    builder.check(model);
}
