//! A connection's membership in its thread: its slot for a waker, and its part in a stop.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use super::thread_state::ThreadState;

/// A connection of this thread, from accept to close. The stop waits for it until it is drained.
pub(super) struct Member {
    pub(super) thread: Rc<ThreadState>,
    pub(super) slot: usize,
    /// True while the stop waits for this connection.
    pub(super) undrained: bool,
    /// The bytes that it keeps between turns, in units of [`KEPT_UNIT`].
    kept_units: usize,
}

/// The unit in which the bytes that connections keep are counted. Less than a unit is not counted,
/// so half a request costs no access to memory that all threads write.
const KEPT_UNIT: usize = 4 * 1024;

impl Member {
    pub(super) fn new(thread: Rc<ThreadState>) -> Self {
        let slot = thread.turn.borrow_mut().wakers.reserve();
        thread.undrained.set(thread.undrained.get() + 1);
        Member { thread, slot, undrained: true, kept_units: 0 }
    }

    /// Returns true if what arrives now is refused. During a stop, a connection's requests are
    /// answered until it is drained, and refused later.
    pub(super) fn is_refused(&self) -> bool {
        self.thread.refuses_all.get() || self.thread.draining.get() && !self.undrained
    }

    /// Counts the bytes that the connection keeps between turns.
    #[inline]
    pub(super) fn note_kept(&mut self, bytes: usize) {
        let units = bytes / KEPT_UNIT;
        if units != self.kept_units {
            let queued = &self.thread.common.metrics.queued_bytes;
            match units.checked_sub(self.kept_units) {
                Some(more) => queued.fetch_add(more * KEPT_UNIT, Ordering::Relaxed),
                None => queued.fetch_sub((self.kept_units - units) * KEPT_UNIT, Ordering::Relaxed),
            };
            self.kept_units = units;
        }
    }

    /// Stores the waker by which the stop wakes this task. Call it before the task sleeps.
    pub(super) fn remember(&self, waker: &Waker) {
        self.thread.turn.borrow_mut().wakers.remember(self.slot, waker);
    }

    /// Notes that the stop need not wait for this connection any more.
    pub(super) fn note_drained(&mut self) {
        if std::mem::take(&mut self.undrained) {
            let left = self.thread.undrained.get() - 1;
            self.thread.undrained.set(left);
            if left == 0 {
                self.thread.drained.notify_one();
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.note_drained();
        self.note_kept(0);
        self.thread.turn.borrow_mut().wakers.release(self.slot);
    }
}

/// The wakers of a thread's connections, each in the slot that its connection reserved. A stop and
/// a reload wake all of them.
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

    /// Stores a connection's waker. A task's waker hardly ever changes, so it is cloned only when
    /// it does.
    pub(super) fn remember(&mut self, slot: usize, waker: &Waker) {
        if !self.slots[slot].as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.slots[slot] = Some(waker.clone());
        }
    }

    pub(super) fn wake_all(&self) {
        self.slots.iter().flatten().for_each(Waker::wake_by_ref);
    }
}
