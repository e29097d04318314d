//! The wait queue: requests for more positions than a source's window holds, in order of admission.
//!
//! A request is admitted if it can have its positions by its deadline, after all requests admitted before it. Otherwise it
//! is refused at once. Any shard may advance the queue, and then claims for the heads of the queue. So the order holds
//! across shards, and no shard waits for another's thread. The lock is taken only by requests that must wait and by the
//! wake-up of a tick. A request that is served at once only reads an atomic here.
//!
//! Small requests pass large ones. So a client that streams at the full rate does not delay other clients' single IDs by
//! more than a tick or two. Two measures make sure that admitted requests still finish in time:
//! - Large requests leave a sixteenth of a tick for small ones until the next tick. Nothing is lost, because the cursor may
//!   lag by the burst window.
//! - Each large request has a slack: the number of positions by which it could finish later and still be in time. Small
//!   requests pass until the least slack of all large ones is used up, and queue behind them otherwise. A request admitted
//!   behind others is promised a little less than the full rate, so that there is slack.

mod admission;
mod request;

pub use request::{Finished, Refusal, Signals, Ticket, WaitRequest};

use std::collections::VecDeque;
use std::time::Duration;

use crossbeam::utils::CachePadded;

use super::{Bound, Source, Span, Window};
use crate::clock::Now;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use snowbank_client::layout::Position;

/// The divisor that makes a request small: at most this fraction of a tick's IDs, at least one. As much of each tick is
/// kept for small requests.
const PASSING_SHARE: u64 = 16;

/// The longest delay of a tick's wake-up: timers have a grain of 1 ms, and then the thread must get the processor. A tick's
/// IDs can be claimed until the burst window after its end.
const LATE_WAKE_UP: Duration = Duration::from_millis(4);

#[derive(Debug)]
struct Entry {
    ticket: Ticket,
    request: WaitRequest,
    spans: Vec<Span>,
    /// The grant's generation under which `spans` were claimed.
    generation: u64,
    /// It passed large requests and was counted in `passed_ids`. IDs that it does not claim go back to their slack.
    passes: bool,
    /// Small requests may pass while `passed_ids` stays at or below this. Unused for a small request.
    passing_limit: u64,
}

#[derive(Debug, Default)]
struct Queue {
    /// Served first: each of them has passed all of `large`.
    small: VecDeque<Entry>,
    large: VecDeque<Entry>,
    /// Finished and not yet collected, each with its shard.
    finished: Vec<(usize, Finished)>,
    next_ticket: u64,
}

impl Queue {
    fn waiting(&self) -> impl Iterator<Item = &Entry> {
        self.small.iter().chain(&self.large)
    }
}

/// The answer to the question whether a request may be served before those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// No request waits.
    Free,
    /// It may pass large requests, and is counted against their slack.
    Counted,
    /// It must queue.
    Closed,
}

/// The waiting requests of one source.
#[derive(Debug)]
pub struct WaitQueue {
    queue: Mutex<Queue>,
    /// IDs admitted and not yet claimed.
    admitted: CachePadded<AtomicU64>,
    /// The part of `admitted` that small requests wait for.
    admitted_small: AtomicU64,
    /// IDs that passed large requests since the start: claimed, or promised to small requests that still wait.
    passed_ids: AtomicU64,
    /// The least `passing_limit` of all large requests, `u64::MAX` if there are none.
    passing_limit: AtomicU64,
    /// The largest request that may pass.
    small_ids: u64,
    /// The IDs of a tick that large requests leave for small ones.
    left_for_small: u64,
    /// The number of future ticks of which one can be promised.
    ticks_per_promise: u64,
}

impl WaitQueue {
    pub(super) fn new(ids_per_tick: u64, burst_window: Duration, tick: Duration) -> Self {
        let small_ids = (ids_per_tick / PASSING_SHARE).max(1);
        // The rest of a tick is claimed with the next wake-up, if that is not too late for it.
        let rolls_over = burst_window >= LATE_WAKE_UP;
        // If a late wake-up may miss whole ticks, about half of the ticks can be claimed, and only those are promised.
        let is_reached = burst_window.saturating_add(tick) >= LATE_WAKE_UP;
        WaitQueue {
            queue: Mutex::new(Queue::default()),
            admitted: CachePadded::new(AtomicU64::new(0)),
            admitted_small: AtomicU64::new(0),
            passed_ids: AtomicU64::new(0),
            passing_limit: AtomicU64::new(u64::MAX),
            small_ids,
            left_for_small: if rolls_over { small_ids } else { 0 },
            ticks_per_promise: if is_reached { 1 } else { 2 },
        }
    }

    /// IDs admitted and not yet claimed.
    #[inline]
    pub fn admitted_ids(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    /// The number of requests that wait. Takes the lock: not for a request's path.
    pub fn waiting_requests(&self) -> u64 {
        self.lock().waiting().count() as u64
    }

    /// Returns whether a request of this size may be served before those that wait.
    #[inline]
    pub(super) fn passage(&self, count: u64) -> Passage {
        if self.admitted_ids() == 0 {
            Passage::Free
        } else if self.admitted_small.load(Ordering::Relaxed) == 0 && self.passes(count) {
            Passage::Counted
        } else {
            Passage::Closed
        }
    }

    /// Counts a request that passes the large ones. Returns false if it is not small or their slack does not allow it.
    #[cold]
    fn passes(&self, count: u64) -> bool {
        if count > self.small_ids {
            return false;
        }
        let limit = self.passing_limit.load(Ordering::Relaxed);
        let passed = self.passed_ids.fetch_add(count, Ordering::Relaxed) + count;
        if passed > limit {
            self.passed_ids.fetch_sub(count, Ordering::Relaxed);
        }
        passed <= limit
    }

    /// Takes back a counted passage of `count` IDs that were not claimed.
    pub(super) fn uncount_passage(&self, count: u64) {
        self.passed_ids.fetch_sub(count, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    fn count(&self, ids: u64, small: bool) {
        self.admitted.fetch_add(ids, Ordering::Relaxed);
        if small {
            self.admitted_small.fetch_add(ids, Ordering::Relaxed);
        }
    }

    fn uncount(&self, ids: u64, small: bool) {
        self.admitted.fetch_sub(ids, Ordering::Relaxed);
        if small {
            self.admitted_small.fetch_sub(ids, Ordering::Relaxed);
        }
    }

    /// Takes back the IDs that a leaving entry has not claimed.
    fn uncount_rest(&self, entry: &Entry, small: bool) {
        self.uncount(entry.request.count, small);
        if entry.passes {
            self.uncount_passage(entry.request.count);
        }
    }

    /// Recomputes the passing limit. Called with the lock held, after entries left.
    fn update_passing_limit(&self, queue: &Queue) {
        let limit = queue.large.iter().map(|entry| entry.passing_limit).min().unwrap_or(u64::MAX);
        self.passing_limit.store(limit, Ordering::Relaxed);
    }
}

impl Source {
    /// Claims for waiting requests, in their order, and ends waits that are over. Returns after how long it must be called
    /// again, or `None` if no request waits.
    pub fn advance(&self, now: Now, rng: &mut fastrand::Rng, signals: &dyn Signals) -> Option<Duration> {
        // The claims below carry the window's generation, however long it takes to get the lock.
        let (window, generation) = self.window_and_generation(now);
        let mut queue = self.wait_queue.lock();
        let collected_before = queue.finished.len();
        self.feed_small(&window, generation, &mut queue, rng);
        self.feed_large(&window, generation, &mut queue, rng);
        let some_wait = queue.waiting().next().is_some();
        let meets_ceiling = window.bound == Bound::Ceiling && some_wait;
        if window.bound == Bound::Clock && some_wait {
            self.begin_catch_up(now);
        }
        self.end_waits(&window, &mut queue);
        let mut shards: Vec<usize> =
            queue.finished[collected_before..].iter().map(|(shard, _)| *shard).collect();
        if !shards.is_empty() {
            self.wait_queue.update_passing_limit(&queue);
        }
        let next = self.next_event(&window, &queue);
        drop(queue);

        shards.sort_unstable();
        shards.dedup();
        for shard in shards {
            signals.finished(shard);
        }
        if meets_ceiling && self.grant.want_more() {
            signals.ceiling_reached();
        }
        next
    }

    fn feed_small(&self, window: &Window, generation: u64, queue: &mut Queue, rng: &mut fastrand::Rng) {
        while let Some(head) = queue.small.front_mut() {
            if !self.feed(window, generation, head, window.limit, true, rng) {
                return;
            }
            queue.finished.extend(queue.small.pop_front().map(|entry| entry.finish(None)));
        }
    }

    fn feed_large(&self, window: &Window, generation: u64, queue: &mut Queue, rng: &mut fastrand::Rng) {
        let left = Position(window.limit.0.saturating_sub(self.wait_queue.left_for_small));
        let next_tick = window.now.boot.after(self.next_tick_in(window));
        while let Some(head) = queue.large.front_mut() {
            let last_chance = head.request.due <= next_tick;
            let limit = if last_chance { window.limit } else { left };
            if !self.feed(window, generation, head, limit, false, rng) {
                return;
            }
            queue.finished.extend(queue.large.pop_front().map(|entry| entry.finish(None)));
        }
    }

    /// Claims for one request below `limit`. Returns true when it has all its positions. Positions claimed under a grant
    /// that was lost are skipped and claimed again.
    fn feed(
        &self,
        window: &Window,
        generation: u64,
        entry: &mut Entry,
        limit: Position,
        small: bool,
        rng: &mut fastrand::Rng,
    ) -> bool {
        if entry.generation != generation {
            let lost = entry.spans.drain(..).map(|span| span.count).sum();
            self.wait_queue.count(lost, small);
            entry.request.count += lost;
            entry.generation = generation;
        }
        let Some(span) = self.claim_some(window, 1, entry.request.count, limit, rng) else {
            return false;
        };
        self.wait_queue.uncount(span.count, small);
        entry.request.count -= span.count;
        match entry.spans.last_mut() {
            Some(last) if last.end() == span.from => last.count += span.count,
            _ => entry.spans.push(span),
        }
        entry.request.count == 0
    }

    fn end_waits(&self, window: &Window, queue: &mut Queue) {
        let is_over = |entry: &Entry| entry.request.due <= window.now.boot || window.bound == Bound::Sealed;
        if !queue.waiting().any(is_over) {
            return;
        }
        let Queue { small, large, finished, .. } = queue;
        for (waiting, small) in [(small, true), (large, false)] {
            let (over, still): (VecDeque<Entry>, VecDeque<Entry>) = waiting.drain(..).partition(is_over);
            *waiting = still;
            for entry in over {
                self.wait_queue.uncount_rest(&entry, small);
                let satisfied = entry.request.partial && !entry.spans.is_empty();
                let refusal = (!satisfied).then(|| self.refusal_at_deadline(window));
                finished.push(entry.finish(refusal));
            }
        }
    }

    fn refusal_at_deadline(&self, window: &Window) -> Refusal {
        match window.bound {
            Bound::Clock => Refusal::Exhausted(Some(self.next_tick_in(window))),
            Bound::Ceiling => self.refusal_without_grant(),
            Bound::Standing(ready_in) => Refusal::ClockBehind(ready_in),
            Bound::YetToBegin(begins_in) => Refusal::YetToBegin(begins_in),
            Bound::Ended => Refusal::Ended,
            Bound::Sealed => Refusal::Sealed,
        }
    }

    /// Returns the refusal of a request whose IDs are not granted, or no longer.
    pub fn refusal_without_grant(&self) -> Refusal {
        if self.grant.is_lost() { Refusal::Lost } else { Refusal::NoCeiling }
    }

    fn next_event(&self, window: &Window, queue: &Queue) -> Option<Duration> {
        let due = queue.waiting().map(|entry| entry.request.due).min()?;
        Some(self.next_tick_in(window).min(due.since(window.now.boot)))
    }

    /// Takes the finished requests of one shard.
    pub fn collect(&self, shard: usize) -> Vec<Finished> {
        let mut queue = self.wait_queue.lock();
        let (mine, others) =
            std::mem::take(&mut queue.finished).into_iter().partition(|(owner, _)| *owner == shard);
        queue.finished = others;
        let mine: Vec<(usize, Finished)> = mine;
        let generation = self.grant.generation();
        // A refusal stays the same; only IDs are lost with the grant.
        let is_good = |finished: &Finished| finished.generation == generation || finished.refusal.is_some();
        let of_this_grant = |(_, finished): (usize, Finished)| match is_good(&finished) {
            true => finished,
            false => Finished { spans: Vec::new(), refusal: Some(self.refusal_without_grant()), ..finished },
        };
        mine.into_iter().map(of_this_grant).collect()
    }

    /// Ends the wait of a request because the daemon stops. Positions claimed for it are skipped.
    pub fn refuse(&self, ticket: Ticket) -> Finished {
        self.cancel(ticket);
        Finished {
            ticket,
            spans: Vec::new(),
            refusal: Some(Refusal::Sealed),
            generation: self.grant.generation(),
        }
    }

    /// Ends the wait of a request whose connection is gone. Positions claimed for it are skipped.
    pub fn cancel(&self, ticket: Ticket) {
        let mut queue = self.wait_queue.lock();
        let Queue { small, large, finished, .. } = &mut *queue;
        for (waiting, small) in [(small, true), (large, false)] {
            if let Some(index) = waiting.iter().position(|entry| entry.ticket == ticket)
                && let Some(entry) = waiting.remove(index)
            {
                self.wait_queue.uncount_rest(&entry, small);
            }
        }
        finished.retain(|(_, finished)| finished.ticket != ticket);
        self.wait_queue.update_passing_limit(&queue);
    }
}

impl Entry {
    fn finish(self, refusal: Option<Refusal>) -> (usize, Finished) {
        let Entry { ticket, request, spans, generation, .. } = self;
        (request.shard, Finished { ticket, spans, refusal, generation })
    }
}
