//! Draws IDs for a request, whatever its protocol: takes them at once, or waits for them in the source's queue.
//!
//! A connection that speaks in bytes takes all requests of a turn with [`take`], and lets [`Waiting`] wait between two
//! turns. [`draw`] does both for a protocol whose library owns the connection.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::thread_state::ThreadState;
use super::turn_state::TurnState;
use crate::clock::BootMicros;
use crate::config::{Limits, Protocol};
use crate::front::{Ask, Refused, Words, in_words};
use crate::server::shared::live_config::LiveConfig;
use crate::shard::Taken;
use crate::source::Source;
use crate::source::wait_queue::{Finished, Refusal, WaitId, WaitRequest};
use snowbank_client::layout::Run;
use snowbank_client::protocol::ErrorCode;

/// Why a request does not have its IDs yet.
pub(super) enum NotYet {
    /// It is refused.
    Refused(Refusal),
    /// It waits for them.
    Waits(Box<Waiting>),
}

/// Takes the IDs of a request that was read at `read_at` to `state.runs`, counts them, or puts the request into its source's
/// wait queue. `ahead` estimates how many IDs of the source the rest of the turn asks for.
#[inline]
pub(super) fn take(
    thread: &Rc<ThreadState>,
    live_config: &LiveConfig,
    state: &mut TurnState,
    (ask, read_at): (&Ask, BootMicros),
    ahead: impl FnOnce() -> u64,
) -> Result<(), NotYet> {
    state.runs.clear();
    let (lane, rng) = state.shard.lane(ask.source);
    match lane.take(ask.count, ahead, rng, &mut state.runs) {
        Ok(()) => {
            note_ids(thread, ask, &state.runs);
            Ok(())
        }
        Err(missing) => enqueue(thread, live_config, state, (ask, read_at), missing),
    }
}

/// Counts a request that got its IDs.
#[inline]
fn note_ids(thread: &ThreadState, ask: &Ask, runs: &[Run]) {
    let counters = &thread.counters.sources[ask.source];
    counters.requests.add(1);
    counters.ids.add(ask.count_in(runs));
}

/// Puts a request that misses IDs into its source's wait queue. If the queue refuses it, it is over: with the IDs that it
/// has, if the client accepts fewer.
#[cold]
fn enqueue(
    thread: &Rc<ThreadState>,
    live_config: &LiveConfig,
    state: &mut TurnState,
    (ask, read_at): (&Ask, BootMicros),
    missing: u64,
) -> Result<(), NotYet> {
    let (lane, _) = state.shard.lane(ask.source);
    let window = lane.window();
    let source = lane.source();
    let due = read_at.after(wait_of(ask, &live_config.limits, source));
    let request = WaitRequest { count: missing, due, partial: ask.partial, shard: thread.index };
    match source.admit(&window, request) {
        Ok(id) => {
            let (sender, finished) = oneshot::channel();
            state.waiters.insert((ask.source, id), sender);
            let event = Instant::now() + source.next_tick_in(&window).min(due.since(window.now().boot));
            if state.ticker_wakes_at.is_none_or(|at| event < at) {
                thread.common.wake_ups.wake_shard(thread.index);
            }
            let taken = lane.keep(state.runs.clone());
            thread.counters.sources[ask.source].waits.add(1);
            let (thread, ask) = (Rc::clone(thread), *ask);
            Err(NotYet::Waits(Box::new(Waiting { thread, ask, id, finished, taken: Some(taken) })))
        }
        Err(refusal) => end(thread, state, ask, Some(refusal)).map_err(NotYet::Refused),
    }
}

/// Ends a request with the IDs in `state.runs`, or with the refusal.
fn end(thread: &ThreadState, state: &TurnState, ask: &Ask, refusal: Option<Refusal>) -> Result<(), Refusal> {
    match refusal {
        Some(refusal) if !ask.partial || state.runs.is_empty() => Err(refusal),
        _ => {
            note_ids(thread, ask, &state.runs);
            Ok(())
        }
    }
}

/// Returns how long a request may wait.
fn wait_of(ask: &Ask, limits: &Limits, source: &Source) -> Duration {
    let default_wait = || limits.default_wait_for(source.tick());
    ask.wait.map_or_else(default_wait, |wait| wait.min(limits.max_wait))
}

/// Counts a refusal of a source, and puts it into words.
#[cold]
pub(super) fn refuse(
    thread: &ThreadState,
    live_config: &LiveConfig,
    ask: &Ask,
    protocol: Protocol,
    refusal: Refusal,
) -> Words {
    let (source, limits) = (live_config.source(ask.source), &live_config.limits);
    let longer_wait = Some(limits.max_wait).filter(|most| wait_of(ask, limits, source) < *most);
    let words = in_words(Refused { refusal, source: source.name(), longer_wait });
    let counters = &thread.counters.sources[ask.source];
    counters.requests.add(1);
    counters.refused.add(1);
    counters.exhausted.add(u64::from(words.code == ErrorCode::Exhausted));
    thread.counters.note_error(protocol, words.code);
    words
}

/// A request in its source's wait queue. Dropped before its wait is over, it leaves the queue, and its IDs are skipped.
pub(super) struct Waiting {
    thread: Rc<ThreadState>,
    pub(super) ask: Ask,
    id: WaitId,
    finished: oneshot::Receiver<Finished>,
    /// IDs that the request already has; `None` once its wait is over.
    taken: Option<Taken>,
}

impl Waiting {
    /// Waits until the wait is over.
    pub(super) async fn finished(&mut self) -> Finished {
        let finished = (&mut self.finished).await;
        let live_config = self.thread.live_config.borrow();
        // Fails when the ticker has ended, and with it the shard.
        finished.unwrap_or_else(|_| live_config.source(self.ask.source).refuse(self.id))
    }

    /// Ends the request: moves its IDs to `state.runs` and counts them.
    ///
    /// # Errors
    /// The reason why it gets none.
    pub(super) fn end(&mut self, state: &mut TurnState, finished: &Finished) -> Result<(), Refusal> {
        let Some(taken) = self.taken.take() else {
            unreachable!("a wait ends once");
        };
        let refusal = state.shard.lane(self.ask.source).0.end_wait(taken, finished, &mut state.runs);
        end(&self.thread, state, &self.ask, refusal)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.taken.is_some() {
            self.thread.live_config.borrow().source(self.ask.source).cancel(self.id);
            self.thread.turn.borrow_mut().waiters.remove(&(self.ask.source, self.id));
        }
    }
}

/// Draws IDs for a request of a protocol whose library owns the connection. It waits as long as the request may. If the
/// future is dropped meanwhile, the request leaves the wait queue and its IDs are skipped.
///
/// # Errors
/// The refusal in words.
#[expect(dead_code, reason = "the HTTP door calls it")]
pub(super) async fn draw(thread: &Rc<ThreadState>, protocol: Protocol, ask: Ask) -> Result<Vec<Run>, Words> {
    let now = thread.now();
    let waiting = {
        let (live_config, state) = (thread.live_config.borrow(), &mut *thread.turn.borrow_mut());
        state.shard.wake(now);
        let taken = take(thread, &live_config, state, (&ask, now.boot), || 0);
        state.shard.top_up();
        match taken {
            Ok(()) => {
                thread.counters.note_served(protocol, now.boot);
                return Ok(std::mem::take(&mut state.runs));
            }
            Err(NotYet::Refused(refusal)) => {
                thread.counters.note_served(protocol, now.boot);
                return Err(refuse(thread, &live_config, &ask, protocol, refusal));
            }
            Err(NotYet::Waits(waiting)) => waiting,
        }
    };
    let mut waiting = waiting;
    let finished = waiting.finished().await;
    let (live_config, state) = (thread.live_config.borrow(), &mut *thread.turn.borrow_mut());
    let ended = waiting.end(state, &finished);
    thread.counters.note_served(protocol, now.boot);
    match ended {
        Ok(()) => Ok(std::mem::take(&mut state.runs)),
        Err(refusal) => Err(refuse(thread, &live_config, &ask, protocol, refusal)),
    }
}
