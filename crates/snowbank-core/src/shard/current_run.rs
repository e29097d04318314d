//! The run that a shard takes IDs from.

use crate::source::Span;
use snowbank_id::layout::{Position, Run};
use snowbank_id::numbering::Numbering;

/// The IDs that a shard hands out next: the rest of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CurrentRun {
    /// The position after the last ID's. The positions of a run are consecutive too.
    pub(super) end: Position,
    /// The first ID that is left.
    pub(super) first: u64,
    /// The distance between two IDs.
    pub(super) stride: u64,
    /// The number of IDs left.
    pub(super) count: u32,
}

impl CurrentRun {
    /// A used-up run: nothing handed out so far.
    pub(super) const EMPTY: CurrentRun = CurrentRun { end: Position(0), first: 0, stride: 0, count: 0 };

    /// Cuts the longest run off the front of `span`. Returns `None` when the span is used up.
    #[inline]
    pub(super) fn cut(numbering: &Numbering, span: &mut Span) -> Option<CurrentRun> {
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
    pub(super) fn take(&mut self, most: u64) -> Option<Run> {
        if self.count == 0 {
            return None;
        }
        let count = most.min(u64::from(self.count)) as u32;
        let run = Run { first: self.first, count, stride: self.stride };
        self.count -= count;
        // After the last ID this may leave the ID space; the result is unused then.
        self.first = self.first.wrapping_add(u64::from(count).wrapping_mul(self.stride));
        Some(run)
    }

    /// Returns the position of the first ID that is left, or the position after the last when the
    /// run is used up.
    #[inline]
    pub(super) fn position(&self) -> Position {
        Position(self.end.0 - u64::from(self.count))
    }
}
