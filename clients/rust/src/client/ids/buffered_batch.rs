//! One batch in the buffer, and its slices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use super::fetch::{Delivery, TaskGuard};
use super::options::IdsOptions;
use crate::client::age::Birth;

/// The number of IDs after which the buffer reads the clock and counts the IDs left. That costs
/// some 40 ns. With smaller slices it would cost more for each ID. With larger slices the buffer
/// would hand out more IDs that are too old while the runtime is blocked.
const SLICE: usize = 256;

/// The largest factor by which a fetch may ask for more IDs than the fetch before it.
const GROWTH: u32 = 4;

/// A batch should last for the maximum age divided by this number, so that few IDs get too old.
const LASTING_PART: u32 = 4;

/// One batch in the buffer, with at least one ID.
#[derive(Debug)]
pub(super) struct BufferedBatch {
    ids: Vec<u64>,
    /// The index of the next ID.
    at: usize,
    /// The index of the end of the slice.
    slice_end: usize,
    /// The time at which the batch's first slice began.
    opened_at: Instant,
    born: Birth,
    expired: Arc<AtomicBool>,
    /// The task that marks the batch when it is too old.
    _task: TaskGuard,
}

impl BufferedBatch {
    pub(super) fn new(delivery: Delivery, task_guard: TaskGuard) -> Self {
        let Delivery { batch, born, expired } = delivery;
        let opened_at = Instant::now();
        Self { ids: batch.ids, at: 0, slice_end: 0, opened_at, born, expired, _task: task_guard }
    }

    /// Returns the next ID of the slice. Returns `None` at the end of the slice, or if the batch is
    /// too old.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u64> {
        if self.at == self.slice_end || self.expired.load(Ordering::Relaxed) {
            return None;
        }
        let id = *self.ids.get(self.at)?;
        self.at += 1;
        Some(id)
    }

    /// Begins a slice of up to [`SLICE`] IDs, which never crosses the middle of the batch. Returns
    /// false if the batch is used up.
    pub(super) fn begin_slice(&mut self, now: Instant) -> bool {
        if self.at == 0 {
            self.opened_at = now;
        }
        let end = if self.is_low() { self.ids.len() } else { self.low() };
        self.slice_end = end.min(self.at + SLICE);
        self.at < self.slice_end
    }

    /// Returns the index at which half of the batch is used.
    fn low(&self) -> usize {
        self.ids.len().div_ceil(2)
    }

    pub(super) fn is_expired(&self, options: &IdsOptions) -> bool {
        self.born.age() >= options.max_age || self.expired.load(Ordering::Relaxed)
    }

    pub(super) fn is_low(&self) -> bool {
        self.at >= self.low()
    }

    /// Returns the number of IDs that were handed out.
    pub(super) fn used(&self) -> u32 {
        // At most the request's count, which has 32 bits.
        self.at as u32
    }

    /// Returns how many IDs to fetch next. At the pace of this batch, that many IDs last for the
    /// maximum age divided by [`LASTING_PART`], unless a limit caps them.
    pub(super) fn next_count(&self, now: Instant, last_count: u32, options: &IdsOptions) -> u32 {
        let pace_ns = now.saturating_duration_since(self.opened_at).as_nanos().max(1);
        let lasting_ns = options.max_age.as_nanos() / u128::from(LASTING_PART);
        let wanted = u128::from(self.used()).saturating_mul(lasting_ns) / pace_ns;
        let most = last_count.saturating_mul(GROWTH).min(options.max_batch);
        u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, most.max(1))
    }
}
