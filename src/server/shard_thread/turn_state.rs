//! The buffers and the shard that a connection borrows for one turn.

use std::collections::HashMap;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::wakers::Wakers;
use crate::front::MESSAGE_BYTES_MAX;
use crate::server::health::metrics::Timing;
use crate::shard::Shard;
use crate::source::wait_queue::{Finished, WaitId};
use snowbank_client::layout::Run;

/// The bytes that a turn reads at most: some 500 requests, which take about 0.1 ms. Other connections have their turn then.
pub(super) const READ_BYTES_MAX: usize = 8 * 1024;

/// The size of the input buffer: the half request of an earlier read, and the bytes that a turn reads.
pub(super) const INPUT_SIZE: usize = MESSAGE_BYTES_MAX + READ_BYTES_MAX;

/// The capacity that the buffer of runs keeps after a reply needed more. It is enough for any reply of one frame.
const RUNS_CAPACITY: usize = 4_096;

/// The state that a connection borrows for one turn, never across an await.
pub(super) struct TurnState {
    pub(super) shard: Shard,
    pub(super) input: Box<[u8]>,
    pub(super) output: Vec<u8>,
    pub(super) runs: Vec<Run>,
    pub(super) rng: fastrand::Rng,
    pub(super) timing: Timing,
    /// Connections whose request waits for IDs, by source and id.
    pub(super) waiters: HashMap<(usize, WaitId), oneshot::Sender<Finished>>,
    /// When the ticker wakes by itself; `None` if it sleeps until it is woken.
    pub(super) ticker_wakes_at: Option<Instant>,
    /// Wakes each connection when the stop begins, and at some reloads.
    pub(super) wakers: Wakers,
}

impl TurnState {
    pub(super) fn new(shard: Shard, seed: u64) -> Self {
        TurnState {
            input: vec![0; INPUT_SIZE].into_boxed_slice(),
            output: Vec::new(),
            runs: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
            timing: Timing::new(),
            waiters: HashMap::new(),
            ticker_wakes_at: None,
            wakers: Wakers::default(),
            shard,
        }
    }

    /// Frees the memory that one very long reply needed.
    pub(super) fn shrink(&mut self) {
        self.runs.clear();
        self.runs.shrink_to(RUNS_CAPACITY);
    }
}
