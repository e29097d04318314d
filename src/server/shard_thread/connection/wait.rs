//! A request that has to wait for its IDs: from the wait queue to its reply.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::thread_state::ThreadState;
use super::super::turn_state::TurnState;
use super::Connection;
use crate::clock::{self, BootMicros};
use crate::config::Limits;
use crate::front::{Ask, Front};
use crate::server::shared::live_config::LiveConfig;
use crate::shard::Taken;
use crate::source::Source;
use crate::source::wait_queue::{Finished, WaitId, WaitRequest};

/// A request in its source's wait queue.
pub(super) struct Waiting {
    ask: Ask,
    id: WaitId,
    finished: oneshot::Receiver<Finished>,
    /// IDs that the request already has.
    taken: Taken,
}

/// Returns when a request that was read at `read_at` must be answered.
fn deadline_of(ask: &Ask, limits: &Limits, source: &Source, read_at: BootMicros) -> BootMicros {
    read_at.after(wait_of(ask, limits, source))
}

/// Returns how long a request may wait.
pub(super) fn wait_of(ask: &Ask, limits: &Limits, source: &Source) -> Duration {
    let default_wait = || limits.default_wait_for(source.tick());
    ask.wait.map_or_else(default_wait, |wait| wait.min(limits.max_wait))
}

impl<F: Front> Connection<F> {
    /// Puts a request that misses IDs into its source's wait queue. If the queue refuses it, answers at once and returns
    /// `None`.
    #[cold]
    pub(super) fn enqueue(
        &mut self,
        thread: &ThreadState,
        live_config: &LiveConfig,
        state: &mut TurnState,
        ask: Ask,
        missing: u64,
    ) -> Option<Box<Waiting>> {
        let (lane, _) = state.shard.lane(ask.source);
        let window = lane.window();
        let source = lane.source();
        let due = deadline_of(&ask, &live_config.limits, source, self.read_at);
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
                Some(Box::new(Waiting { ask, id, finished, taken }))
            }
            Err(_) if ask.partial && !state.runs.is_empty() => {
                self.encode_ids(thread, live_config, state, ask);
                None
            }
            Err(refusal) => {
                self.refuse(thread, live_config, state, ask, refusal);
                None
            }
        }
    }

    /// Waits until a request's wait is over, and encodes its reply.
    ///
    /// # Errors
    /// If the connection is reset meanwhile. The request has left the wait queue then.
    pub(super) async fn wait(&mut self, waiting: Box<Waiting>) -> io::Result<()> {
        let Waiting { ask, id, finished, taken } = *waiting;
        let thread = Rc::clone(&self.member.thread);
        let mut cancel = CancelOnDrop { thread: &thread, source: ask.source, id, armed: true };
        let finished = tokio::select! {
            biased;
            finished = finished => finished,
            reset = self.stream.reset() => return Err(reset),
        };
        cancel.armed = false;
        drop(cancel);
        let live_config = &thread.live_config.borrow();
        let state = &mut *thread.turn.borrow_mut();
        // Fails when the ticker has ended, and with it the shard.
        let finished = finished.unwrap_or_else(|_| live_config.source(ask.source).refuse(id));
        let refusal = state.shard.lane(ask.source).0.end_wait(taken, &finished, &mut state.runs);
        match refusal {
            Some(_) if ask.partial && !state.runs.is_empty() => {
                self.encode_ids(&thread, live_config, state, ask);
            }
            None => self.encode_ids(&thread, live_config, state, ask),
            Some(refusal) => self.refuse(&thread, live_config, state, ask, refusal),
        }
        let took = clock::os::boot().since(self.read_at);
        thread.counters.latency.record(clock::micros(took).unsigned_abs(), 1);
        self.unwritten.append(&mut state.output);
        Ok(())
    }
}

/// Ends a wait whose connection is dropped.
struct CancelOnDrop<'a> {
    thread: &'a ThreadState,
    source: usize,
    id: WaitId,
    armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.thread.live_config.borrow().source(self.source).cancel(self.id);
            self.thread.turn.borrow_mut().waiters.remove(&(self.source, self.id));
        }
    }
}
