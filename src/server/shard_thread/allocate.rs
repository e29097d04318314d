//! Allocates IDs for a request of any protocol: at once, or after a wait in the source's queue.
//!
//! A connection allocates for all requests of a turn with [`Turn::allocate`], and waits for a
//! [`Parked`] one between two turns.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::limits::{self, Held};
use super::thread_state::ThreadState;
use super::turn::{Request, Turn};
use crate::clock::{self, BootMicros};
use crate::config::Protocol;
use crate::frontends::{Ask, Reason, Words, in_words};
use crate::shard::{IdsLost, Taken};
use crate::source::Bound;
use crate::source::wait_queue::{Finished, Refusal, WaitId, WaitRequest};
use snowbank_client::layout::append_run;
use snowbank_client::protocol::ErrorCode;

/// Why a request does not have its IDs yet.
pub(super) enum NotYet<F> {
    Refused(Reason),
    Parked(Parked<F>),
}

/// A request that waits for its IDs between two turns. If it is dropped before its wait is over, it
/// leaves the queue, and IDs that it already has are skipped.
pub(super) enum Parked<F> {
    /// It waits in its source's queue.
    Queued(Box<Queued<F>>),
    /// It waits until its client's rate allows its IDs.
    Paced(Box<Paced<F>>),
}

impl Turn<'_> {
    /// Moves the IDs of a request to `state.runs` and counts them, or parks the request: until its
    /// client's rate allows it, or in its source's wait queue. `ahead` estimates how many IDs of
    /// the source the rest of the turn asks for.
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

    /// Returns how many requests of one ID each can be served without a look at the clock or a
    /// claim; 0 for a client with limits, whose requests are checked one by one.
    #[inline]
    pub(super) fn at_hand(&mut self, source: usize) -> usize {
        if self.conditions.session.is_unlimited() {
            self.state.shard.lane(source).0.at_hand() as usize
        } else {
            0
        }
    }

    /// Adds up to `most` of the IDs that are [`at_hand`](Self::at_hand) to `state.runs`, each for a
    /// request of its own, and counts them. Returns their number.
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
            return Err(NotYet::Parked(Parked::Paced(Box::new(Paced { request, at, held }))));
        }
        self.allocate_held(request, held)
    }

    /// Allocates the IDs of a request that its client's limits allow, or queues it.
    fn allocate_held<F: Copy>(&mut self, request: Request<F>, held: Held) -> Result<(), NotYet<F>> {
        match self.claim(&request.ask, || 0) {
            Ok(()) => {
                held.note_drawn(request.ask.count_in(&self.state.runs));
                Ok(())
            }
            Err(missing) => self.enqueue(request, missing, held),
        }
    }

    /// Claims the IDs of a request and counts them. A permit stays with the caller, because few
    /// clients have one.
    ///
    /// # Errors
    /// Returns the number of IDs missing.
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
            identity.usage.note_ids(self.thread.index, source, ids);
        }
    }

    /// Puts a request that misses IDs into its source's wait queue. If the queue refuses it, or the
    /// stop has refused all that waited, the request ends. It gets the IDs that it has if the
    /// client accepts fewer.
    #[cold]
    fn enqueue<F: Copy>(&mut self, request: Request<F>, missing: u64, held: Held) -> Result<(), NotYet<F>> {
        let thread = self.thread;
        let ask = &request.ask;
        if thread.refuses_all.get() {
            return self.finish(ask, held, Some(Refusal::Sealed)).map_err(NotYet::Refused);
        }
        let due = request.read_at.after(self.wait_of(ask));
        let (lane, _) = self.state.shard.lane(ask.source);
        let limit_of_turn = lane.window().limit;
        let source = lane.source();
        // The clock is read again: the turn's reading may be older than a step of the clock that
        // another thread has seen. By the old reading, IDs that are available would be refused.
        let window = source.window(thread.now());
        let wait = WaitRequest { count: missing, due, partial: ask.partial, shard: thread.index };
        let id = match source.admit(&window, wait) {
            Ok(id) => id,
            Err(refusal) => return self.finish(ask, held, Some(refusal)).map_err(NotYet::Refused),
        };
        let (sender, finished) = oneshot::channel();
        self.state.waiters.insert((ask.source, id), sender);
        // A request that needs the next tick waits for it. For any other request, the ticker is
        // woken now. It serves the request, or asks for a higher ceiling.
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

    /// Ends a request with the IDs in `state.runs`, or with the refusal.
    fn finish(&mut self, ask: &Ask, held: Held, refusal: Option<Refusal>) -> Result<(), Reason> {
        match refusal {
            // IDs that the request already had are skipped, and count towards the client's rate.
            Some(refusal) if !ask.partial || self.state.runs.is_empty() => {
                held.note_drawn(self.state.runs.iter().map(|run| u64::from(run.count)).sum());
                Err(refusal.into())
            }
            _ => {
                let count = ask.count_in(&self.state.runs);
                self.count_ids(ask.source, 1, count);
                held.note_drawn(count);
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

    /// Counts a refusal, and puts it into words.
    #[cold]
    pub(super) fn refuse(&self, ask: &Ask, protocol: Protocol, reason: Reason) -> Words {
        let source = self.config.source(ask.source);
        let identity = self.conditions.session.name();
        let max_wait = self.config.limits.max_wait;
        let longer_wait = Some(max_wait).filter(|&most| self.wait_of(ask) < most);
        let words = in_words(reason, identity, source.name(), longer_wait);
        // A refusal by the client's own limits does not count for the source.
        if let Reason::Source(_) = reason {
            let counters = &self.thread.counters.sources[ask.source];
            counters.requests.add(1);
            counters.refused.add(1);
            counters.exhausted.add(u64::from(words.code == ErrorCode::Exhausted));
        }
        self.thread.counters.note_error(protocol, words.code);
        words
    }
}

impl<F: Copy> Parked<F> {
    pub(super) fn request(&self) -> Request<F> {
        match self {
            Parked::Queued(queued) => queued.request,
            Parked::Paced(paced) => paced.request,
        }
    }

    /// Returns when the latency of the request begins: when it was read, or when its client's rate
    /// allowed it. So a client that asks for more than its rate does not make the daemon look slow.
    pub(super) fn timed_from(&self) -> BootMicros {
        match self {
            Parked::Queued(queued) => queued.request.read_at,
            Parked::Paced(paced) => paced.at,
        }
    }

    /// Completes when the request can go on in a turn, with [`resume`](Self::resume).
    pub(super) async fn ready(&mut self, thread: &ThreadState) {
        match self {
            Parked::Queued(queued) => queued.ready().await,
            Parked::Paced(paced) => paced.ready(thread).await,
        }
    }

    /// Moves the IDs of the request to `state.runs`. The request may wait again: for its source
    /// after it has waited for its client's rate, or because its IDs were lost with the grant.
    pub(super) fn resume(self, turn: &mut Turn<'_>) -> Result<(), NotYet<F>> {
        match self {
            Parked::Queued(mut queued) => queued.resume(turn),
            Parked::Paced(paced) => paced.resume(turn),
        }
    }
}

/// A request in its source's wait queue.
pub(super) struct Queued<F> {
    thread: Rc<ThreadState>,
    request: Request<F>,
    id: WaitId,
    finished: oneshot::Receiver<Finished>,
    /// The outcome of its wait, once that is over.
    outcome: Option<Finished>,
    /// IDs that the request already has, and its permit; `None` once it has resumed.
    taken: Option<(Taken, Held)>,
}

impl<F: Copy> Queued<F> {
    async fn ready(&mut self) {
        if self.outcome.is_none() {
            let finished = (&mut self.finished).await;
            let config = self.thread.live_config.borrow();
            // Fails when the ticker has ended, and with it the shard.
            let outcome = finished.unwrap_or_else(|_| config.source(self.request.ask.source).refuse(self.id));
            self.outcome = Some(outcome);
        }
    }

    /// Ends the wait. If its IDs were lost with the grant, the request begins again with what is
    /// left of its wait. Lost IDs do not count towards the client's rate.
    fn resume(&mut self, turn: &mut Turn<'_>) -> Result<(), NotYet<F>> {
        let Some((taken, held)) = self.taken.take() else { unreachable!("a wait ends once") };
        let Some(outcome) = self.outcome.take() else { unreachable!("a wait ends after it is over") };
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
        // IDs that are skipped count towards the client's rate: the source has lost them.
        held.note_drawn(taken.count() + claimed);
    }
}

/// A request that waits until its client's rate allows its IDs. If it is dropped before that, it
/// gives the IDs back to the rate.
pub(super) struct Paced<F> {
    request: Request<F>,
    at: BootMicros,
    held: Held,
}

impl<F: Copy> Paced<F> {
    /// Completes when the rate allows the IDs, or when the stop refuses the requests that wait.
    async fn ready(&self, thread: &ThreadState) {
        let mut allowed = pin!(tokio::time::sleep(self.at.since(clock::os::boot())));
        poll_fn(|cx| if thread.refuses_all.get() { Poll::Ready(()) } else { allowed.as_mut().poll(cx) })
            .await;
    }

    /// Allocates the IDs, or continues to wait in the source's queue.
    fn resume(self, turn: &mut Turn<'_>) -> Result<(), NotYet<F>> {
        if turn.now.boot < self.at {
            return Err(NotYet::Refused(Refusal::Sealed.into()));
        }
        turn.state.runs.clear();
        turn.allocate_held(self.request, self.held)
    }
}

#[cfg(test)]
mod tests;
