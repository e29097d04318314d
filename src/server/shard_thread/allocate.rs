//! Allocates IDs for a request of any protocol. The request gets them at once, or after a wait in
//! its source's queue.
//!
//! A connection allocates for each request of a turn with [`Turn::allocate`]. If this returns a
//! [`Parked`] request, the connection waits for that request between two turns.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::os_clock;

use super::limits::{self, Held};
use super::thread_state::ThreadState;
use super::turn::{Request, Turn};
use crate::config::Protocol;
use crate::frontends::{Ask, Reason, Words, in_words, no_grant, removed};
use crate::server::shared::live_config::Stage;
use snowbank_core::clock::BootMicros;
use snowbank_core::shard::{IdsLost, Taken};
use snowbank_core::source::Bound;
use snowbank_core::source::wait_queue::{Finished, Refusal, WaitId, WaitRequest};
use snowbank_id::layout::append_run;
use snowbank_wire::ErrorCode;

/// The reason why a request does not have its IDs yet.
pub(super) enum NotYet<F> {
    Refused(Reason),
    Parked(Parked<F>),
}

/// A request that waits for its IDs between two turns. If a queued request is dropped before its
/// wait is over, it leaves the queue, and the IDs that it already has are skipped.
pub(super) enum Parked<F> {
    /// The request waits in its source's queue.
    Queued(Box<Queued<F>>),
    /// The request waits for its client's rate, or for its source's first grant.
    Timed(Box<Timed<F>>),
}

impl Turn<'_> {
    /// Puts the IDs of a request into `state.runs` and counts them. If the client's rate does not
    /// allow the IDs yet, parks the request until it does. If the source has too few IDs, parks the
    /// request in the source's wait queue. `ahead` estimates how many IDs the later requests of
    /// this turn want from the source.
    #[inline]
    pub(super) fn allocate<F: Copy>(
        &mut self,
        request: Request<F>,
        ahead: impl FnOnce() -> u64,
    ) -> Result<(), NotYet<F>> {
        self.state.runs.clear();
        if !self.conditions.session.is_unlimited() {
            return self.allocate_limited(request);
        }
        match self.claim(&request.ask, ahead) {
            Ok(()) => Ok(()),
            Err(missing) => self.enqueue(request, missing, Held::UNLIMITED),
        }
    }

    /// Returns how many requests for a single ID can be served without reading the clock and
    /// without a claim. Returns 0 for a client with limits, because its requests are checked one by
    /// one.
    #[inline]
    pub(super) fn at_hand(&mut self, source: usize) -> usize {
        if self.conditions.session.is_unlimited() {
            self.state.shard.lane(source).0.at_hand() as usize
        } else {
            0
        }
    }

    /// Takes up to `most` of the IDs that are [`at_hand`](Self::at_hand), each for a request of its
    /// own. Adds these IDs to `state.runs`, and counts them. Returns their number.
    #[inline]
    pub(super) fn allocate_at_hand(&mut self, source: usize, most: usize) -> usize {
        let (lane, _) = self.state.shard.lane(source);
        let Some(run) = lane.take_at_hand(most as u64) else { return 0 };
        append_run(&mut self.state.runs, run);
        self.count_ids(source, u64::from(run.count), u64::from(run.count));
        run.count as usize
    }

    /// Allocates the IDs of a request if its client's limits allow it.
    #[cold]
    fn allocate_limited<F: Copy>(&mut self, request: Request<F>) -> Result<(), NotYet<F>> {
        let due = request.read_at.after(self.wait_of(&request.ask));
        let permitted = limits::permit(self.conditions.session, &request.ask, request.read_at, due);
        let permit = permitted.map_err(NotYet::Refused)?;
        let at = permit.at;
        let request = Request { ask: Ask { count: permit.count, ..request.ask }, ..request };
        let held = Held(Some(permit));
        if at > request.read_at {
            let timed = Timed { request, until: at, ungranted_in: None, held };
            return Err(NotYet::Parked(Parked::Timed(Box::new(timed))));
        }
        self.allocate_held(request, held)
    }

    /// Allocates the IDs of a request that its client's limits allow, or puts the request into its
    /// source's wait queue.
    fn allocate_held<F: Copy>(&mut self, request: Request<F>, held: Held) -> Result<(), NotYet<F>> {
        match self.claim(&request.ask, || 0) {
            Ok(()) => {
                held.record_drawn(request.ask.count_in(&self.state.runs));
                Ok(())
            }
            Err(missing) => self.enqueue(request, missing, held),
        }
    }

    /// Claims the IDs of a request and counts them.
    ///
    /// # Errors
    /// Returns the number of missing IDs.
    #[inline]
    fn claim(&mut self, ask: &Ask, ahead: impl FnOnce() -> u64) -> Result<(), u64> {
        let (lane, rng) = self.state.shard.lane(ask.source);
        lane.take(ask.count, ahead, rng, &mut self.state.runs)?;
        self.count_ids(ask.source, 1, ask.count_in(&self.state.runs));
        Ok(())
    }

    /// Counts requests that got their IDs.
    #[inline]
    fn count_ids(&self, source: usize, requests: u64, ids: u64) {
        let counters = &self.thread.counters.sources[source];
        counters.requests.add(requests);
        counters.ids.add(ids);
        if let Some(identity) = self.conditions.session.identity() {
            identity.usage.record_ids(self.thread.index, source, ids);
        }
    }

    /// Puts a request into its source's wait queue for the missing IDs. If the queue does not admit
    /// the request, or a stop has refused all waiting requests, the request is refused. But a
    /// client that accepts fewer IDs gets those that the request already has.
    #[cold]
    fn enqueue<F: Copy>(&mut self, request: Request<F>, missing: u64, held: Held) -> Result<(), NotYet<F>> {
        let thread = self.thread;
        let ask = &request.ask;
        if thread.refuses_all.get() {
            return self.finish(ask, held, Some(Refusal::Sealed)).map_err(NotYet::Refused);
        }
        let wait = self.wait_of(ask);
        let due = request.read_at.after(wait);
        match self.config.supplies[ask.source].stage {
            Stage::Granted => {}
            Stage::UnderWay if thread.now().boot < due => {
                let ungranted_in = Some(self.config.version);
                let timed = Timed { request, until: due, ungranted_in, held };
                return Err(NotYet::Parked(Parked::Timed(Box::new(timed))));
            }
            Stage::UnderWay | Stage::Waits { .. } | Stage::Removed => {
                return Err(NotYet::Refused(Reason::NoGrant));
            }
        }
        let (lane, _) = self.state.shard.lane(ask.source);
        let limit_of_turn = lane.window().limit;
        let source = lane.source();
        // The clock is read again, because it may have stepped since the turn's reading. Another
        // thread may already use the time after the step. With the older reading, a request could
        // be refused although IDs are available.
        let window = source.window(thread.now());
        let waiting = WaitRequest { count: missing, due, wait, partial: ask.partial, shard: thread.index };
        let id = match source.admit(&window, waiting) {
            Ok(id) => id,
            Err(refusal) => return self.finish(ask, held, Some(refusal)).map_err(NotYet::Refused),
        };
        let (sender, finished) = oneshot::channel();
        self.state.waiters.insert((ask.source, id), sender);
        // If the request needs IDs of the next tick, the ticker need only wake up by then.
        // Otherwise it is woken now, to serve the request or to ask for a higher ceiling.
        let waits_for_tick = window.bound == Bound::Clock && window.limit == limit_of_turn;
        let event = Instant::now() + source.next_tick_in(&window).min(due.since(window.now().boot));
        if !waits_for_tick || self.state.ticker_wakes_at.is_none_or(|at| event < at) {
            thread.common.wake_ups.wake_shard(thread.index);
        }
        let taken = lane.keep(self.state.runs.clone());
        thread.counters.sources[ask.source].waits.add(1);
        let queued = Queued {
            thread: Rc::clone(thread),
            request,
            id,
            finished,
            outcome: None,
            taken: Some((taken, held)),
        };
        Err(NotYet::Parked(Parked::Queued(Box::new(queued))))
    }

    /// Ends a request, either with the IDs in `state.runs` or with the refusal.
    fn finish(&mut self, ask: &Ask, held: Held, refusal: Option<Refusal>) -> Result<(), Reason> {
        match refusal {
            // The IDs that the request already has are skipped. They count towards the client's
            // rate.
            Some(refusal) if !ask.partial || self.state.runs.is_empty() => {
                held.record_drawn(self.state.runs.iter().map(|run| u64::from(run.count)).sum());
                Err(refusal.into())
            }
            _ => {
                let count = ask.count_in(&self.state.runs);
                self.count_ids(ask.source, 1, count);
                held.record_drawn(count);
                Ok(())
            }
        }
    }

    /// Returns how long a request may wait.
    fn wait_of(&self, ask: &Ask) -> Duration {
        let limits = &self.config.limits;
        match ask.wait_ms {
            Some(wait_ms) => Duration::from_millis(wait_ms.into()).min(limits.max_wait),
            None => limits.default_wait_for(self.config.source(ask.source).tick()),
        }
    }

    /// Counts a refusal, and returns the words for it.
    #[cold]
    pub(super) fn refuse(&self, ask: &Ask, protocol: Protocol, reason: Reason) -> Words {
        let supply = &self.config.supplies[ask.source];
        let name = supply.name();
        let identity = self.conditions.session.name();
        let max_wait = self.config.limits.max_wait;
        let longer_wait = Some(max_wait).filter(|&most| self.wait_of(ask) < most);
        let words = match (reason, &supply.stage) {
            (_, Stage::Removed) => removed(name),
            (Reason::NoGrant, Stage::Waits { brief, .. }) => no_grant(name, Some(brief)),
            (Reason::NoGrant, _) => no_grant(name, None),
            _ => in_words(reason, identity, name, longer_wait, ask.count == 1),
        };
        // A refusal because of the client's own limits does not count for the source.
        if matches!(reason, Reason::Source(_) | Reason::NoGrant) {
            let counters = &self.thread.counters.sources[ask.source];
            counters.requests.add(1);
            counters.refused.add(1);
            counters.exhausted.add(u64::from(words.code == ErrorCode::Exhausted));
        }
        self.thread.counters.record_error(protocol, words.code);
        words
    }
}

impl<F: Copy> Parked<F> {
    pub(super) fn request(&self) -> Request<F> {
        match self {
            Parked::Queued(queued) => queued.request,
            Parked::Timed(timed) => timed.request,
        }
    }

    /// Returns the instant from which the latency of the request counts. It is the instant at which
    /// the request was read or, if it waited for its client's rate, at which the rate allowed it.
    /// So a client that exceeds its rate does not make the daemon look slow.
    pub(super) fn timed_from(&self) -> BootMicros {
        match self {
            Parked::Queued(queued) => match &queued.taken {
                Some((_, Held(Some(permit)))) => permit.at,
                _ => queued.request.read_at,
            },
            Parked::Timed(timed) if timed.ungranted_in.is_some() => timed.request.read_at,
            Parked::Timed(timed) => timed.until,
        }
    }

    /// Completes when a turn can [`resume`](Self::resume) the request.
    pub(super) async fn ready(&mut self, thread: &ThreadState) {
        match self {
            Parked::Queued(queued) => queued.ready().await,
            Parked::Timed(timed) => timed.ready(thread).await,
        }
    }

    /// Puts the IDs of the request into `state.runs`. The request may have to wait again for two
    /// reasons. After the wait for its client's rate, it may have to wait for its source. Or its
    /// IDs were lost when the grant was revoked.
    pub(super) fn resume(self, turn: &mut Turn<'_>) -> Result<(), NotYet<F>> {
        match self {
            Parked::Queued(mut queued) => queued.resume(turn),
            Parked::Timed(timed) => timed.resume(turn),
        }
    }
}

/// A request in its source's wait queue.
pub(super) struct Queued<F> {
    thread: Rc<ThreadState>,
    request: Request<F>,
    id: WaitId,
    finished: oneshot::Receiver<Finished>,
    /// The outcome of the wait. `None`: the wait is not over.
    outcome: Option<Finished>,
    /// The IDs that the request already has, and its permit. `None` once the request has resumed.
    taken: Option<(Taken, Held)>,
}

impl<F: Copy> Queued<F> {
    async fn ready(&mut self) {
        if self.outcome.is_none() {
            let finished = (&mut self.finished).await;
            let config = self.thread.live_config.borrow();
            // Receiving fails if the ticker has ended, because the shard's thread is ending.
            let outcome = finished.unwrap_or_else(|_| config.source(self.request.ask.source).refuse(self.id));
            self.outcome = Some(outcome);
        }
    }

    /// Ends the wait. If the IDs were lost because the grant was revoked, the request begins again.
    /// Its deadline stays the same. The lost IDs do not count towards the client's rate.
    fn resume(&mut self, turn: &mut Turn<'_>) -> Result<(), NotYet<F>> {
        let Some((taken, held)) = self.taken.take() else { unreachable!("a wait ends once") };
        let Some(outcome) = self.outcome.take() else {
            unreachable!("a wait ends after its outcome is known")
        };
        let ask = &self.request.ask;
        let (lane, _) = turn.state.shard.lane(ask.source);
        match lane.end_wait(taken, &outcome, &mut turn.state.runs) {
            Ok(refusal) => turn.finish(ask, held, refusal).map_err(NotYet::Refused),
            Err(IdsLost) => turn.allocate_held(self.request, held),
        }
    }
}

impl<F> Drop for Queued<F> {
    fn drop(&mut self) {
        let Some((taken, held)) = self.taken.take() else { return };
        let source = self.request.ask.source;
        self.thread.turn.borrow_mut().waiters.remove(&(source, self.id));
        let claimed = match self.outcome.take().or_else(|| self.finished.try_recv().ok()) {
            Some(finished) => finished.spans.iter().map(|span| span.count).sum(),
            None => self.thread.live_config.borrow().source(source).cancel(self.id),
        };
        // Skipped IDs count towards the client's rate, because no other request gets them.
        held.record_drawn(taken.count() + claimed);
    }
}

/// A request that waits until its client's rate allows its IDs, or for its source's first grant. If
/// the request is dropped while it waits, its IDs no longer count towards the rate.
pub(super) struct Timed<F> {
    request: Request<F>,
    /// When the rate allows the IDs, or the deadline of the wait for a grant.
    until: BootMicros,
    /// The version of the configuration in which the source has no grant. The request asks its source
    /// again once another one is live. `None`: it waits for the rate.
    ungranted_in: Option<u64>,
    held: Held,
}

impl<F: Copy> Timed<F> {
    /// Completes when the wait is over, or when a stop refuses all waiting requests.
    async fn ready(&self, thread: &ThreadState) {
        let mut due = pin!(tokio::time::sleep(self.until.since(os_clock::boot())));
        poll_fn(|cx| {
            let is_adopted = |version| thread.live_config.borrow().version != version;
            let is_over = thread.refuses_all.get() || self.ungranted_in.is_some_and(is_adopted);
            if is_over { Poll::Ready(()) } else { due.as_mut().poll(cx) }
        })
        .await;
    }

    /// Allocates the IDs, or puts the request into its source's wait queue.
    fn resume(self, turn: &mut Turn<'_>) -> Result<(), NotYet<F>> {
        if self.ungranted_in.is_none() && turn.now.boot < self.until {
            return Err(NotYet::Refused(Refusal::Sealed.into()));
        }
        turn.state.runs.clear();
        turn.allocate_held(self.request, self.held)
    }
}

#[cfg(test)]
mod tests;
