//! A request that has to wait for its IDs: from lining up to its reply.

use std::io;
use std::sync::Arc;

use crossbeam::utils::CachePadded;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Connection;
use crate::clock;
use crate::front::{Ask, Front};
use crate::server::health::metrics::ShardCounters;
use crate::server::lifecycle::live_config::LiveConfig;
use crate::server::shard_thread::worker::{State, Worker};
use crate::shard::Taken;
use crate::source::line::{Finished, Ticket, Wish};

/// A request that waits in its source's line.
pub(super) struct Waiting {
    ask: Ask,
    ticket: Ticket,
    finished: oneshot::Receiver<Finished>,
    /// IDs that it has already.
    taken: Taken,
    _counted: Counted,
}

/// A wait that is counted as begun, and as over when this goes.
struct Counted {
    counters: Arc<CachePadded<ShardCounters>>,
    source: usize,
}

impl Counted {
    fn begin(worker: &Worker, source: usize) -> Counted {
        let counters = Arc::clone(&worker.counters);
        counters.sources[source].waits.add(1);
        Counted { counters, source }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counters.sources[self.source].waits_over.add(1);
    }
}

impl<F: Front> Connection<F> {
    #[cold]
    pub(super) fn line_up(
        &mut self,
        worker: &Worker,
        live_config: &LiveConfig,
        state: &mut State,
        ask: Ask,
        missing: u64,
    ) -> Option<Box<Waiting>> {
        let (lane, _) = state.shard.lane(ask.source);
        let limits = &live_config.limits;
        let window = lane.window();
        let source = lane.source();
        let wait =
            ask.wait.map_or_else(|| limits.default_wait_for(source.tick()), |wait| wait.min(limits.max_wait));
        let due = self.read_at.after(wait);
        let wish = Wish { count: missing, due, partial: ask.partial, shard: worker.index };
        match source.admit(&window, wish) {
            Ok(ticket) => {
                let (sender, finished) = oneshot::channel();
                state.waiters.insert((ask.source, ticket), sender);
                let event = Instant::now() + source.next_tick_in(&window).min(due.since(window.now().boot));
                if state.ticker_wakes_at.is_none_or(|at| event < at) {
                    worker.common.wake_ups.shards[worker.index].notify_one();
                }
                let taken = lane.keep(state.runs.clone());
                let counted = Counted::begin(worker, ask.source);
                Some(Box::new(Waiting { ask, ticket, finished, taken, _counted: counted }))
            }
            Err(_) if ask.partial && !state.runs.is_empty() => {
                self.grant(worker, live_config, state, ask);
                None
            }
            Err(refusal) => {
                self.refuse(worker, live_config, state, ask, refusal);
                None
            }
        }
    }

    /// Waits until a request's wait is over, and encodes its reply.
    ///
    /// # Errors
    /// When the connection was reset meanwhile: the request has left the line.
    pub(super) async fn wait(&mut self, waiting: Box<Waiting>) -> io::Result<()> {
        let Waiting { ask, ticket, finished, taken, _counted } = *waiting;
        let worker = std::rc::Rc::clone(&self.member.worker);
        let mut cancel = CancelOnDrop { worker: &worker, source: ask.source, ticket, armed: true };
        let finished = tokio::select! {
            biased;
            finished = finished => finished,
            reset = self.stream.reset() => return Err(reset),
        };
        cancel.armed = false;
        drop(cancel);
        let live_config = &worker.live_config.borrow();
        let state = &mut *worker.state.borrow_mut();
        // Fails when the ticker is gone, and with it the shard.
        let finished = finished.unwrap_or_else(|_| live_config.source(ask.source).refuse(ticket));
        let refusal = state.shard.lane(ask.source).0.end_wait(taken, &finished, &mut state.runs);
        match refusal {
            Some(_) if ask.partial && !state.runs.is_empty() => self.grant(&worker, live_config, state, ask),
            None => self.grant(&worker, live_config, state, ask),
            Some(refusal) => self.refuse(&worker, live_config, state, ask, refusal),
        }
        let took = clock::os::boot().since(self.read_at);
        worker.counters.latency.record(clock::micros(took).unsigned_abs(), 1);
        self.unwritten.append(&mut state.output);
        Ok(())
    }
}

/// Ends a wait whose connection is dropped.
struct CancelOnDrop<'a> {
    worker: &'a Worker,
    source: usize,
    ticket: Ticket,
    armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.worker.live_config.borrow().source(self.source).cancel(self.ticket);
            self.worker.state.borrow_mut().waiters.remove(&(self.source, self.ticket));
        }
    }
}
