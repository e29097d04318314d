//! A flag that is set once and can be waited for.

use std::cell::Cell;

use tokio::sync::Notify;

/// A flag of one thread. It stays set, so a wait that begins late does not miss it.
#[derive(Debug, Default)]
pub(super) struct Latch {
    is_set: Cell<bool>,
    changed: Notify,
}

impl Latch {
    pub(super) fn is_set(&self) -> bool {
        self.is_set.get()
    }

    pub(super) fn set(&self) {
        self.is_set.set(true);
        self.changed.notify_waiters();
    }

    /// Completes once the flag is set.
    pub(super) async fn wait(&self) {
        // Nothing else on this thread runs between the look and the wait.
        if !self.is_set() {
            self.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_wait_ends_whether_it_began_before_or_after_the_flag_was_set() {
        let (latch, cx) = (Latch::default(), &mut Context::from_waker(Waker::noop()));
        let (mut early, late) = (pin!(latch.wait()), pin!(latch.wait()));
        assert!(early.as_mut().poll(cx).is_pending());
        latch.set();
        assert!(early.poll(cx).is_ready() && late.poll(cx).is_ready());
    }
}
