//! The waiting requests of a ticket counter. Time makes no numbers, a higher ceiling does, and it covers all that wait.
//!
//! Each request gets its numbers by one claim, so they are consecutive. None that waits is passed by a later one, unless that
//! one fits below the ceiling and it does not: while storage fails, the numbers that are reserved are still handed out.

use super::{Entry, Queue, Refusal, Source, WaitRequest, Window};
use crate::source::Bound;

impl Source {
    /// Claims for the waiting requests that fit below the ceiling, in the order of their deadlines.
    pub(super) fn feed_whole(&self, window: &Window, queue: &mut Queue, rng: &mut fastrand::Rng) {
        let mut is_served = |entry: &mut Entry| {
            let wanted = entry.request.count;
            // After the last reservation a partial request gains nothing by waiting.
            let least = if entry.request.partial && window.bound == Bound::Ended { 1 } else { wanted };
            let Some(span) = self.claim_some(window, least, wanted, window.limit, rng) else { return false };
            self.wait_queue.uncount(wanted);
            entry.take(span);
            true
        };
        let served = queue.waiting.extract_if(.., &mut is_served);
        queue.finished.extend(served.map(|entry| entry.finish(None)));
        // All later requests queue, behind those that wait.
        self.let_pass(queue.waiting.len(), 0);
    }

    /// Claims what is left for a partial request of a ticket counter whose wait is over.
    pub(super) fn take_the_rest(&self, window: &Window, entry: &mut Entry, rng: &mut fastrand::Rng) {
        if self.numbering.is_ticket()
            && entry.request.partial
            && let Some(span) = self.claim_some(window, 1, entry.request.count, window.limit, rng)
        {
            entry.take(span);
        }
    }

    /// Checks that the counter has numbers left for a request, after all admitted before.
    pub(super) fn promise_whole(&self, window: &Window, request: &WaitRequest) -> Result<(), Refusal> {
        // The request itself is counted already.
        let admitted = self.wait_queue.admitted_ids() - request.count + request.promised();
        let left = self.numbering.end().0.saturating_sub(self.next_free(window));
        if admitted <= left { Ok(()) } else { Err(Refusal::CounterEnded) }
    }
}
