//! A connection's membership in its thread: its slot for a waker, and its part in a stop.

use std::rc::Rc;
use std::task::Waker;

use super::thread_state::ThreadState;

/// A connection of this thread, from accept to close. The stop waits for it until it is drained.
pub(super) struct Member {
    pub(super) thread: Rc<ThreadState>,
    slot: usize,
    undrained: bool,
}

impl Member {
    pub(super) fn new(thread: Rc<ThreadState>) -> Self {
        let slot = thread.turn.borrow_mut().wakers.reserve();
        thread.undrained.set(thread.undrained.get() + 1);
        Member { thread, slot, undrained: true }
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Returns true while the stop waits for this connection.
    pub(super) fn is_undrained(&self) -> bool {
        self.undrained
    }

    /// Stores the waker by which the stop wakes this task. Call it before the task sleeps.
    pub(super) fn remember(&self, waker: &Waker) {
        self.thread.turn.borrow_mut().wakers.remember(self.slot, waker);
    }

    /// Calls [`note_drained`](Self::note_drained) if the stop has begun.
    pub(super) fn note_drained_if_draining(&mut self) {
        if self.thread.draining.get() {
            self.note_drained();
        }
    }

    /// Notes that the stop need not wait for this connection any more.
    pub(super) fn note_drained(&mut self) {
        if std::mem::take(&mut self.undrained) {
            self.thread.note_drained();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.note_drained();
        self.thread.turn.borrow_mut().wakers.release(self.slot);
    }
}
