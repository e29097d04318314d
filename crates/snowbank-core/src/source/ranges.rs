//! The ranges of a shared counter. The fleet's coordinator gave each of them to this daemon alone.
//!
//! The cursor is in one range, whose end is the grant's ceiling. The next range waits here until a
//! request does not fit into the rest of the present one. Other daemons may have the numbers
//! between the two ranges. So the cursor moves to the next range before the ceiling does. No other
//! daemon ever has a number between the cursor and the ceiling.

use super::{Kind, Source};
use crate::clock::Now;
use crate::grant::Grant;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use snowbank_id::layout::Position;

/// Positions that only this daemon has: from `from` up to, but not including, `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first position.
    pub from: Position,
    /// The position after the last.
    pub to: Position,
    /// The generation of the grant when the keeper asked for the range. After a loss of the grant
    /// another copy of the machine may have the range too.
    pub generation: u64,
}

impl Range {
    fn count(&self) -> u64 {
        self.to.0.saturating_sub(self.from.0)
    }
}

/// The numbers left in a source's ranges, read at one moment. A request gets consecutive numbers,
/// so it must fit into one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InRanges {
    /// The numbers that are left in the present range.
    pub rest: u64,
    /// The numbers of the next range.
    pub next: u64,
}

impl InRanges {
    /// Returns how many numbers the two ranges have together.
    pub fn total(self) -> u64 {
        self.rest.saturating_add(self.next)
    }

    /// Returns how many numbers the larger range has. A request for more numbers waits for another
    /// range.
    pub fn largest(self) -> u64 {
        self.rest.max(self.next)
    }
}

/// The state that a source has only if its counter is at a fleet's coordinator.
#[derive(Debug, Default)]
pub(super) struct SharedCounter {
    /// The range after the present one.
    next: Mutex<Option<Range>>,
    /// The last move of the cursor to another range: the cursor before it, and after it. Written and
    /// read under the lock of `next`.
    moved_from: AtomicU64,
    moved_to: AtomicU64,
    /// The number of positions that the cursor skipped when it moved to another range. These
    /// positions do not count as demand.
    skipped: AtomicU64,
    /// True while the coordinator has no range left. Then the ranges held here are the last.
    has_ended: AtomicBool,
}

/// The last number of a ticket counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastNumber {
    /// No larger number was handed out.
    pub number: u64,
    /// True if the number itself was handed out, or none ever was. False after a crash until the
    /// first number, because only the end of the reservation is stored.
    pub is_exact: bool,
}

impl Source {
    /// Makes a ticket source take its numbers from ranges of a shared counter. Nothing is granted
    /// before the first range.
    pub fn with_shared_counter(mut self) -> Self {
        self.kind = Kind::SharedTicket;
        self.shared_counter = Some(SharedCounter::default());
        self
    }

    /// Returns how many numbers are left in the present range. That range may change unless the
    /// caller holds the lock of `next`.
    fn left_in_range(&self) -> u64 {
        // A sealed source has no numbers left.
        let cursor = self.cursor().map_or(u64::MAX, |cursor| cursor.0);
        self.grant.ceiling().0.saturating_sub(cursor)
    }

    /// Returns how many numbers are left in the present range, and how many the next range has. A
    /// source without a shared counter has no next range.
    pub fn in_ranges(&self) -> InRanges {
        let Some(shared) = &self.shared_counter else {
            return InRanges { rest: self.left_in_range(), next: 0 };
        };
        // While the lock is held, the source does not move on to its next range.
        let next = lock(&shared.next);
        InRanges { rest: self.left_in_range(), next: self.count_of(*next) }
    }

    /// Returns how many numbers the next range has: none if the grant was taken away after the
    /// keeper asked for the range.
    fn count_of(&self, next: Option<Range>) -> u64 {
        let generation = self.grant.generation();
        next.filter(|next| next.generation == generation).map_or(0, |next| next.count())
    }

    /// Returns true if this ceiling is the end of the last range, so that waiting does not help.
    pub(super) fn ends_at(&self, ceiling: Position) -> bool {
        let Some(shared) = &self.shared_counter else { return false };
        if !self.has_last_range() {
            return false;
        }
        // If the source has moved on to its next range since this ceiling was read, the grant's
        // ceiling is higher now.
        let next = lock(&shared.next);
        self.count_of(*next) == 0 && self.grant.ceiling() == ceiling && !self.grant.is_lost()
    }

    /// Records that the coordinator has no range left for this source, until a range is added.
    pub fn end_ranges(&self) {
        if let Some(shared) = &self.shared_counter {
            shared.has_ended.store(true, Ordering::Release);
        }
    }

    /// Returns true if no range is left at the coordinator: the ranges held here are the last.
    pub fn has_last_range(&self) -> bool {
        self.shared_counter.as_ref().is_some_and(|shared| shared.has_ended.load(Ordering::Acquire))
    }

    /// Returns the number of positions left in a ticket counter. If the counter is shared, other
    /// daemons take some of them.
    pub fn left_of_counter(&self) -> u64 {
        if self.has_last_range() {
            return self.in_ranges().total();
        }
        let end = self.numbering.end();
        // A sealed source hands out nothing more.
        end.0.saturating_sub(self.cursor().unwrap_or(end).0)
    }

    /// Returns the last number that was handed out; 0 if there was none ever. `None` for a sealed
    /// source, and for one that follows the clock.
    ///
    /// The numbers of a request that ended before its reply count as handed out.
    pub fn last_number(&self) -> Option<LastNumber> {
        self.numbering.ticket()?;
        let _not_moving = self.shared_counter.as_ref().map(|shared| lock(&shared.next));
        let mut end = self.cursor()?.0;
        if let Some(shared) = &self.shared_counter
            && end == shared.moved_to.load(Ordering::Relaxed)
        {
            // Nothing was claimed since the cursor moved to another range.
            end = shared.moved_from.load(Ordering::Relaxed);
        }
        let number = end.checked_sub(1).map_or(0, |last| self.numbering.id_at(Position(last)));
        let is_exact = end != self.start.0 || self.starts_at_a_claim || number == 0;
        Some(LastNumber { number, is_exact })
    }

    /// Returns how many positions the cursor skipped when it moved from one range to another.
    pub fn skipped(&self) -> u64 {
        self.shared_counter.as_ref().map_or(0, |shared| shared.skipped.load(Ordering::Relaxed))
    }

    /// Adds a range that the coordinator gave to this daemon. A range asked for before a loss of
    /// the grant is skipped. If the new range directly follows the present range, and there is no
    /// next range, the new range extends the present one. If nothing is left of the present range,
    /// the new range is used at once. Otherwise the new range becomes the next range, and an
    /// earlier next range is skipped.
    pub fn add_range(&self, range: Range) {
        let Some(shared) = &self.shared_counter else { return };
        assert!(range.from < range.to, "a range has numbers, or the counter has ended");
        let mut next = lock(&shared.next);
        shared.has_ended.store(false, Ordering::Release);
        // The range has arrived. From now on, a request that does not fit wakes the keeper again.
        self.grant.forget_want();
        if range.from == self.grant.ceiling() && next.is_none() {
            self.grant.raise_if(range.generation, range.to);
        } else if self.left_in_range() == 0 {
            *next = None;
            self.use_range(range);
        } else if range.generation == self.grant.generation() {
            *next = Some(range);
        }
    }

    /// Moves on to the next range if a request for `least` numbers fits into it. The rest of the
    /// present range is skipped. Returns whether the source moved on.
    pub(super) fn use_next_range(&self, least: u64) -> bool {
        let Some(shared) = &self.shared_counter else { return false };
        let mut next = lock(&shared.next);
        next.take_if(|next| next.count() >= least).is_some_and(|range| self.use_range(range))
    }

    /// Moves the cursor to the start of a range, and then the ceiling to its end. The caller must
    /// hold the lock of the next range, because only the holder of that lock raises the grant of a
    /// shared counter.
    fn use_range(&self, range: Range) -> bool {
        if range.generation != self.grant.generation() {
            return false;
        }
        assert!(range.from >= self.grant.ceiling(), "the ranges of a daemon rise, or a number comes twice");
        let before = self.cursor.fetch_max(range.from.0, Ordering::Release);
        if let Some(shared) = &self.shared_counter {
            // If nothing was claimed since the last move, the last number lies before that move.
            if before != shared.moved_to.load(Ordering::Relaxed) {
                shared.moved_from.store(before, Ordering::Relaxed);
            }
            shared.moved_to.store(range.from.0, Ordering::Relaxed);
            shared.skipped.fetch_add(range.from.0.saturating_sub(before), Ordering::Relaxed);
        }
        self.grant.raise_if(range.generation, range.to)
    }
}

impl Source {
    /// For simulations: returns a copy of this source, as after a restore of the machine from a
    /// snapshot of its memory. Returns `None` for a sealed source.
    pub fn as_restored(&self, now: Now) -> Option<Source> {
        let start = self.cursor()?;
        let grant = Grant::new(Position(0));
        (0..self.grant.generation()).for_each(|_| grant.revoke());
        grant.raise(self.grant.ceiling());
        let copy = Source::new(self.name.clone(), self.numbering.clone(), self.rules, grant, start, now);
        let next = self.shared_counter.as_ref().map(|shared| *lock(&shared.next));
        let shared = SharedCounter { next: Mutex::new(next.flatten()), ..SharedCounter::default() };
        Some(Source { kind: self.kind, shared_counter: Some(shared), ..copy })
    }
}

#[cfg(all(test, snowbank_loom))]
mod models;
