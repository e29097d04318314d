//! The wait queue: requests for more positions than a source's window holds.
//!
//! A request is admitted if it can have its positions by its deadline without taking those of any
//! earlier request. Otherwise the request is refused at once. So an admission is a promise. While
//! requests wait, each tick's positions are shared out evenly among them (`share`), but a request
//! that would otherwise miss its deadline comes first. A connection has at most one request in the
//! queue, so each connection gets the same share, however much its request wants.
//!
//! Any shard may advance the queue. The shard then claims positions for every request in the queue,
//! so no shard waits for the thread of another shard. Requests that must wait, and the wake-up of a
//! tick, take the queue's lock. A request that is served at once uses only the queue's atomics.
//!
//! Waiting requests leave a sixteenth of each tick to requests that arrive before the next tick. A
//! new request is served before the waiting ones on two conditions. It wants no more than an even
//! share of a tick, and no promise needs the positions. So a client that asks for single IDs seldom
//! waits. Positions that no new request takes are shared out with the next tick. If the burst
//! window is too short to carry positions over to the next tick, waiting requests leave none for
//! new ones.

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

/// The fraction of a tick, as a divisor, that waiting requests leave to requests that bypass them.
const BYPASS_SHARE: u64 = 16;

/// The longest delay of a tick's wake-up: timers have a grain of 1 ms, and then the thread must get
/// the processor. After a tick ends, its IDs can still be claimed for as long as the burst window.
const LATE_WAKE_UP: Duration = Duration::from_millis(4);

/// The waiting requests of one source.
#[derive(Debug)]
pub struct WaitQueue {
    queue: Mutex<Queue>,
    /// The number of IDs that admitted requests still lack.
    admitted: CachePadded<AtomicU64>,
    /// A request that bypasses the waiting requests wants at most this many IDs: an even share of a
    /// tick.
    bypass_ids_max: AtomicU64,
    /// The number of IDs that requests may still take by a bypass before the next tick.
    bypass_left: AtomicU64,
    ids_per_tick: u64,
    /// The number of IDs of each tick that waiting requests leave to those that bypass them.
    left_for_bypass: u64,
    /// Of this many future ticks, one is promised: 1 means every tick, 2 every second tick.
    ticks_per_promise: u64,
}

impl WaitQueue {
    pub(super) fn new(ids_per_tick: u64, burst_window: Duration, tick: Duration) -> Self {
        // Let the burst window be no shorter than the longest delay. Then the wake-up of the next
        // tick can still claim the rest of the tick before it.
        let rolls_over = burst_window >= LATE_WAKE_UP;
        // If a late wake-up can miss whole ticks, about half of the ticks are lost, so only half of
        // them are promised.
        let is_reached = burst_window.saturating_add(tick) >= LATE_WAKE_UP;
        WaitQueue {
            queue: Mutex::new(Queue::default()),
            admitted: CachePadded::new(AtomicU64::new(0)),
            bypass_ids_max: AtomicU64::new(0),
            bypass_left: AtomicU64::new(0),
            ids_per_tick,
            left_for_bypass: if rolls_over { (ids_per_tick / BYPASS_SHARE).max(1) } else { 0 },
            ticks_per_promise: if is_reached { 1 } else { 2 },
        }
    }

    /// Returns how many IDs the admitted requests still lack.
    #[inline]
    pub fn admitted_ids(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that wait. This function takes the lock, so the path of a
    /// request must not call it.
    pub fn waiting_requests(&self) -> u64 {
        self.lock().waiting.len() as u64
    }

    /// Returns true if a request for `count` IDs may be served before the waiting requests. Waiting
    /// requests leave some IDs to others until the next tick. A true answer uses up `count` of
    /// these, even if the claim then fails.
    #[inline]
    pub(super) fn may_bypass(&self, count: u64) -> bool {
        self.admitted_ids() == 0 || self.count_bypass(count)
    }

    /// Counts a request that bypasses the waiting requests. Returns false if the request is too
    /// large, or if the waiting requests leave too few IDs.
    #[cold]
    fn count_bypass(&self, count: u64) -> bool {
        if count > self.bypass_ids_max.load(Ordering::Relaxed) {
            return false;
        }
        let counted = self
            .bypass_left
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
    /// Claims positions for the waiting requests, and ends the waits that are over.
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

    /// Drops positions that were claimed before the grant was lost. The requests that held them get
    /// the same number of new positions later.
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

    /// Claims the window's positions, except for the part that is left for the bypass. Shares the
    /// claimed positions out among the waiting requests.
    fn feed(&self, window: &Window, queue: &mut Queue, rng: &mut fastrand::Rng) {
        let left_for_bypass = self.wait_queue.left_for_bypass;
        self.learn_limits(window, queue);
        loop {
            let summary = queue.summary();
            let due = summary.due_now(window.limit.0);
            let limit = window.limit.0.saturating_sub(left_for_bypass);
            let limit = limit.max(self.next_free(window).saturating_add(due)).min(window.limit.0);
            let wanted = summary.wanted_of_at_most(u64::MAX);
            let Some(span) = self.claim_some(window, 1, wanted, Position(limit), rng) else { break };
            queue.shares.clear();
            queue.shares.extend(queue.waiting.iter().map(|entry| entry.share()));
            share::share_out(&mut queue.shares, span.count, due, &mut queue.next_turn);
            self.hand_over(span, queue);
        }
        let spare = queue.summary().laxity(window.limit.0);
        self.let_bypass(queue.waiting.len(), spare.min(self.left(window)));
    }

    /// Computes `limit_by_due` for the requests that have none. If the clock has stepped forward by
    /// more than a tick, computes all limits again. With the old limits, requests that have enough
    /// time would seem urgent, and would take every position. After a step back, the old limits
    /// stay. If they were computed again, requests whose promise is already broken would take every
    /// position.
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

    /// Gives each waiting request its share of a claim, and finishes the requests that have all
    /// their positions.
    fn hand_over(&self, span: Span, queue: &mut Queue) {
        self.wait_queue.uncount(span.count);
        let mut from = span.from.0;
        for (entry, share) in queue.waiting.iter_mut().zip(&queue.shares) {
            entry.turn = share.turn;
            if share.given > 0 {
                entry.add(Span { from: Position(from), count: share.given });
                from += share.given;
            }
        }
        queue.is_summary_stale = true;
        let served = queue.waiting.extract_if(.., |entry| entry.request.count == 0);
        queue.finished.extend(served.map(|entry| entry.finish(None, queue.generation)));
    }

    /// Lets new requests bypass the waiting ones until the next call. Each may take an even share
    /// of a tick at most, and all together may take `ids` at most.
    fn let_bypass(&self, waiting: usize, ids: u64) {
        let largest = self.wait_queue.share_of_tick(waiting + 1);
        self.wait_queue.bypass_ids_max.store(largest, Ordering::Relaxed);
        self.wait_queue.bypass_left.store(ids, Ordering::Relaxed);
    }

    fn end_waits(&self, window: &Window, queue: &mut Queue, rng: &mut fastrand::Rng) {
        let now = window.now.boot;
        let (is_sealed, ready_at) = match window.bound {
            Bound::Sealed => (true, now),
            // After a step back of the clock: nobody waits for what it cannot get.
            Bound::Standing(ready_in) | Bound::YetToBegin(ready_in) => (false, now.after(ready_in)),
            _ => (false, now),
        };
        let is_over = |due| is_sealed || due <= now || due < ready_at;
        let over = queue.waiting.partition_point(|entry| is_over(entry.request.due));
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

    /// Takes the finished requests of one shard out of the queue. The shard must end each of them
    /// with [`Lane::end_wait`](crate::shard::Lane::end_wait), because the grant may have been lost
    /// since the claim.
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
    /// Returns the number of these positions.
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
