//! Draws IDs for a request, whatever its protocol: takes them at once, or waits for them in the source's queue.
//!
//! A connection that speaks in bytes takes all requests of a turn with [`take`], and lets [`Waiting`] wait between two
//! turns. [`draw`] does both for a protocol whose library owns the connection.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::limits::{self, Held};
use super::thread_state::ThreadState;
use super::turn_state::TurnState;
use crate::access::Session;
use crate::clock::{self, BootMicros};
use crate::config::{Limits, Protocol};
use crate::front::{Ask, Reason, Refused, Words, in_words};
use crate::server::shared::live_config::LiveConfig;
use crate::shard::{IdsLost, Taken};
use crate::source::wait_queue::{Finished, Refusal, WaitId, WaitRequest};
use crate::source::{Bound, Source};
use snowbank_client::layout::{Run, append_run};
use snowbank_client::protocol::ErrorCode;

/// Why a request does not have its IDs yet.
pub(super) enum NotYet {
    /// It is refused.
    Refused(Reason),
    /// It waits for them in the source's queue.
    Waits(Box<Waiting>),
    /// It waits until the client's rate allows them.
    Paced(Box<Paced>),
}

/// Takes the IDs of a request that was read at `read_at` to `state.runs`, counts them, or lets the request wait: for its
/// client's rate, or in its source's wait queue. `ahead` estimates how many IDs of the source the rest of the turn asks for.
#[inline]
pub(super) fn take(
    thread: &Rc<ThreadState>,
    live_config: &LiveConfig,
    state: &mut TurnState,
    (session, ask, read_at): (&Session, &Ask, BootMicros),
    ahead: impl FnOnce() -> u64,
) -> Result<(), NotYet> {
    state.runs.clear();
    if !session.is_unlimited() {
        return take_limited(thread, live_config, state, (session, ask, read_at));
    }
    let Err(missing) = claim(thread, state, (session, ask), ahead) else { return Ok(()) };
    enqueue(thread, live_config, state, (session, ask, read_at), (missing, Held::UNLIMITED))
}

/// Returns how many requests of one ID each can be served without a look at the clock or a claim; 0 for a client with limits,
/// whose requests are looked at one by one.
#[inline]
pub(super) fn at_hand(state: &mut TurnState, (session, source): (&Session, usize)) -> usize {
    if session.is_unlimited() { state.shard.lane(source).0.at_hand() as usize } else { 0 }
}

/// Adds IDs for up to `most` requests of one ID each, of those that are [`at_hand`], to `state.runs`, and counts them.
/// Returns their number.
#[inline]
pub(super) fn take_at_hand(
    thread: &ThreadState,
    state: &mut TurnState,
    (session, source): (&Session, usize),
    most: usize,
) -> usize {
    let (lane, _) = state.shard.lane(source);
    let Some(run) = lane.take_at_hand(most as u64) else { return 0 };
    append_run(&mut state.runs, run);
    count_ids(thread, (session, source), u64::from(run.count), u64::from(run.count));
    run.count as usize
}

/// Takes the IDs of a request as [`take`] does, if its client's limits allow it.
#[cold]
fn take_limited(
    thread: &Rc<ThreadState>,
    live_config: &LiveConfig,
    state: &mut TurnState,
    (session, ask, read_at): (&Session, &Ask, BootMicros),
) -> Result<(), NotYet> {
    let due = read_at.after(wait_of(ask, &live_config.limits, live_config.source(ask.source)));
    let permitted = limits::permit(live_config, session, (ask, read_at, due));
    let (held, ask, at) = permitted.map_err(NotYet::Refused)?;
    if at > read_at {
        return Err(NotYet::Paced(Box::new(Paced { ask, read_at, at, held })));
    }
    claim_held(thread, live_config, state, (session, &ask, read_at), held)
}

/// Takes the IDs of a request that its client's limits allow, or puts it into the wait queue.
fn claim_held(
    thread: &Rc<ThreadState>,
    live_config: &LiveConfig,
    state: &mut TurnState,
    (session, ask, read_at): (&Session, &Ask, BootMicros),
    held: Held,
) -> Result<(), NotYet> {
    match claim(thread, state, (session, ask), || 0) {
        Ok(()) => {
            held.note_drawn(ask.count_in(&state.runs));
            Ok(())
        }
        Err(missing) => enqueue(thread, live_config, state, (session, ask, read_at), (missing, held)),
    }
}

/// Takes the IDs of a request and counts them. A permit stays with the caller, because few clients have one.
///
/// # Errors
/// Returns the number of IDs missing.
#[inline]
fn claim(
    thread: &ThreadState,
    state: &mut TurnState,
    (session, ask): (&Session, &Ask),
    ahead: impl FnOnce() -> u64,
) -> Result<(), u64> {
    let (lane, rng) = state.shard.lane(ask.source);
    lane.take(ask.count, ahead, rng, &mut state.runs)?;
    count_ids(thread, (session, ask.source), 1, ask.count_in(&state.runs));
    Ok(())
}

/// Counts requests that got their IDs.
#[inline]
fn count_ids(thread: &ThreadState, (session, source): (&Session, usize), requests: u64, ids: u64) {
    let counters = &thread.counters.sources[source];
    counters.requests.add(requests);
    counters.ids.add(ids);
    if let Some(identity) = session.identity() {
        identity.usage.note_ids(thread.index, source, ids);
    }
}

/// Puts a request that misses IDs into its source's wait queue. If the queue refuses it, or the stop has refused all that
/// waited, the request ends. It gets the IDs that it has if the client accepts fewer.
#[cold]
fn enqueue(
    thread: &Rc<ThreadState>,
    live_config: &LiveConfig,
    state: &mut TurnState,
    (session, ask, read_at): (&Session, &Ask, BootMicros),
    (missing, held): (u64, Held),
) -> Result<(), NotYet> {
    if thread.refuses_all.is_set() {
        return end(thread, state, (session, ask, held), Some(Refusal::Sealed)).map_err(NotYet::Refused);
    }
    let (lane, _) = state.shard.lane(ask.source);
    let limit_of_turn = lane.window().limit;
    let source = lane.source();
    // A new reading: the turn's may be from before a step of the clock that another thread has seen. By the old one, IDs
    // that are available would be refused.
    let window = source.window(thread.now());
    let due = read_at.after(wait_of(ask, &live_config.limits, source));
    let request = WaitRequest { count: missing, due, partial: ask.partial, shard: thread.index };
    match source.admit(&window, request) {
        Ok(id) => {
            let (sender, finished) = oneshot::channel();
            state.waiters.insert((ask.source, id), sender);
            // A request that needs a tick waits for it. For any other the ticker is woken now: it serves it, or asks for a
            // higher ceiling.
            let waits_for_tick = window.bound == Bound::Clock && window.limit == limit_of_turn;
            let event = Instant::now() + source.next_tick_in(&window).min(due.since(window.now().boot));
            if !waits_for_tick || state.ticker_wakes_at.is_none_or(|at| event < at) {
                thread.common.wake_ups.wake_shard(thread.index);
            }
            let taken = lane.keep(state.runs.clone());
            thread.counters.sources[ask.source].waits.add(1);
            let (thread, ask, taken) = (Rc::clone(thread), *ask, Some((taken, held)));
            Err(NotYet::Waits(Box::new(Waiting { thread, ask, read_at, id, finished, taken })))
        }
        Err(refusal) => end(thread, state, (session, ask, held), Some(refusal)).map_err(NotYet::Refused),
    }
}

/// Ends a request with the IDs in `state.runs`, or with the refusal.
fn end(
    thread: &ThreadState,
    state: &TurnState,
    (session, ask, held): (&Session, &Ask, Held),
    refusal: Option<Refusal>,
) -> Result<(), Reason> {
    match refusal {
        // IDs that it already had are skipped, and count towards the client's rate.
        Some(refusal) if !ask.partial || state.runs.is_empty() => {
            held.note_drawn(state.runs.iter().map(|run| u64::from(run.count)).sum());
            Err(refusal.into())
        }
        _ => {
            let count = ask.count_in(&state.runs);
            count_ids(thread, (session, ask.source), 1, count);
            held.note_drawn(count);
            Ok(())
        }
    }
}

/// Returns how long a request may wait.
fn wait_of(ask: &Ask, limits: &Limits, source: &Source) -> Duration {
    let default_wait = || limits.default_wait_for(source.tick());
    ask.wait.map_or_else(default_wait, |wait| wait.min(limits.max_wait))
}

/// Counts a refusal, and puts it into words.
#[cold]
pub(super) fn refuse(
    thread: &ThreadState,
    live_config: &LiveConfig,
    (session, ask): (&Session, &Ask),
    protocol: Protocol,
    reason: Reason,
) -> Words {
    let (source, limits) = (live_config.source(ask.source), &live_config.limits);
    let least = if ask.partial { ask.count.min(1) } else { ask.count };
    let helps = |most: &Duration| wait_of(ask, limits, source) < *most && least <= source.most_within(*most);
    let longer_wait = Some(limits.max_wait).filter(helps);
    let (identity, is_ticket) = (session.name(), source.numbering().is_ticket());
    let words = in_words(Refused { reason, identity, source: source.name(), is_ticket, longer_wait });
    // A refusal by the client's own limits does not count for the source.
    if let Reason::Source(_) = reason {
        let counters = &thread.counters.sources[ask.source];
        counters.requests.add(1);
        counters.refused.add(1);
        counters.exhausted.add(u64::from(words.code == ErrorCode::Exhausted));
    }
    thread.counters.note_error(protocol, words.code);
    words
}

/// A request in its source's wait queue. Dropped before its wait is over, it leaves the queue, and its IDs are skipped.
pub(super) struct Waiting {
    thread: Rc<ThreadState>,
    pub(super) ask: Ask,
    read_at: BootMicros,
    id: WaitId,
    finished: oneshot::Receiver<Finished>,
    /// IDs that the request already has, and its permit; `None` once its wait is over.
    taken: Option<(Taken, Held)>,
}

impl Waiting {
    /// Waits until the wait is over.
    pub(super) async fn finished(&mut self) -> Finished {
        let finished = (&mut self.finished).await;
        let live_config = self.thread.live_config.borrow();
        // Fails when the ticker has ended, and with it the shard.
        finished.unwrap_or_else(|_| live_config.source(self.ask.source).refuse(self.id))
    }

    /// Ends the request: moves its IDs to `state.runs` and counts them. If they were lost with the grant, the request
    /// begins again with what is left of its wait. Lost IDs do not count towards the client's rate.
    ///
    /// # Errors
    /// The reason why it gets none, or its next wait.
    pub(super) fn end(
        &mut self,
        live_config: &LiveConfig,
        state: &mut TurnState,
        session: &Session,
        finished: &Finished,
    ) -> Result<(), NotYet> {
        let Some((taken, held)) = self.taken.take() else {
            unreachable!("a wait ends once");
        };
        let thread = &self.thread;
        match state.shard.lane(self.ask.source).0.end_wait(taken, finished, &mut state.runs) {
            Ok(refusal) => end(thread, state, (session, &self.ask, held), refusal).map_err(NotYet::Refused),
            Err(IdsLost) => {
                state.shard.wake(thread.now());
                let taken = claim_held(thread, live_config, state, (session, &self.ask, self.read_at), held);
                state.shard.top_up();
                taken
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some((taken, held)) = self.taken.take() else { return };
        self.thread.turn.borrow_mut().waiters.remove(&(self.ask.source, self.id));
        let claimed = match self.finished.try_recv() {
            Ok(finished) => finished.spans.iter().map(|span| span.count).sum(),
            Err(_) => self.thread.live_config.borrow().source(self.ask.source).cancel(self.id),
        };
        // IDs that are skipped count towards the client's rate: the source has lost them.
        held.note_drawn(taken.count() + claimed);
    }
}

/// A request that waits until its client's rate allows its IDs. Dropped before, it gives them back.
pub(super) struct Paced {
    pub(super) ask: Ask,
    read_at: BootMicros,
    at: BootMicros,
    held: Held,
}

impl Paced {
    /// Waits until the rate allows the IDs, or until the stop refuses what still waits.
    pub(super) async fn over(&self, thread: &ThreadState) {
        let left = self.at.since(clock::os::boot());
        let _ = tokio::time::timeout(left, thread.refuses_all.wait()).await;
    }

    /// Takes the IDs, or continues to wait in the source's queue.
    pub(super) fn take(
        self,
        thread: &Rc<ThreadState>,
        live_config: &LiveConfig,
        state: &mut TurnState,
        session: &Session,
    ) -> Result<(), NotYet> {
        let Paced { ask, read_at, at, held } = self;
        let now = thread.now();
        if now.boot < at {
            return Err(NotYet::Refused(Refusal::Sealed.into()));
        }
        state.runs.clear();
        state.shard.wake(now);
        let taken = claim_held(thread, live_config, state, (session, &ask, read_at), held);
        state.shard.top_up();
        taken
    }
}

/// Draws IDs for a request of a protocol whose library owns the connection. It waits as long as the request may. If the
/// future is dropped meanwhile, the request leaves the wait queue and its IDs are skipped.
///
/// # Errors
/// The refusal in words.
pub(super) async fn draw(
    thread: &Rc<ThreadState>,
    session: &Session,
    protocol: Protocol,
    ask: Ask,
) -> Result<Vec<Run>, Words> {
    let now = thread.now();
    let mut drawn = {
        let (live_config, state) = (thread.live_config.borrow(), &mut *thread.turn.borrow_mut());
        state.shard.wake(now);
        let taken = take(thread, &live_config, state, (session, &ask, now.boot), || 0);
        state.shard.top_up();
        taken.map(|()| std::mem::take(&mut state.runs))
    };
    loop {
        drawn = match drawn {
            Err(NotYet::Paced(paced)) => {
                paced.over(thread).await;
                let (live_config, state) = (thread.live_config.borrow(), &mut *thread.turn.borrow_mut());
                let taken = paced.take(thread, &live_config, state, session);
                taken.map(|()| std::mem::take(&mut state.runs))
            }
            Err(NotYet::Waits(mut waiting)) => {
                let finished = waiting.finished().await;
                let (live_config, state) = (thread.live_config.borrow(), &mut *thread.turn.borrow_mut());
                let ended = waiting.end(&live_config, state, session, &finished);
                ended.map(|()| std::mem::take(&mut state.runs))
            }
            Err(NotYet::Refused(reason)) => {
                thread.counters.note_served(protocol, now.boot);
                let live_config = thread.live_config.borrow();
                return Err(refuse(thread, &live_config, (session, &ask), protocol, reason));
            }
            Ok(runs) => {
                thread.counters.note_served(protocol, now.boot);
                return Ok(runs);
            }
        };
    }
}

#[cfg(test)]
mod tests;
