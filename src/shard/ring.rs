//! Blocks of IDs claimed ahead of demand, and the lock-free ring in which a shard keeps them.

use crossbeam::utils::CachePadded;

use crate::source::Span;
use crate::sync::{ArrayQueue, AtomicU64, Ordering};
use snowbank_client::layout::{Numbering, Position, Run};

/// How many blocks a ring holds. What a shard claims ahead is cut to fit.
pub const RING_BLOCKS: usize = 64;

/// Consecutive IDs of one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The position after the last: positions of one block are consecutive too.
    pub end: Position,
    /// The first ID that is left.
    pub first: u64,
    /// The distance between two IDs.
    pub stride: u64,
    /// How many are left.
    pub count: u32,
    /// The grant's generation under which it was claimed, cut to 32 bits: a block of an earlier one is not handed out.
    pub generation: u32,
}

impl Block {
    /// A used-up block: nothing handed out so far.
    pub const EMPTY: Block = Block { end: Position(0), first: 0, stride: 0, count: 0, generation: 0 };

    /// The block at the front of `span`, of at most `most` IDs; `None` when the span is used up. Moves the span on.
    pub fn cut(numbering: &Numbering, span: &mut Span, most: u64, generation: u32) -> Option<Block> {
        if span.count == 0 {
            return None;
        }
        let run = numbering.run_at(span.from, span.count.min(most));
        span.from = Position(span.from.0 + u64::from(run.count));
        span.count -= u64::from(run.count);
        Some(Block { end: span.from, first: run.first, stride: run.stride, count: run.count, generation })
    }

    /// Takes up to `most` IDs off the front; `None` when there are none.
    #[inline]
    pub fn take(&mut self, most: u64) -> Option<Run> {
        if self.count == 0 {
            return None;
        }
        let count = most.min(u64::from(self.count)) as u32;
        let run = Run { first: self.first, count, stride: self.stride };
        self.count -= count;
        // The last step of a block may leave the ID space; the result is not used then.
        self.first = self.first.wrapping_add(u64::from(count).wrapping_mul(self.stride));
        Some(run)
    }

    /// Takes one ID; `None` when there is none.
    #[inline]
    pub fn take_one(&mut self) -> Option<u64> {
        let count = self.count.checked_sub(1)?;
        let id = self.first;
        self.count = count;
        self.first = id.wrapping_add(self.stride);
        Some(id)
    }

    /// The position of the first ID that is left; that after the last when it is used up.
    #[inline]
    pub fn position(&self) -> Position {
        Position(self.end.0 - u64::from(self.count))
    }
}

/// One shard's blocks of one source. Filled by its own shard, in increasing order; emptied by it, and by siblings at the
/// edge.
#[derive(Debug)]
pub struct Ring {
    blocks: ArrayQueue<Block>,
    /// IDs in `blocks`, or a little more for a moment: raised before a push, lowered after a pop.
    ids: CachePadded<AtomicU64>,
}

impl Default for Ring {
    fn default() -> Self {
        Ring { blocks: ArrayQueue::new(RING_BLOCKS), ids: CachePadded::new(AtomicU64::new(0)) }
    }
}

impl Ring {
    /// Adds a block at the end. False when the ring is full: the block's IDs are skipped then.
    pub fn push(&self, block: Block) -> bool {
        self.ids.fetch_add(u64::from(block.count), Ordering::Relaxed);
        let pushed = self.blocks.push(block).is_ok();
        if !pushed {
            self.ids.fetch_sub(u64::from(block.count), Ordering::Relaxed);
        }
        pushed
    }

    /// Takes the first block.
    pub fn pop(&self) -> Option<Block> {
        let block = self.blocks.pop()?;
        self.ids.fetch_sub(u64::from(block.count), Ordering::Relaxed);
        Some(block)
    }

    /// Whether it has no room for a block.
    pub fn is_full(&self) -> bool {
        self.blocks.is_full()
    }

    /// About how many IDs are in it.
    #[inline]
    pub fn ids(&self) -> u64 {
        self.ids.load(Ordering::Relaxed)
    }

    /// Drops all blocks. Their IDs are skipped.
    pub fn clear(&self) {
        while self.pop().is_some() {}
    }
}
