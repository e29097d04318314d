//! One batch in use, and how much of it to cut off at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use super::fetch::{Delivery, Keeper};
use super::options::IdsOptions;
use crate::client::Batch;

/// IDs handed out between two looks at the clock and at how much is left. The two cost some 40 ns together, so at 256
/// they are lost beside the IDs themselves; fewer would show, more would let a blocked runtime keep IDs for longer.
pub(super) const SLICE: usize = 256;

/// A fetch asks for at most so many times what the one before it did.
const GROWTH: u32 = 4;

/// A batch is meant to last for this part of the maximum age, so that little of it gets too old.
const LASTING_PART: u32 = 4;

/// One batch in use.
#[derive(Debug)]
pub(super) struct Shelf {
    batch: Batch,
    /// The run that the next slice is cut from.
    run: usize,
    /// IDs of that run that are used or skipped.
    offset: u32,
    /// IDs that this shelf had when it was opened.
    count: u64,
    /// Of those, IDs not yet cut.
    left: u64,
    /// When the first slice was cut.
    pub(super) opened_at: Option<Instant>,
    good_until: Instant,
    pub(super) expired: Arc<AtomicBool>,
    /// Says when the batch is too old; ended with the shelf.
    _keeper: Keeper,
}

impl Shelf {
    /// A shelf without the IDs that are not above `above`, in case a reconnect came to a less advanced shard.
    pub(super) fn new(delivery: Delivery, keeper: Keeper, above: Option<u64>) -> Self {
        let Delivery { batch, good_until, expired } = delivery;
        let (mut run, mut offset, mut skipped) = (0, 0, 0);
        if let Some(above) = above {
            while let Some(found) = batch.run(run) {
                let low = match above.checked_sub(found.first) {
                    None => 0,
                    Some(_) if found.last() <= above => found.count,
                    // Fewer than the run's count, because its last ID is above.
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
        Self { batch, run, offset, count, left: count, opened_at: None, good_until, expired, _keeper: keeper }
    }

    /// Fills `slice` with up to [`SLICE`] IDs, ending where the shelf becomes low; false if it is used up.
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
            // No more than a run's count, which has 32 bits.
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

    pub(super) fn is_expired(&self, now: Instant) -> bool {
        now >= self.good_until || self.expired.load(Ordering::Relaxed)
    }

    pub(super) fn is_low(&self) -> bool {
        self.left <= self.count / 2
    }

    /// IDs cut so far.
    pub(super) fn used(&self) -> u64 {
        self.count - self.left
    }

    /// How many to fetch next, so that they last for a part of the maximum age at the pace of this shelf.
    pub(super) fn next_count(&self, now: Instant, last_count: u32, options: &IdsOptions) -> u32 {
        let Some(opened_at) = self.opened_at else { return last_count };
        let pace_ns = now.saturating_duration_since(opened_at).as_nanos().max(1);
        let lasting_ns = options.max_age.as_nanos() / u128::from(LASTING_PART);
        let wanted = u128::from(self.used()).saturating_mul(lasting_ns) / pace_ns;
        let most = last_count.saturating_mul(GROWTH).min(options.max_batch);
        u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, most.max(1))
    }
}
