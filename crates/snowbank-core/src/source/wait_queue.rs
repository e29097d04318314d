//! The wait queue: requests for more positions than a source's window holds.
//!
//! A request is admitted if it can have its positions by its deadline, and every request before it
//! can still have its own. Otherwise it is refused at once. So an admission is a promise. While
//! requests wait, each tick's positions are shared out evenly among them (`share`), but a request
//! that would otherwise miss its deadline comes first. A connection has at most one request here,
//! so each connection gets the same share, however much it wants.
//!
//! Any shard may advance the queue. It then claims for every request there, so no shard waits for
//! another's thread. The lock is taken only by requests that must wait and by the wake-up of a
//! tick. A request that is served at once uses only atomics here.
//!
//! Waiting requests leave a sixteenth of each tick to requests that arrive before the next tick. A
//! new request passes those that wait if it wants no more than an even share of a tick, and no
//! promise needs the positions. So a client that asks for single IDs seldom waits. Positions that
//! no request takes are shared out with the next tick. If the burst window is too short for that,
//! waiting requests leave nothing.

mod admission;
mod queue;
mod request;
mod share;
mod summary;
mod whole;

pub use request::{Advanced, Finished, Refusal, WaitId, WaitRequest};

use std::time::Duration;

use crossbeam::utils::CachePadded;

use super::{Bound, Source, Span, Window};
use crate::clock::Now;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use queue::{Entry, Queue};
use snowbank_id::layout::Position;

/// The fraction of a tick, as a divisor, that waiting requests leave to requests that pass them.
const PASSING_SHARE: u64 = 16;

/// The longest delay of a tick's wake-up: timers have a grain of 1 ms, and then the thread must get
/// the processor. A tick's IDs can be claimed for a burst window after its end.
const LATE_WAKE_UP: Duration = Duration::from_millis(4);

/// The waiting requests of one source.
#[derive(Debug)]
pub struct WaitQueue {
    queue: Mutex<Queue>,
    /// The IDs that are admitted and not yet claimed.
    admitted: CachePadded<AtomicU64>,
    /// The largest request that may pass those that wait: a share of a tick.
    passing_ids_max: AtomicU64,
    /// The IDs that may still pass before the next tick.
    passing_left: AtomicU64,
    ids_per_tick: u64,
    /// The IDs of a tick that waiting requests leave to others.
    left_for_passing: u64,
    /// One in this many future ticks can be promised.
    ticks_per_promise: u64,
}

impl WaitQueue {
    pub(super) fn new(ids_per_tick: u64, burst_window: Duration, tick: Duration) -> Self {
        // The next wake-up can claim what is left of a tick, if the burst window covers the delay.
        let rolls_over = burst_window >= LATE_WAKE_UP;
        // If a late wake-up can miss whole ticks, about half of the ticks are lost, and only half
        // are promised.
        let is_reached = burst_window.saturating_add(tick) >= LATE_WAKE_UP;
        WaitQueue {
            queue: Mutex::new(Queue::default()),
            admitted: CachePadded::new(AtomicU64::new(0)),
            passing_ids_max: AtomicU64::new(0),
            passing_left: AtomicU64::new(0),
            ids_per_tick,
            left_for_passing: if rolls_over { (ids_per_tick / PASSING_SHARE).max(1) } else { 0 },
            ticks_per_promise: if is_reached { 1 } else { 2 },
        }
    }

    /// Returns how many IDs are admitted and not yet claimed.
    #[inline]
    pub fn admitted_ids(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that wait. Takes the lock, so it is not for a request's path.
    pub fn waiting_requests(&self) -> u64 {
        self.lock().waiting.len() as u64
    }

    /// Returns true if a request of this size may be served before those that wait. If any wait,
    /// the request uses up some of the IDs that they leave until the next tick, even if its claim
    /// then fails.
    #[inline]
    pub(super) fn may_pass(&self, count: u64) -> bool {
        self.admitted_ids() == 0 || self.count_passing(count)
    }

    /// Counts a request that passes those that wait. Returns false if it is too large, or if they
    /// leave too little.
    #[cold]
    fn count_passing(&self, count: u64) -> bool {
        if count > self.passing_ids_max.load(Ordering::Relaxed) {
            return false;
        }
        let counted = self
            .passing_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(count));
        counted.is_ok()
    }

    /// Returns an even share of a tick among this many requests.
    fn share_of_tick(&self, requests: usize) -> u64 {
        (self.ids_per_tick / (requests as u64).max(1)).max(1)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    fn count(&self, ids: u64) {
        self.admitted.fetch_add(ids, Ordering::Relaxed);
    }

    fn uncount(&self, ids: u64) {
        self.admitted.fetch_sub(ids, Ordering::Relaxed);
    }
}

impl Source {
    /// Claims for waiting requests, and ends waits that are over.
    pub fn advance(&self, now: Now, rng: &mut fastrand::Rng) -> Advanced {
        // The claims below carry the window's generation, even if the grant is lost before the lock
        // is taken.
        let (mut window, generation) = self.window_and_generation(now);
        let mut queue = self.wait_queue.lock();
        let collected_before = queue.finished.len();
        self.forget_lost_claims(generation, &mut queue);
        if self.kind.follows_the_clock() {
            self.feed(&window, &mut queue, rng);
        } else {
            window = self.feed_whole(window, &mut queue, rng);
        }
        let some_wait = !queue.waiting.is_empty();
        let meets_ceiling = window.bound == Bound::Ceiling && some_wait;
        if window.bound == Bound::Clock && some_wait {
            self.begin_catch_up(now);
        }
        self.end_waits(&window, &mut queue, rng);
        let mut shards: Vec<usize> =
            queue.finished[collected_before..].iter().map(|(shard, _)| *shard).collect();
        let next_in = self.next_event(&window, &queue);
        drop(queue);

        shards.sort_unstable();
        shards.dedup();
        Advanced { next_in, shards, meets_ceiling: meets_ceiling && self.grant.want_more() }
    }

    /// Drops positions that were claimed before the grant was lost. Their requests will get as many
    /// others.
    fn forget_lost_claims(&self, generation: u64, queue: &mut Queue) {
        if queue.generation == generation {
            return;
        }
        for entry in &mut queue.waiting {
            let lost = entry.spans.drain(..).map(|span| span.count).sum();
            self.wait_queue.count(lost);
            entry.request.count += lost;
        }
        queue.generation = generation;
        queue.is_summary_stale = true;
    }

    /// Claims the window's positions, except for the part that is left to requests that pass, and
    /// shares them out.
    fn feed(&self, window: &Window, queue: &mut Queue, rng: &mut fastrand::Rng) {
        let left_for_passing = self.wait_queue.left_for_passing;
        self.learn_limits(window, queue);
        loop {
            let summary = queue.summary();
            let due = summary.due_now(window.limit.0);
            let limit = window.limit.0.saturating_sub(left_for_passing);
            let limit = limit.max(self.next_free(window).saturating_add(due)).min(window.limit.0);
            let wanted = summary.wanted_of_at_most(u64::MAX);
            let Some(span) = self.claim_some(window, 1, wanted, Position(limit), rng) else { break };
            queue.shares.clear();
            queue.shares.extend(queue.waiting.iter().map(|entry| entry.share()));
            share::share_out(&mut queue.shares, span.count, due, &mut queue.next_turn);
            self.hand_over(span, queue);
        }
        let spare = queue.summary().laxity(window.limit.0);
        self.let_pass(queue.waiting.len(), spare.min(self.left(window)));
    }

    /// Computes missing limits, and all limits again if the clock has stepped forward by more than
    /// a tick. By the old limits, requests that have time would look urgent, and would take every
    /// position. After a step back the old limits stay. By new ones, requests whose promise is
    /// broken already would take every position.
    fn learn_limits(&self, window: &Window, queue: &mut Queue) {
        if window.now.jumped {
            return;
        }
        let is_outdated = queue.waiting.last().is_some_and(|entry| {
            let limit = self.supply(window, entry.request.due).limit;
            let known = entry.limit_by_due.unwrap_or(limit);
            limit > known.saturating_add(self.wait_queue.ids_per_tick)
        });
        if !is_outdated && !queue.lacks_limits {
            return;
        }
        for entry in &mut queue.waiting {
            let limit = self.supply(window, entry.request.due).limit;
            entry.limit_by_due = entry.limit_by_due.max(Some(limit));
        }
        (queue.lacks_limits, queue.is_summary_stale) = (false, true);
    }

    /// Cuts a claim into the shares, and finishes the requests that have all their positions.
    fn hand_over(&self, span: Span, queue: &mut Queue) {
        self.wait_queue.uncount(span.count);
        let mut from = span.from.0;
        for (entry, share) in queue.waiting.iter_mut().zip(&queue.shares) {
            entry.turn = share.turn;
            if share.given > 0 {
                entry.take(Span { from: Position(from), count: share.given });
                from += share.given;
            }
        }
        queue.is_summary_stale = true;
        let served = queue.waiting.extract_if(.., |entry| entry.request.count == 0);
        queue.finished.extend(served.map(|entry| entry.finish(None, queue.generation)));
    }

    /// Lets requests pass until the next call: each for at most a share of a tick, and this many
    /// IDs in all.
    fn let_pass(&self, waiting: usize, ids: u64) {
        let largest = self.wait_queue.share_of_tick(waiting + 1);
        self.wait_queue.passing_ids_max.store(largest, Ordering::Relaxed);
        self.wait_queue.passing_left.store(ids, Ordering::Relaxed);
    }

    fn end_waits(&self, window: &Window, queue: &mut Queue, rng: &mut fastrand::Rng) {
        let is_sealed = window.bound == Bound::Sealed;
        let over = queue.waiting.partition_point(|entry| is_sealed || entry.request.due <= window.now.boot);
        queue.is_summary_stale |= over > 0;
        for entry in queue.waiting.drain(..over) {
            self.wait_queue.uncount(entry.request.count);
            let mut entry = entry;
            self.take_the_rest(window, &mut entry, rng);
            let satisfied = entry.request.partial && !entry.spans.is_empty();
            let refusal = (!satisfied).then(|| self.refusal_at_deadline(window));
            queue.finished.push(entry.finish(refusal, queue.generation));
        }
    }

    fn refusal_at_deadline(&self, window: &Window) -> Refusal {
        match window.bound {
            Bound::Clock => Refusal::Exhausted(Some(self.next_tick_in(window))),
            Bound::Ceiling if self.grant.is_lost() => Refusal::Lost,
            Bound::Ceiling => Refusal::NoCeiling,
            Bound::Standing(ready_in) => Refusal::ClockBehind(ready_in),
            Bound::YetToBegin(begins_in) => Refusal::YetToBegin(begins_in),
            Bound::Ended if !self.kind.follows_the_clock() => Refusal::CounterEnded,
            Bound::Ended => Refusal::Ended,
            Bound::Sealed => Refusal::Sealed,
        }
    }

    fn next_event(&self, window: &Window, queue: &Queue) -> Option<Duration> {
        let due = queue.waiting.first()?.request.due;
        Some(self.next_tick_in(window).min(due.since(window.now.boot)))
    }

    /// Takes the finished requests of one shard. Each must end with
    /// [`Lane::end_wait`](crate::shard::Lane::end_wait), because the grant may be lost by now.
    pub fn collect(&self, shard: usize) -> Vec<Finished> {
        let mut queue = self.wait_queue.lock();
        let mine = queue.finished.extract_if(.., |(owner, _)| *owner == shard);
        mine.map(|(_, finished)| finished).collect()
    }

    /// Ends the wait of a request because the daemon stops. Positions claimed for it are skipped.
    pub fn refuse(&self, id: WaitId) -> Finished {
        self.cancel(id);
        Finished {
            id,
            spans: Vec::new(),
            refusal: Some(Refusal::Sealed),
            generation: self.grant.generation(),
        }
    }

    /// Ends the wait of a request whose connection is gone. Positions claimed for it are skipped.
    /// Returns their number.
    pub fn cancel(&self, id: WaitId) -> u64 {
        let mut queue = self.wait_queue.lock();
        let spans = if let Some(entry) = queue.remove(id) {
            self.wait_queue.uncount(entry.request.count);
            entry.spans
        } else {
            let index = queue.finished.iter().position(|(_, finished)| finished.id == id);
            index.map(|index| queue.finished.remove(index).1.spans).unwrap_or_default()
        };
        spans.iter().map(|span| span.count).sum()
    }
}
