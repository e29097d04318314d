//! A connection's membership in its thread: its waker, the bytes that it keeps, and its part in a
//! stop.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use super::thread_state::ThreadState;

/// A connection of this thread, from accept to close. A stop waits until each connection is
/// drained.
pub(super) struct Membership {
    pub(super) thread: Rc<ThreadState>,
    pub(super) slot: usize,
    /// True as long as a stop must wait for the connection.
    pub(super) undrained: bool,
    /// The bytes that the connection keeps between turns, in units of [`KEPT_UNIT`].
    kept_units: usize,
}

/// The unit in which kept bytes are counted. Less than a unit is not counted. So for most half
/// requests, the thread does not write to memory that all threads share.
const KEPT_UNIT: usize = 4 * 1024;

impl Membership {
    pub(super) fn new(thread: Rc<ThreadState>) -> Self {
        let slot = thread.turn.borrow_mut().wakers.reserve();
        thread.undrained.set(thread.undrained.get() + 1);
        Membership { thread, slot, undrained: true, kept_units: 0 }
    }

    /// Returns true if requests that arrive now are refused. During a stop, they are refused once
    /// the connection is drained, or once the stop has refused all waiting requests.
    pub(super) fn is_refused(&self) -> bool {
        self.thread.refuses_all.get() || self.thread.draining.get() && !self.undrained
    }

    /// Counts the bytes that the connection keeps between turns.
    #[inline]
    pub(super) fn record_kept(&mut self, bytes: usize) {
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

    /// Stores the waker with which a stop or a reload wakes the connection's task. Must be called
    /// before the task sleeps.
    pub(super) fn remember(&self, waker: &Waker) {
        self.thread.turn.borrow_mut().wakers.remember(self.slot, waker);
    }

    /// Records that a stop need not wait for this connection any more.
    pub(super) fn record_drained(&mut self) {
        if std::mem::take(&mut self.undrained) {
            let left = self.thread.undrained.get() - 1;
            self.thread.undrained.set(left);
            if left == 0 {
                self.thread.drained.notify_one();
            }
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.record_drained();
        self.record_kept(0);
        self.thread.turn.borrow_mut().wakers.release(self.slot);
    }
}
