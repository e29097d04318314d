//! The waiting requests of a ticket counter. They wait for a higher ceiling, not for the next tick.
//!
//! Each request gets its numbers by one claim, so the numbers are consecutive. A request passes one
//! with an earlier deadline only if it fits below the ceiling and the other does not. So reserved
//! numbers are still handed out while storage fails.

use super::{Entry, Queue, Refusal, Source, WaitRequest, Window};
use crate::source::Bound;

impl Source {
    /// Claims numbers for the waiting requests that fit below the ceiling, in the order of their
    /// deadlines. A shared counter then goes on with its next range, if a remaining request fits
    /// into that range. Once the coordinator has no range left, requests that fit into no range are
    /// refused. Returns the last window that was used.
    ///
    /// If the grant is lost and a new range comes during the call, numbers of that range are
    /// recorded under the old generation. They are then skipped.
    pub(super) fn feed_whole(&self, window: Window, queue: &mut Queue, rng: &mut fastrand::Rng) -> Window {
        let window = self.feed_ranges(window, queue, rng);
        if self.has_last_range() {
            self.refuse_what_fits_nowhere(queue);
        }
        window
    }

    fn feed_ranges(&self, window: Window, queue: &mut Queue, rng: &mut fastrand::Rng) -> Window {
        self.feed_in_range(&window, queue, rng);
        let least = queue.waiting.iter().map(|entry| self.least_of(&entry.request, window.bound)).min();
        if window.bound != Bound::Ceiling || !least.is_some_and(|least| self.use_next_range(least)) {
            return window;
        }
        let window = self.window(window.now());
        self.feed_in_range(&window, queue, rng);
        window
    }

    fn feed_in_range(&self, window: &Window, queue: &mut Queue, rng: &mut fastrand::Rng) {
        queue.is_summary_stale = true;
        let served = queue.waiting.extract_if(.., |entry| {
            let least = self.least_of(&entry.request, window.bound);
            let wanted = entry.request.count;
            let Some(span) = self.claim_some(window, least, wanted, window.limit, rng) else { return false };
            self.wait_queue.uncount(wanted);
            entry.add(span);
            true
        });
        queue.finished.extend(served.map(|entry| entry.finish(None, queue.generation)));
        // All later requests must join the queue.
        self.let_bypass(queue.waiting.len(), 0);
    }

    /// Returns the fewest numbers for which the wait of a request ends. Even a partial request
    /// waits for all its numbers, unless no more numbers come.
    fn least_of(&self, request: &WaitRequest, bound: Bound) -> u64 {
        let no_more_come = bound == Bound::Ended || self.has_last_range();
        if no_more_come { request.promised() } else { request.count }
    }

    /// Refuses the requests that fit into neither of the last ranges.
    fn refuse_what_fits_nowhere(&self, queue: &mut Queue) {
        let largest = self.in_ranges().largest();
        let refused = queue.waiting.extract_if(.., |entry| entry.request.promised() > largest);
        queue.finished.extend(refused.map(|entry| {
            self.wait_queue.uncount(entry.request.count);
            entry.finish(Some(Refusal::CounterEnded), queue.generation)
        }));
    }

    /// Claims what is left of a ticket counter's reservation for a partial request whose wait is
    /// over.
    pub(super) fn take_the_rest(&self, window: &Window, entry: &mut Entry, rng: &mut fastrand::Rng) {
        if !self.kind.follows_the_clock()
            && entry.request.partial
            && let Some(span) = self.claim_some(window, 1, entry.request.count, window.limit, rng)
        {
            entry.add(span);
        }
    }

    /// Checks that the counter has enough numbers left for a request, in addition to the numbers of
    /// all requests admitted before. Once the coordinator has no range left, checks only that one
    /// of the last two ranges is large enough.
    pub(super) fn promise_whole(&self, request: &WaitRequest) -> Result<(), Refusal> {
        let has_numbers = if self.has_last_range() {
            request.promised() <= self.in_ranges().largest()
        } else {
            // `admitted_ids` already counts the request itself.
            let admitted = self.wait_queue.admitted_ids() - request.count + request.promised();
            admitted <= self.left_of_counter()
        };
        if has_numbers { Ok(()) } else { Err(Refusal::CounterEnded) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::source::Range;
    use crate::source::tests::{START, counter};
    use crate::source::wait_queue::Finished;
    use snowbank_id::layout::Position;

    fn request(count: u64, wait: Duration, partial: bool) -> WaitRequest {
        WaitRequest { count, due: START.boot.after(wait), wait, partial, shard: 0 }
    }

    /// Advances the queue `elapsed` after the start, and returns the finished requests.
    fn after(source: &Source, elapsed: Duration) -> Vec<Finished> {
        source.advance(START.after(elapsed), &mut fastrand::Rng::with_seed(1));
        source.collect(0)
    }

    #[test]
    fn a_request_that_does_not_fit_waits_while_smaller_ones_pass() {
        let source = counter(100);
        let admit =
            |count| source.admit(&source.window(START), request(count, Duration::from_secs(1), false));
        let large = admit(101).unwrap();
        assert!(after(&source, Duration::ZERO).is_empty());
        assert!(source.grant().is_wanted(), "the keeper is woken for a raise");
        let small = admit(100).unwrap();
        let served = after(&source, Duration::ZERO);
        assert_eq!((served.len(), served[0].id, served[0].spans[0].count), (1, small, 100));
        source.grant().raise(Position(201));
        let served = after(&source, Duration::ZERO);
        assert_eq!((served[0].id, served[0].spans.len(), served[0].spans[0].from), (large, 1, Position(100)));
        assert_eq!(source.wait_queue().admitted_ids(), 0);
    }

    /// Returns a counter with five numbers left in the present range, and six in the next. Other
    /// daemons have the numbers in between.
    fn counter_in_its_last_ranges() -> Source {
        let source = counter(0).with_shared_counter();
        for (from, to) in [(10, 15), (20, 26)] {
            source.add_range(Range { from: Position(from), to: Position(to), generation: 0 });
        }
        source
    }

    #[test]
    fn a_request_larger_than_both_last_ranges_is_refused() {
        let source = counter_in_its_last_ranges();
        let admit =
            |count| source.admit(&source.window(START), request(count, Duration::from_secs(1), false));
        let early = admit(8).unwrap();
        assert!(after(&source, Duration::ZERO).is_empty(), "another range may come");
        source.end_ranges();
        assert_eq!(source.left_of_counter(), 11);
        assert_eq!(admit(8), Err(Refusal::CounterEnded));
        let late = admit(6).unwrap();
        let finished = after(&source, Duration::ZERO);
        let outcomes: Vec<_> = finished.iter().map(|it| (it.id, it.refusal, it.spans.len())).collect();
        assert_eq!(outcomes, [(late, None, 1), (early, Some(Refusal::CounterEnded), 0)]);
        assert_eq!(finished[0].spans[0].from, Position(20));
        assert_eq!((source.wait_queue().admitted_ids(), source.window(START).bound), (0, Bound::Ended));
    }

    /// Another thread may read the ceiling just before the source goes on with its next range.
    #[test]
    fn a_ceiling_from_before_the_last_range_is_not_the_end() {
        let source = counter_in_its_last_ranges();
        source.end_ranges();
        let ceiling = source.grant().ceiling();
        assert!(source.use_next_range(6));
        assert!(!source.ends_at(ceiling));
        assert!(source.ends_at(source.grant().ceiling()));
    }

    proptest! {
        /// In any order of events, each request gets consecutive numbers of its own or a refusal,
        /// and no number between them is skipped.
        #[test]
        fn no_number_is_repeated_or_skipped(
            steps in prop::collection::vec((1_u64..200, 0_u64..3, any::<bool>(), 0_u64..300), 1..60),
        ) {
            let source = counter(0);
            let mut rng = fastrand::Rng::with_seed(1);
            let mut given = Vec::new();
            let mut open = 0;
            for (at, &(count, wait_s, partial, raise)) in steps.iter().enumerate() {
                let now = START.after(Duration::from_millis(at as u64 * 100));
                source.grant().raise(Position(source.grant().ceiling().0 + raise));
                let window = source.window(now);
                match source.claim(&window, count, &mut rng) {
                    Some(from) => given.push((from.0, count)),
                    None => {
                        let wait = Duration::from_secs(wait_s);
                        let due = now.boot.after(wait);
                        source.admit(&window, WaitRequest { count, due, wait, partial, shard: 0 }).unwrap();
                        open += 1;
                    }
                }
                source.advance(now, &mut rng);
                for finished in source.collect(0) {
                    open -= 1;
                    prop_assert!(finished.spans.len() <= 1, "the numbers are consecutive");
                    prop_assert_eq!(finished.spans.is_empty(), finished.refusal.is_some());
                    given.extend(finished.spans.iter().map(|span| (span.from.0, span.count)));
                }
                prop_assert_eq!(source.wait_queue().waiting_requests(), open);
            }
            given.sort_unstable();
            let mut next = 0;
            for (from, count) in given {
                prop_assert_eq!(from, next);
                next += count;
            }
            prop_assert_eq!(source.cursor(), Some(Position(next)));
        }
    }
}
