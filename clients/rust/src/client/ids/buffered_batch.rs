//! One batch in the buffer, and the slices that are cut from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use super::fetch::{Delivery, TaskGuard};
use super::options::IdsOptions;
use crate::client::Batch;
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
    batch: Batch,
    /// The run that the next slice is cut from.
    run: usize,
    /// The number of IDs of that run that are used or skipped.
    offset: u32,
    /// The number of usable IDs in the batch.
    count: u64,
    /// The number of those that are not cut yet.
    left: u64,
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
        let mut run = 0;
        let mut offset = 0;
        let mut skipped = 0;
        if let Some(above) = above {
            while let Some(found) = batch.run(run) {
                let low = match above.checked_sub(found.first) {
                    None => 0,
                    Some(_) if found.last() <= above => found.count,
                    // Less than the run's count, because its last ID is above.
                    Some(distance) => (distance / found.stride) as u32 + 1,
                };
                skipped += u64::from(low);
                if low < found.count {
                    offset = low;
                    break;
                }
                run += 1;
            }
        }
        let count = batch.len() as u64 - skipped;
        Self { batch, run, offset, count, left: count, opened_at: None, born, expired, _task: task_guard }
    }

    /// Fills `slice` with up to [`SLICE`] IDs, and ends where half of the batch is used. Returns
    /// false if the batch is used up.
    pub(super) fn cut(&mut self, now: Instant, slice: &mut Vec<u64>) -> bool {
        self.opened_at.get_or_insert(now);
        let until_low = match self.left - self.left.min(self.count / 2) {
            0 => SLICE,
            more => SLICE.min(more as usize),
        };
        while slice.len() < until_low
            && let Some(run) = self.batch.run(self.run)
        {
            let room = (until_low - slice.len()) as u64;
            // At most a run's count, which has 32 bits.
            let taken = u64::from(run.count - self.offset).min(room) as u32;
            let first = u64::from(self.offset);
            slice.extend((first..first + u64::from(taken)).map(|step| run.first + step * run.stride));
            self.left -= u64::from(taken);
            self.offset += taken;
            if self.offset == run.count {
                self.run += 1;
                self.offset = 0;
            }
        }
        !slice.is_empty()
    }

    pub(super) fn is_expired(&self, options: &IdsOptions) -> bool {
        self.born.age() >= options.max_age || self.expired.load(Ordering::Relaxed)
    }

    pub(super) fn is_low(&self) -> bool {
        self.left <= self.count / 2
    }

    /// Returns the number of IDs cut so far.
    pub(super) fn used(&self) -> u64 {
        self.count - self.left
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
