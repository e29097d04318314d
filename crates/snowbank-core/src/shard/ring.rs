//! Blocks of IDs claimed ahead of demand, and the lock-free ring in which a shard keeps them.

use std::sync::OnceLock;

use crossbeam::utils::CachePadded;

use crate::source::Span;
use crate::sync::{ArrayQueue, AtomicU64, Ordering};
use snowbank_id::layout::{Position, Run};
use snowbank_id::numbering::Numbering;

/// The most blocks that a ring holds. The ring has room for the last claim ahead of demand, for
/// what is left of earlier claims, and for blocks taken from siblings.
pub const RING_BLOCKS: usize = 64;

/// Consecutive positions claimed ahead of demand, in one tick or several. A block is not split into
/// the layout's runs, so a few blocks hold all that a shard claims ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The positions.
    pub span: Span,
    /// The grant's generation under which the positions were claimed. A block of an earlier
    /// generation is not handed out.
    pub generation: u64,
}

/// The IDs that a shard hands out next: the rest of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentRun {
    /// The position after that of the last ID. A run's positions are consecutive, as a block's are.
    pub end: Position,
    /// The first ID that is left.
    pub first: u64,
    /// The distance between two IDs.
    pub stride: u64,
    /// The number of IDs left.
    pub count: u32,
}

impl CurrentRun {
    /// An empty run: the value before the first run is cut.
    pub const EMPTY: CurrentRun = CurrentRun { end: Position(0), first: 0, stride: 0, count: 0 };

    /// Cuts the longest run off the front of `span`. Returns `None` when the span is used up.
    #[inline]
    pub fn cut(numbering: &Numbering, span: &mut Span) -> Option<CurrentRun> {
        if span.count == 0 {
            return None;
        }
        let run = numbering.run_at(span.from, span.count);
        span.from = Position(span.from.0 + u64::from(run.count));
        span.count -= u64::from(run.count);
        Some(CurrentRun { end: span.from, first: run.first, stride: run.stride, count: run.count })
    }

    /// Takes up to `most` IDs off the front. Returns `None` when none are left.
    #[inline]
    pub fn take(&mut self, most: u64) -> Option<Run> {
        if self.count == 0 {
            return None;
        }
        let count = most.min(u64::from(self.count)) as u32;
        let run = Run { first: self.first, count, stride: self.stride };
        self.count -= count;
        // After the last ID, `first` may leave the ID space. It is unused then.
        self.first = self.first.wrapping_add(u64::from(count).wrapping_mul(self.stride));
        Some(run)
    }

    /// Returns the position of the first ID that is left, or the position after the last when the
    /// run is used up.
    #[inline]
    pub fn position(&self) -> Position {
        Position(self.end.0 - u64::from(self.count))
    }
}

/// The ring of one shard's blocks of one source. The shard pushes blocks in increasing order, and
/// takes the first ones. Siblings also take blocks when the source has too little left to claim.
///
/// The queue is made at the first push. Ticket sources and idle ones never push, and a daemon may have
/// a thousand of them on each shard.
#[derive(Debug, Default)]
pub struct Ring {
    blocks: OnceLock<ArrayQueue<Block>>,
    /// The number of IDs in `blocks`. The number can be too high for a moment, because it rises
    /// before a push and falls after a pop.
    ids: CachePadded<AtomicU64>,
}

impl Ring {
    /// Adds a block at the end. Returns false if the ring is full. The block's IDs are then
    /// skipped.
    pub fn push(&self, block: Block) -> bool {
        self.ids.fetch_add(block.span.count, Ordering::Relaxed);
        let blocks = self.blocks.get_or_init(|| ArrayQueue::new(RING_BLOCKS));
        let pushed = blocks.push(block).is_ok();
        if !pushed {
            self.ids.fetch_sub(block.span.count, Ordering::Relaxed);
        }
        pushed
    }

    /// Takes the first block.
    pub fn pop(&self) -> Option<Block> {
        let block = self.blocks.get()?.pop()?;
        self.ids.fetch_sub(block.span.count, Ordering::Relaxed);
        Some(block)
    }

    /// Returns the number of blocks for which there is room.
    pub fn room(&self) -> usize {
        RING_BLOCKS.saturating_sub(self.blocks.get().map_or(0, ArrayQueue::len))
    }

    /// Returns about how many IDs the ring holds.
    #[inline]
    pub fn ids(&self) -> u64 {
        self.ids.load(Ordering::Relaxed)
    }

    /// Drops all blocks. Their IDs are skipped.
    pub fn clear(&self) {
        while self.pop().is_some() {}
    }
}
