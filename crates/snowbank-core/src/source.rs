//! A source's cursor: the only place where uniqueness is decided.
//!
//! A [`Source`] is a named, independent supply of IDs. Nothing at or above its cursor was claimed.
//! A claim moves the cursor up with a compare-and-swap, so no position is ever claimed twice. A
//! claim lies in the [`Window`] that the ID clock and the ceiling allow at that moment. Requests
//! for more positions than the window holds wait in the source's [wait queue](wait_queue).
//!
//! Relaxed atomics are enough for uniqueness: each claim is one read-modify-write of one atomic,
//! and these operations are totally ordered. A claim is still a release. A thread that finds the
//! cursor ahead of its own clock must also see the clock reading that moved the cursor there. The
//! ceiling is read with acquire.

pub mod wait_queue;

mod claim_rules;
mod kind;
mod ranges;
mod window;

pub use claim_rules::{OnStepBack, Rules, SequenceStart};
pub use kind::Kind;
pub use ranges::{InRanges, LastNumber, Range};
pub use window::{Bound, Window};

use std::time::Duration;

use crossbeam::utils::CachePadded;

use crate::clock::{self, CatchUp, Now};
use crate::grant::Grant;
use crate::sync::{AtomicI64, AtomicU64, Ordering};
use ranges::SharedCounter;
use snowbank_id::layout::{Position, UnixMicros};
use snowbank_id::numbering::Numbering;
use wait_queue::WaitQueue;

/// The cursor of a sealed source. It is above every position, so a claim finds no position left.
const SEALED: u64 = u64::MAX;

/// Positions claimed together: `from` and the positions that follow it, `count` in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first position.
    pub from: Position,
    /// The number of positions.
    pub count: u64,
}

impl Span {
    /// Returns the position after the last.
    pub fn end(&self) -> Position {
        Position(self.from.0 + self.count)
    }

    /// Returns the part of the span at or above `oldest`. This part is empty if the whole span lies
    /// below `oldest`.
    #[inline]
    pub fn above(self, oldest: Position) -> Span {
        let below = oldest.0.saturating_sub(self.from.0).min(self.count);
        Span { from: Position(self.from.0 + below), count: self.count - below }
    }
}

/// A named, independent supply of IDs.
#[derive(Debug)]
pub struct Source {
    name: String,
    kind: Kind,
    numbering: Numbering,
    rules: Rules,
    /// Nothing at or above this position was claimed. [`SEALED`] after the seal.
    cursor: CachePadded<AtomicU64>,
    /// The value that the cursor had when the source was created. While the cursor has this value,
    /// nothing has been claimed.
    start: Position,
    /// True if the last claim before `start` ended there.
    starts_at_a_claim: bool,
    grant: Grant,
    catch_up: CatchUp,
    /// The start, if the clock must reach it before the first claim. See
    /// [`begins_with_the_clock`](Source::begins_with_the_clock).
    begins_at: Option<Position>,
    /// The newest boot clock reading from which positions may have been claimed, to within a
    /// millisecond. An older reading does not mean that the clock went back: the thread that read
    /// the clock was delayed.
    newest_boot_us: AtomicI64,
    wait_queue: WaitQueue,
    /// `Some` if the source takes its numbers from a counter at a fleet's coordinator.
    shared_counter: Option<SharedCounter>,
}

impl Source {
    /// Creates a source whose first ID is at `start` or above, under a grant whose ceiling is
    /// durable already.
    ///
    /// No ID lies below the tick of `now`. The stored state may be an older copy. Then IDs of
    /// earlier ticks may have been handed out after the copy was made. The burst reserve grows from
    /// that tick on.
    ///
    /// After a crash, or to guard a first start, `start` is ahead of the wall clock. Then a
    /// catch-up begins at `start`, so that the first ID is available at once if `max_ahead` allows
    /// it.
    pub fn new(
        name: String,
        numbering: Numbering,
        rules: Rules,
        grant: Grant,
        start: Position,
        now: Now,
    ) -> Self {
        let start = start.max(numbering.first_of(numbering.tick_at(now.wall)));
        assert!(start <= numbering.end(), "no source starts beyond its numbering");
        // The catch-up begins here, because the first ceiling follows the ID clock and is written
        // before the first request.
        let catch_up = CatchUp::none();
        let base = numbering.start_of(numbering.tick_of(start));
        if base > now.wall {
            catch_up.raise_to(base, now.boot);
        }
        let kind = Kind::of(&numbering, false);
        let tick = Duration::from_millis(numbering.tick_ms());
        let wait_queue = WaitQueue::new(numbering.ids_per_tick(), rules.burst_window, tick);
        let cursor = CachePadded::new(AtomicU64::new(start.0));
        let newest_boot_us = AtomicI64::new(now.boot.0);
        Source {
            name,
            kind,
            numbering,
            rules,
            cursor,
            start,
            starts_at_a_claim: false,
            grant,
            catch_up,
            begins_at: None,
            newest_boot_us,
            wait_queue,
            shared_counter: None,
        }
    }

    /// Makes the source begin when the wall clock reaches its start, without a catch-up.
    ///
    /// This is for a source without a stored state. Another process may have begun in the same
    /// tick, and with a catch-up both processes would hand out IDs from the same position on.
    pub fn begins_with_the_clock(mut self) -> Self {
        self.catch_up = CatchUp::none();
        self.begins_at = self.cursor();
        self
    }

    /// Records that a clean stop has stored the end of the last claim, and that the source starts
    /// there.
    pub fn starts_at_a_claim(self) -> Self {
        Source { starts_at_a_claim: true, ..self }
    }

    /// Returns the time until a source that [begins with the clock](Source::begins_with_the_clock)
    /// begins. Returns `None` once it has begun, and for other sources.
    fn begins_in(&self, cursor: Position, now: Now) -> Option<Duration> {
        let start = self.begins_at.filter(|&start| start == cursor)?;
        let ahead_us = self.numbering.start_of(self.numbering.tick_of(start)).0.saturating_sub(now.wall.0);
        (ahead_us > 0).then(|| Duration::from_micros(ahead_us.unsigned_abs()))
    }

    /// Takes the grant away, because the machine was restored from a snapshot, and other copies of
    /// the machine may continue from the same cursor. A snowflake source gets its grant back with
    /// the next raise, because the clock has moved on. A shared counter gets its grant back with
    /// the next range, which the coordinator gives to only one copy. Any other ticket counter loses
    /// its grant for good.
    pub fn record_restored(&self) {
        if self.kind.counts_by_itself() { self.grant.lose() } else { self.grant.revoke() }
    }

    /// Returns true while a source that [begins with the clock](Source::begins_with_the_clock) has
    /// not begun.
    pub fn is_yet_to_begin(&self, now: Now) -> bool {
        self.cursor().is_some_and(|cursor| self.begins_in(cursor, now).is_some())
    }

    /// Returns the kind.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the name that clients send.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the numbering.
    pub fn numbering(&self) -> &Numbering {
        &self.numbering
    }

    /// Returns the length of one tick.
    pub fn tick(&self) -> Duration {
        Duration::from_millis(self.numbering.tick_ms())
    }

    /// Returns the rules by which the source follows the clock.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the grant under which the source claims.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Returns the queue of requests that wait for positions.
    pub fn wait_queue(&self) -> &WaitQueue {
        &self.wait_queue
    }

    /// Returns the cursor, or `None` once the source is sealed. The result may be stale as soon as
    /// it is read.
    pub fn cursor(&self) -> Option<Position> {
        Some(self.cursor.load(Ordering::Relaxed)).filter(|&cursor| cursor != SEALED).map(Position)
    }

    /// Ends all claims for ever and returns the cursor. Returns `None` if the source was sealed
    /// before.
    ///
    /// A claim that races with the seal either comes first and lies below the returned position, or
    /// it fails.
    pub fn seal(&self) -> Option<Position> {
        let cursor = self.cursor.swap(SEALED, Ordering::Relaxed);
        assert!(
            cursor == SEALED || cursor <= self.numbering.end().0,
            "no claim reached beyond the numbering"
        );
        (cursor != SEALED).then_some(Position(cursor))
    }

    /// Claims exactly `count` positions, at once or not at all. Returns `None` if too few are left,
    /// or if the claim may not bypass the requests that wait.
    #[inline]
    pub fn claim(&self, window: &Window, count: u64, rng: &mut fastrand::Rng) -> Option<Position> {
        if !self.wait_queue.may_bypass(count) {
            return None;
        }
        self.claim_some(window, count, count, window.limit, rng).map(|span| span.from)
    }

    /// Claims exactly `count` positions ahead of demand. Their ticks are so young that the IDs can
    /// still be handed out for at least `keep_for` from now.
    pub fn claim_ahead(
        &self,
        window: &Window,
        count: u64,
        keep_for: Duration,
        rng: &mut fastrand::Rng,
    ) -> Option<Position> {
        let age = self.rules.burst_window.saturating_sub(keep_for);
        let youngest_floor = UnixMicros(window.id_time.0.saturating_sub(clock::micros(age)));
        let floor = self.numbering.first_of(self.numbering.tick_at(youngest_floor));
        self.claim(&Window { floor, ..*window }, count, rng)
    }

    /// Returns the number of positions that a claim could get now, if no other thread claims.
    pub fn left(&self, window: &Window) -> u64 {
        let cursor = self.cursor.load(Ordering::Relaxed).max(window.floor.0);
        window.limit.0.saturating_sub(cursor)
    }

    /// Claims at least `least` and at most `most` positions below `limit`.
    #[inline]
    fn claim_some(
        &self,
        window: &Window,
        least: u64,
        most: u64,
        limit: Position,
        rng: &mut fastrand::Rng,
    ) -> Option<Span> {
        let mut cursor = self.cursor.load(Ordering::Relaxed);
        loop {
            let from = if cursor < window.floor.0 {
                self.start_after_idling(window, most, limit, rng)
            } else {
                cursor
            };
            let count = limit.0.saturating_sub(from).min(most);
            if count < least {
                return None;
            }
            // `from + count` is at most `limit`, so it does not overflow or reach SEALED.
            let next = from + count;
            debug_assert!(
                cursor <= from && from <= next && next <= limit.0,
                "a claim moves the cursor up, within its window"
            );
            match self.cursor.compare_exchange_weak(cursor, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(Span { from: Position(from), count }),
                Err(current) => cursor = current,
            }
        }
    }

    /// Returns the position at which a claim starts when the cursor jumps to the floor.
    ///
    /// With `Spread`, the index is random, from the lowest quarter of the tick's indices. If that
    /// quarter has fewer than 256, the index is from the lowest 256, or from all if the tick has
    /// fewer. If the claim does not fit below the limit from that index on, the claim starts at the
    /// floor itself.
    fn start_after_idling(
        &self,
        window: &Window,
        most: u64,
        limit: Position,
        rng: &mut fastrand::Rng,
    ) -> u64 {
        let floor = window.floor.0;
        if self.rules.sequence_start == SequenceStart::Zero {
            return floor;
        }
        let ids_per_tick = self.numbering.ids_per_tick();
        let indices = (ids_per_tick / 4).max(256).min(ids_per_tick);
        let start = floor + rng.u64(..indices);
        if start.saturating_add(most) <= limit.0 { start } else { floor }
    }
}

#[cfg(test)]
pub(crate) mod tests;
