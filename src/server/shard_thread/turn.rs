//! One turn of a connection, and the buffers that the turn borrows from its thread.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::member::Wakers;
use super::thread_state::ThreadState;
use crate::access::Session;
use crate::frontends::{Ask, Conditions, MESSAGE_BYTES_MAX};
use crate::server::health::metrics::Timing;
use crate::server::shared::live_config::LiveConfig;
use snowbank_core::clock::{BootMicros, Now};
use snowbank_core::shard::Shard;
use snowbank_core::source::wait_queue::{Finished, WaitId};
use snowbank_id::layout::Run;

/// The most bytes that a turn reads: some 500 requests, which take about 0.1 ms. After this turn,
/// other connections have their turns.
pub(super) const READ_BYTES_MAX: usize = 8 * 1024;

/// The size of the input buffer. The buffer holds half a request of an earlier turn, and the bytes
/// that the current turn reads.
pub(super) const INPUT_SIZE: usize = MESSAGE_BYTES_MAX + READ_BYTES_MAX;

/// The capacity to which the buffer of runs shrinks after a longer reply. It is enough for any
/// reply of one frame.
const RUNS_CAPACITY: usize = 4_096;

/// One turn of a connection. It has one configuration and one reading of the clock.
pub(super) struct Turn<'t> {
    pub(super) thread: &'t Rc<ThreadState>,
    pub(super) config: &'t LiveConfig,
    pub(super) state: &'t mut TurnState,
    /// The client's session, and the facts that front ends need for their answers.
    pub(super) conditions: Conditions<'t>,
    pub(super) now: Now,
}

/// A request on its way from bytes to IDs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<F> {
    pub(super) ask: Ask,
    /// The details that its reply needs.
    pub(super) form: F,
    /// The instant at which the request was read. The request's wait counts from this instant.
    pub(super) read_at: BootMicros,
    /// The size of the request in bytes. 0 for a request that the front end has kept from an
    /// earlier message.
    pub(super) size: usize,
}

impl<'t> Turn<'t> {
    /// Begins a turn: reads the clock, and gives the reading to the shard.
    #[inline]
    pub(super) fn begin(
        thread: &'t Rc<ThreadState>,
        config: &'t LiveConfig,
        state: &'t mut TurnState,
        session: &'t mut Session,
    ) -> Self {
        let now = thread.now();
        state.shard.wake(now);
        let metrics = &thread.common.metrics;
        let conditions = Conditions {
            facts: &config.facts,
            session,
            draining: false,
            is_stopping: metrics.draining.load(Ordering::Relaxed),
            wall: now.wall,
            incr_connections: &metrics.incr_connections,
            counts: &**thread,
            greets: &**thread,
            rejection: None,
        };
        Turn { thread, config, state, conditions, now }
    }
}

/// The buffers and the shard that a thread's connections borrow for a turn, never across an await.
pub(super) struct TurnState {
    pub(super) shard: Shard,
    pub(super) input: Box<[u8]>,
    pub(super) output: Vec<u8>,
    pub(super) runs: Vec<Run>,
    pub(super) rng: fastrand::Rng,
    pub(super) timing: Timing,
    /// The senders to the connections whose requests wait for IDs, by source and wait.
    pub(super) waiters: HashMap<(usize, WaitId), oneshot::Sender<Finished>>,
    /// The instant at which the ticker wakes up by itself. `None`: the ticker sleeps until another
    /// task wakes it.
    pub(super) ticker_wakes_at: Option<Instant>,
    pub(super) wakers: Wakers,
}

impl TurnState {
    pub(super) fn new(shard: Shard) -> Self {
        TurnState {
            input: vec![0; INPUT_SIZE].into_boxed_slice(),
            output: Vec::new(),
            runs: Vec::new(),
            rng: fastrand::Rng::new(),
            timing: Timing::new(),
            waiters: HashMap::new(),
            ticker_wakes_at: None,
            wakers: Wakers::default(),
            shard,
        }
    }

    /// Frees the memory that a very long reply needed.
    pub(super) fn shrink(&mut self) {
        self.runs.clear();
        self.runs.shrink_to(RUNS_CAPACITY);
    }
}
