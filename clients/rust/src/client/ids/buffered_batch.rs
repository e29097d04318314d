//! One batch in the buffer, and the slices that are cut from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use super::fetch::{Delivery, TaskGuard};
use super::options::IdsOptions;
use crate::client::age::Birth;

/// The number of IDs between two checks of the clock and of how many IDs are left. Both checks cost
/// some 40 ns together, so at 256 IDs they hardly count. Fewer IDs would cost more. More would let
/// a blocked runtime keep IDs for longer.
pub(super) const SLICE: usize = 256;

/// The largest factor by which one fetch may exceed the one before it.
const GROWTH: u32 = 4;

/// The divisor of the maximum age that gives the time for which a batch should last. With it, few
/// IDs of the batch get too old.
const LASTING_PART: u32 = 4;

/// One batch in the buffer.
#[derive(Debug)]
pub(super) struct BufferedBatch {
    ids: Vec<u64>,
    /// The index of the first usable ID.
    start: usize,
    /// The index from which on half of the usable IDs are used.
    low: usize,
    /// The index of the next ID to cut.
    at: usize,
    /// The time at which the first slice was cut.
    pub(super) opened_at: Option<Instant>,
    born: Birth,
    pub(super) expired: Arc<AtomicBool>,
    /// The task that marks the batch when it is too old.
    _task: TaskGuard,
}

impl BufferedBatch {
    /// Skips the IDs up to `above`. They can come after a reconnect, from a shard that is behind.
    pub(super) fn new(delivery: Delivery, task_guard: TaskGuard, above: Option<u64>) -> Self {
        let Delivery { batch, born, expired } = delivery;
        let ids = batch.ids;
        let start = above.map_or(0, |above| ids.partition_point(|id| *id <= above));
        let low = start + (ids.len() - start).div_ceil(2);
        Self { ids, start, low, at: start, opened_at: None, born, expired, _task: task_guard }
    }

    /// Fills `slice` with up to [`SLICE`] IDs, and ends where half of the batch is used. Returns
    /// false if the batch is used up.
    pub(super) fn cut(&mut self, now: Instant, slice: &mut Vec<u64>) -> bool {
        self.opened_at.get_or_insert(now);
        let limit = if self.is_low() { self.ids.len() } else { self.low };
        let end = limit.min(self.at + SLICE);
        slice.extend_from_slice(&self.ids[self.at..end]);
        self.at = end;
        !slice.is_empty()
    }

    pub(super) fn is_expired(&self, options: &IdsOptions) -> bool {
        self.born.age() >= options.max_age || self.expired.load(Ordering::Relaxed)
    }

    pub(super) fn is_low(&self) -> bool {
        self.at >= self.low
    }

    /// Returns the number of IDs cut so far.
    pub(super) fn used(&self) -> u64 {
        (self.at - self.start) as u64
    }

    /// Returns how many IDs to fetch next. At the pace of this batch they last for the maximum
    /// age divided by [`LASTING_PART`].
    pub(super) fn next_count(&self, now: Instant, last_count: u32, options: &IdsOptions) -> u32 {
        let Some(opened_at) = self.opened_at else { return last_count };
        let pace_ns = now.saturating_duration_since(opened_at).as_nanos().max(1);
        let lasting_ns = options.max_age.as_nanos() / u128::from(LASTING_PART);
        let wanted = u128::from(self.used()).saturating_mul(lasting_ns) / pace_ns;
        let most = last_count.saturating_mul(GROWTH).min(options.max_batch);
        u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, most.max(1))
    }
}
