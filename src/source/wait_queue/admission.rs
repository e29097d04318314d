//! Admission to the wait queue: a request is admitted if its positions are available by its deadline, after all requests
//! admitted before it.

use super::{Entry, Refusal, Ticket, WaitRequest};
use crate::source::{Bound, Source, Window};
use crate::sync::Ordering;
use snowbank_client::layout::Position;

/// The fraction of the rate, as a divisor, that is not promised to requests admitted behind others.
const RESERVED_SHARE: u64 = 64;

/// The positions that an admitted request will get.
struct Promise {
    /// The number of positions that it will have by its deadline.
    count: u64,
    /// The number of positions by which it could finish later and still be in time.
    slack: u64,
}

impl Source {
    /// Admits a request to the wait queue. The caller must advance the queue at once: a request that waits only for others
    /// may be served already.
    ///
    /// # Errors
    /// Refuses at once if the positions are not available by the deadline, after all requests admitted before.
    pub fn admit(&self, window: &Window, request: WaitRequest) -> Result<Ticket, Refusal> {
        match window.bound {
            Bound::Standing(ready_in) => return Err(Refusal::ClockBehind(ready_in)),
            Bound::YetToBegin(begins_in) if request.due < window.now.boot.after(begins_in) => {
                return Err(Refusal::YetToBegin(begins_in));
            }
            Bound::Sealed => return Err(Refusal::Sealed),
            Bound::Ceiling if self.grant.is_lost() => return Err(Refusal::Lost),
            Bound::Ended if self.left(window) == 0 => return Err(Refusal::Ended),
            Bound::Clock => self.begin_catch_up(window.now()),
            Bound::Ceiling | Bound::Ended | Bound::YetToBegin(_) => {}
        }
        let mut queue = self.wait_queue.lock();
        let passes = !queue.large.is_empty() && self.wait_queue.passes(request.count);
        let small = passes || (request.count <= self.wait_queue.small_ids && queue.large.is_empty());
        let before = if small { &self.wait_queue.admitted_small } else { &*self.wait_queue.admitted };
        let before_ids = before.load(Ordering::Relaxed);
        // Counted before the cursor is read: from here on, a direct claim sees that a request waits.
        self.wait_queue.count(request.count, small);
        let promise = match self.promise(window, &request, before_ids) {
            Ok(promise) => promise,
            Err(refusal) => {
                self.wait_queue.uncount(request.count, small);
                if passes {
                    self.wait_queue.uncount_passage(request.count);
                }
                return Err(refusal);
            }
        };
        self.wait_queue.uncount(request.count - promise.count, small);
        if passes {
            self.wait_queue.uncount_passage(request.count - promise.count);
        }
        let ticket = Ticket(queue.next_ticket);
        queue.next_ticket += 1;
        let entry = Entry {
            ticket,
            request: WaitRequest { count: promise.count, ..request },
            spans: Vec::new(),
            generation: self.grant.generation(),
            passes,
            passing_limit: self.wait_queue.passed_ids.load(Ordering::Relaxed).saturating_add(promise.slack),
        };
        if small {
            queue.small.push_back(entry);
        } else {
            self.wait_queue.passing_limit.fetch_min(entry.passing_limit, Ordering::Relaxed);
            queue.large.push_back(entry);
        }
        Ok(ticket)
    }

    /// Returns the promise for a request behind `before` positions admitted already: all its positions, or for a partial
    /// request those that will be available.
    fn promise(&self, window: &Window, request: &WaitRequest, before: u64) -> Result<Promise, Refusal> {
        if window.now.jumped {
            // The ID clock is unknown until the keeper has looked. It looks as soon as a request waits.
            return Ok(Promise { count: request.count, slack: 0 });
        }
        let at_hand = self.limit_at(window.id_time).0;
        let wait = request.due.since(window.now.boot);
        let to_come =
            self.limit_after(window.now, wait).0.saturating_sub(at_hand) / self.wait_queue.ticks_per_promise;
        let limit = at_hand.saturating_add(to_come);
        let reserved = if before == 0 { 0 } else { to_come / RESERVED_SHARE };
        let cursor = self.cursor.load(Ordering::Relaxed).max(window.floor.0);
        let turn = cursor.saturating_add(before);
        let finish = turn.saturating_add(request.count);
        if finish.saturating_add(reserved) <= limit {
            return Ok(Promise { count: request.count, slack: limit - finish });
        }
        if request.partial && turn < limit {
            // Only one ID is promised: the others may go to requests that pass.
            return Ok(Promise { count: request.count.min(limit - turn), slack: limit - turn - 1 });
        }
        if request.count > limit.saturating_sub(window.floor.0) {
            return Err(Refusal::Exhausted(None));
        }
        // A request that waits as long can have them once its deadline lies in the tick of the last.
        let needed = finish.saturating_add(reserved).saturating_sub(at_hand);
        let to_pass = needed.saturating_mul(self.wait_queue.ticks_per_promise).saturating_sub(1);
        let last = Position(at_hand.saturating_add(to_pass));
        Err(Refusal::Exhausted(Some(self.reaches_in(window.now, last).saturating_sub(wait))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::ceiling::Grant;
    use crate::clock::Now;
    use crate::source::Rules;
    use crate::source::tests::{BEFORE, Heard, RULES, START, TWITTER, drain, numbering, rng, source};
    use snowbank_client::layout::{Tick, UnixMicros};

    #[derive(Clone, Debug)]
    enum Step {
        /// A request arrives; if it `leaves`, its connection closes right after.
        Ask { count: u64, wait_ms: u64, partial: bool, leaves: bool },
        /// Time passes.
        Pass { ms: u64 },
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let ask = (1_u64..300, 0_u64..4, any::<bool>(), any::<bool>());
        prop_oneof![
            9 => ask.prop_map(|(count, wait_ms, partial, leaves)| Step::Ask { count, wait_ms, partial, leaves }),
            1 => (0_u64..6).prop_map(|ms| Step::Pass { ms }),
        ]
    }

    fn request(count: u64, now: Now, wait_ms: u64, partial: bool) -> WaitRequest {
        WaitRequest { count, due: now.boot.after(Duration::from_millis(wait_ms)), partial, shard: 0 }
    }

    proptest! {
        /// While nothing can be claimed, a waiting small request takes exactly its promise from the slack of large ones. It
        /// takes nothing after it was refused or is gone.
        #[test]
        fn refused_requests_leave_the_slack_as_it_was(steps in prop::collection::vec(any_step(), 1..200)) {
            let numbering = numbering(TWITTER);
            let ceiling = numbering.first_of(Tick(numbering.tick_at(START.wall).0 + 1));
            let grant = Grant::new(ceiling);
            let source = Source::new(String::from("test"), numbering, RULES, grant, Position(0), BEFORE);
            drain(&source, START);
            let mut now = START;
            source.admit(&source.window(now), request(100_000, now, 60_000, false)).expect("there is time enough");
            let taken = |source: &Source| source.wait_queue.passed_ids.load(Ordering::Relaxed);
            for step in steps {
                match step {
                    Step::Ask { count, wait_ms, partial, leaves } => {
                        let ticket = source.admit(&source.window(now), request(count, now, wait_ms, partial));
                        if let (true, Ok(ticket)) = (leaves, ticket) {
                            source.cancel(ticket);
                        }
                    }
                    Step::Pass { ms } => {
                        now = now.after(Duration::from_millis(ms));
                        source.advance(now, &mut rng(), &Heard::default());
                    }
                }
                prop_assert_eq!(taken(&source), source.wait_queue.admitted_small.load(Ordering::Relaxed));
            }
            source.advance(now.after(Duration::from_secs(1)), &mut rng(), &Heard::default());
            prop_assert_eq!(taken(&source), 0);
        }
    }

    const LONG_TICKS: &str = "time:31,worker:2,sequence:8;tick=3600s";

    proptest! {
        /// `retry_after` is the time that is left: a request that waits as long is admitted then, and not a moment before.
        #[test]
        fn a_refused_request_is_admitted_after_the_time_that_is_left(
            layout in prop::sample::select(vec![TWITTER, "time:31,worker:2,sequence:8;tick=10s", LONG_TICKS]),
            phase_us in 0_i64..3_600_000_000,
            // Fractions of a tick, in thousandths.
            wait in 0_u32..4_000,
            count in 1_u64..3_000,
            ahead in prop::sample::select(vec![0, 0, 3]),
        ) {
            let numbering = numbering(layout);
            let tick = Duration::from_millis(numbering.layout().tick_ms());
            let rules = Rules { burst_window: 4 * tick, max_ahead: 8 * tick, ..RULES };
            let begin = Now { wall: UnixMicros(START.wall.0 + phase_us), ..START };
            // A start ahead of the clock begins a catch-up.
            let first = Tick(numbering.tick_at(begin.wall).0 + ahead);
            let start = if ahead == 0 { Position(0) } else { numbering.first_of(first) };
            let source = Source::new(String::new(), numbering.clone(), rules, Grant::new(numbering.end()), start, begin);
            drain(&source, begin);
            let count = (count * numbering.ids_per_tick() / 1_000).max(1);
            let wait = tick * wait / 1_000;
            let admit = |now: Now| {
                let due = now.boot.after(wait);
                let request = WaitRequest { count, due, partial: false, shard: 0 };
                source.admit(&source.window(now), request)
            };
            if let Err(refusal) = admit(begin) {
                let Refusal::Exhausted(Some(retry_after)) = refusal else {
                    panic!("{refusal:?}, a window holds it");
                };
                let at = begin.after(retry_after);
                let before = begin.after(retry_after - Duration::from_micros(2));
                prop_assert!(admit(before).is_err(), "{retry_after:?} is too long");
                prop_assert!(admit(at).is_ok(), "{retry_after:?} is too short");
            }
        }
    }

    /// Refused requests must not close the passage to requests that wait.
    #[test]
    fn requests_that_are_refused_keep_nobody_from_passing() {
        let source = source(TWITTER, RULES);
        drain(&source, START);
        let window = source.window(START);
        // The ten ticks to come, less a slack of eight.
        source.admit(&window, request(4_096 * 10 - 8, START, 10, false)).expect("there is time enough");
        for _ in 0..100 {
            let refused = source.admit(&window, request(1, START, 0, false));
            assert!(matches!(refused, Err(Refusal::Exhausted(_))), "{refused:?}");
        }
        source.admit(&window, request(1, START, 4, false)).expect("it passes");
    }
}
