//! The shard and the buffers that a turn borrows from its thread.

use std::collections::HashMap;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::wakers::Wakers;
use crate::frontends::MESSAGE_BYTES_MAX;
use crate::server::health::metrics::Timing;
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
