//! Admission to the wait queue. A request is admitted if its positions are available by its
//! deadline, and all requests admitted before still get theirs in time.

use super::{BYPASS_SHARE, Entry, Queue, Refusal, WaitId, WaitRequest};
use crate::clock::BootMicros;
use crate::source::{Bound, Source, Window};
use crate::sync::Ordering;
use snowbank_id::layout::Position;

/// While other requests wait, a small request is promised all of the positions to come except for
/// one in this many.
const RESERVED_SHARE: u64 = 64;

/// The positions that can be promised to a request.
pub(super) struct Supply {
    /// The first position that a claim could get now.
    next: u64,
    /// The position after the last one that will be available by the request's deadline, as far as
    /// that can be promised.
    pub(super) limit: u64,
    /// The number of positions below `limit` that are not available yet.
    to_come: u64,
}

impl Source {
    /// Admits a request to the wait queue. The caller must advance the queue at once, which may
    /// already serve the request.
    ///
    /// # Errors
    /// Refuses the request if the window's bound rules a wait out. Also refuses it if, by the
    /// deadline, there are too few positions for it and all requests admitted before.
    pub fn admit(&self, window: &Window, request: WaitRequest) -> Result<WaitId, Refusal> {
        match window.bound {
            Bound::Standing(ready_in) => return Err(Refusal::ClockBehind(ready_in)),
            Bound::YetToBegin(begins_in) if request.due < window.now.boot.after(begins_in) => {
                return Err(Refusal::YetToBegin(begins_in));
            }
            Bound::Sealed => return Err(Refusal::Sealed),
            Bound::Ceiling if self.grant.is_lost() => return Err(Refusal::Lost),
            Bound::Ended if self.left(window) == 0 && self.kind.follows_the_clock() => {
                return Err(Refusal::Ended);
            }
            Bound::Clock => self.begin_catch_up(window.now()),
            Bound::Ceiling | Bound::Ended | Bound::YetToBegin(_) => {}
        }
        let mut queue = self.wait_queue.lock();
        self.forget_lost_claims(self.grant.generation(), &mut queue);
        // The request is counted before the cursor is read, so that direct claims that begin later
        // must queue up. A direct claim that checked the count just before may still take promised
        // positions. In that case the request may be refused at its deadline.
        self.wait_queue.count(request.count);
        let limit_by_due = self.promise(window, &request, &mut queue).inspect_err(|_| {
            self.wait_queue.uncount(request.count);
        })?;
        let id = WaitId { due: request.due, number: queue.next_id };
        let turn = queue.next_turn;
        queue.next_id += 1;
        queue.next_turn += 1;
        queue.insert(Entry { id, request, spans: Vec::new(), limit_by_due, turn });
        if self.kind.follows_the_clock() {
            self.close_bypass_to_its_promise(window, &mut queue);
        } else {
            self.let_bypass(queue.waiting.len(), 0);
        }
        Ok(id)
    }

    /// Lowers the number of IDs that requests may take by a bypass, so that every promise can be
    /// kept, including the newest.
    fn close_bypass_to_its_promise(&self, window: &Window, queue: &mut Queue) {
        let waiting = queue.waiting.len();
        let left = match waiting {
            1 => self.wait_queue.left_for_bypass,
            _ => self.wait_queue.bypass_left.load(Ordering::Relaxed),
        };
        let spare = queue.summary().laxity(window.limit.0).min(self.left(window));
        self.let_bypass(waiting, left.min(spare));
    }

    /// Checks that a request can be promised its positions. Returns the supply's limit; `None`
    /// while the clock is unknown, and for a ticket source.
    fn promise(
        &self,
        window: &Window,
        request: &WaitRequest,
        queue: &mut Queue,
    ) -> Result<Option<u64>, Refusal> {
        if window.now.jumped {
            // The ID clock is unknown until the keeper has judged a reading. The keeper does so
            // as soon as a request waits.
            return Ok(None);
        }
        if !self.kind.follows_the_clock() {
            return self.promise_whole(request).map(|()| None);
        }
        self.learn_limits(window, queue);
        let supply = self.supply(window, request.due);
        let count = request.promised();
        let short = self.short_of_supply(count, &supply, request.due, queue);
        if short == 0 {
            return Ok(Some(supply.limit));
        }
        // If the same request comes again later, it has its whole wait.
        let whole = self.supply(window, window.now.boot.after(request.wait));
        if count > whole.limit.saturating_sub(window.floor.0) {
            return Err(Refusal::Exhausted(None));
        }
        // It is admitted once its deadline lies in the tick of `last`, the last position that it
        // needs.
        let at_hand = supply.limit - supply.to_come;
        let needed = supply.to_come.saturating_add(short).saturating_mul(self.wait_queue.ticks_per_promise);
        let last = Position(at_hand.saturating_add(needed).saturating_sub(1));
        Err(Refusal::Exhausted(Some(self.reaches_in(window.now, last).saturating_sub(request.wait))))
    }

    /// Returns how many positions the supply lacks for a new request for `count` positions.
    ///
    /// A request is promised no more than an even share of the supply. Each waiting request is
    /// assumed to get as many positions as the new request, or all that it wants if that is fewer.
    /// While other requests wait, a sixteenth of the positions to come is kept for smaller
    /// requests. A request for more than an even share of a tick is not promised that sixteenth. So
    /// a large request is never promised positions that others need.
    fn short_of_supply(&self, count: u64, supply: &Supply, due: BootMicros, queue: &mut Queue) -> u64 {
        let others = queue.waiting.len();
        let held = supply.limit.saturating_sub(supply.next);
        let not_promised = if others == 0 {
            0
        } else if count > self.wait_queue.share_of_tick(others + 1) {
            supply.to_come / BYPASS_SHARE
        } else {
            supply.to_come / RESERVED_SHARE
        };
        let held = held.saturating_sub(not_promised);
        let summary = queue.summary();
        let promised = count.saturating_add(summary.promised_by(due));
        let shared = count.saturating_add(summary.wanted_of_at_most(count));
        let short_of_later = summary.short_of_later(count, due, supply.next);
        promised.max(shared).saturating_sub(held).max(short_of_later)
    }

    /// Returns the supply that a request with this deadline may count on.
    pub(super) fn supply(&self, window: &Window, due: BootMicros) -> Supply {
        let at_hand = self.limit_at(window.id_time).0;
        let wait = due.since(window.now.boot);
        let to_come =
            self.limit_after(window.now, wait).0.saturating_sub(at_hand) / self.wait_queue.ticks_per_promise;
        Supply { next: self.next_free(window), limit: at_hand.saturating_add(to_come), to_come }
    }

    /// Returns the first position that a claim could get now.
    pub(super) fn next_free(&self, window: &Window) -> u64 {
        self.cursor.load(Ordering::Relaxed).max(window.floor.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::clock::Now;
    use crate::grant::Grant;
    use crate::source::Rules;
    use crate::source::tests::{RULES, START, TWITTER, drain, numbering};
    use snowbank_id::layout::{Tick, UnixMicros};

    const LONG_TICKS: &str = "time:31,worker:2,sequence:8;tick=3600s";

    proptest! {
        /// A refused request that is repeated with the same wait is admitted after `retry_after`,
        /// and not a moment before.
        #[test]
        fn a_refused_request_is_admitted_exactly_after_retry_after(
            layout in prop::sample::select(vec![TWITTER, "time:31,worker:2,sequence:8;tick=10s", LONG_TICKS]),
            phase_us in 0_i64..3_600_000_000,
            // Fractions of a tick, in thousandths.
            wait in 0_u32..4_000,
            count in 1_u64..3_000,
            ahead in prop::sample::select(vec![0, 0, 3]),
        ) {
            let numbering = numbering(layout);
            let tick = Duration::from_millis(numbering.tick_ms());
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
                let request = WaitRequest { count, due, wait, partial: false, shard: 0 };
                source.admit(&source.window(now), request)
            };
            if let Err(refusal) = admit(begin) {
                let Refusal::Exhausted(Some(retry_after)) = refusal else {
                    panic!("{refusal:?}, although a window holds that many IDs");
                };
                let at = begin.after(retry_after);
                let before = begin.after(retry_after.saturating_sub(Duration::from_micros(2)));
                prop_assert!(admit(before).is_err(), "{retry_after:?} is too long");
                prop_assert!(admit(at).is_ok(), "{retry_after:?} is too short");
            }
        }
    }
}
