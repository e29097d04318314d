//! The wakers of a thread's connections.

use std::task::Waker;

/// The wakers of a thread's connections, each in the slot that its connection has reserved. A stop
/// or a reload wakes all connections.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    slots: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Wakers {
    pub(super) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        })
    }

    pub(super) fn release(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.free.push(slot);
    }

    /// Stores a connection's waker. Clones the waker only if it has changed, which is rare.
    pub(super) fn remember(&mut self, slot: usize, waker: &Waker) {
        if !self.slots[slot].as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.slots[slot] = Some(waker.clone());
        }
    }

    pub(super) fn wake_all(&self) {
        self.slots.iter().flatten().for_each(Waker::wake_by_ref);
    }
}
