//! Which positions: a source's cursor, the only place where uniqueness is decided.
//!
//! A [`Source`] is a named, independent supply of IDs. Its cursor is the first position not yet claimed; a claim moves it
//! on with a compare-and-swap, so that no position is ever claimed twice. A claim lies in the [`Window`] that the ID clock
//! and the ceiling allow at that moment. Requests that want more than the window holds wait in the source's
//! [line](line), in order.
//!
//! For uniqueness relaxed atomics would do: each claim is one read-modify-write of one atomic, and those are totally ordered.
//! A claim is a release, so that who finds the cursor ahead of his clock also sees by which reading it got there. What a
//! claim depends on besides, the durable ceiling, is read with acquire.

pub mod line;

use std::time::Duration;

use crossbeam::utils::CachePadded;

use crate::ceiling::Grant;
use crate::clock::{self, Now, Ride};
use crate::layout::{Numbering, Position, Tick, UnixMicros};
use crate::sync::{AtomicI64, AtomicU64, Ordering};
use line::{Line, Passage};

/// The cursor of a sealed source: above every position, so that each claim finds nothing left.
const SEALED: u64 = u64::MAX;

/// Shards read the clock at their own moments. A reading older than another shard's by less than this is taken as if it
/// were as new; half of it is the most by which that can raise the ride.
const READING_SKEW: Duration = Duration::from_millis(1);

/// What the ID clock does when the wall clock falls behind IDs already handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStepBack {
    /// Goes on at half speed until the wall clock has caught up.
    #[default]
    Ride,
    /// Stands still, and requests are refused until then, as Twitter's does.
    Wait,
}

impl OnStepBack {
    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            OnStepBack::Ride => "ride",
            OnStepBack::Wait => "wait",
        }
    }
}

/// Where in a new tick the sequence starts after the source was idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SequenceStart {
    /// At a random index low in the tick, so that `id mod n` is uniform at low load.
    #[default]
    Spread,
    /// At 0, as Twitter's does.
    Zero,
}

impl SequenceStart {
    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            SequenceStart::Spread => "spread",
            SequenceStart::Zero => "zero",
        }
    }
}

/// How a source follows the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How far the cursor may lag behind the ID clock: the reserve from which bursts are answered at once.
    pub burst_window: Duration,
    /// How far the ID clock may run ahead of the wall clock.
    pub max_ahead: Duration,
    /// What happens when the wall clock falls behind.
    pub on_step_back: OnStepBack,
    /// Where sequences start after idling.
    pub sequence_start: SequenceStart,
}

/// Why a window's edge is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The ID clock: more comes with the next tick.
    Clock,
    /// The ceiling: more comes when it is raised.
    Ceiling,
    /// The wall clock is too far behind; it takes this long until IDs can be had again.
    Standing(Duration),
    /// The layout's life is over.
    Ended,
    /// The source was sealed.
    Sealed,
}

/// What can be claimed at one moment: positions in [floor, edge).
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// No position below it is claimed any more: its tick is older than the burst window.
    pub floor: Position,
    /// The first position that is not to be had yet.
    pub edge: Position,
    /// What holds the edge.
    pub bound: Bound,
    /// The ID clock at that moment.
    pub id_time: UnixMicros,
    now: Now,
}

impl Window {
    /// The moment for which this window holds.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Whether nothing may be handed out at this moment, not even what was claimed ahead.
    pub fn is_shut(&self) -> bool {
        self.now.jumped || matches!(self.bound, Bound::Standing(_) | Bound::Sealed)
    }
}

/// Positions claimed together: `count` of them from `from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first position.
    pub from: Position,
    /// How many. At least 1.
    pub count: u64,
}

impl Span {
    /// The position after the last.
    pub fn end(&self) -> Position {
        Position(self.from.0 + self.count)
    }
}

/// A named, independent supply of IDs.
#[derive(Debug)]
pub struct Source {
    name: String,
    numbering: Numbering,
    rules: Rules,
    /// The first position not yet claimed; [`SEALED`] after the end.
    cursor: CachePadded<AtomicU64>,
    grant: Grant,
    ride: Ride,
    /// The newest boot clock reading that a window was made by, to within [`READING_SKEW`]. An older one says nothing about
    /// the clock having gone back: its thread was held up.
    newest_boot_us: AtomicI64,
    line: Line,
}

impl Source {
    /// A source whose first ID is at `start` or above, under a grant whose ceiling is durable already.
    ///
    /// A start ahead of the wall clock (after a crash, or to guard a first start) is ridden from, so that the first ID
    /// needs no wait.
    pub fn new(
        name: String,
        numbering: Numbering,
        rules: Rules,
        grant: Grant,
        start: Position,
        now: Now,
    ) -> Self {
        let ride = Ride::none();
        let base = numbering.start_of(numbering.tick_of(start));
        if base > now.wall {
            ride.raise_to(base, now.boot);
        }
        let line = Line::new(numbering.ids_per_tick(), rules.burst_window, tick_of(&numbering));
        let cursor = CachePadded::new(AtomicU64::new(start.0));
        let newest_boot_us = AtomicI64::new(now.boot.0);
        Source { name, numbering, rules, cursor, grant, ride, newest_boot_us, line }
    }

    /// Its name, by which clients ask for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its layout and worker IDs.
    pub fn numbering(&self) -> &Numbering {
        &self.numbering
    }

    /// The length of one tick.
    pub fn tick(&self) -> Duration {
        tick_of(&self.numbering)
    }

    /// How it follows the clock.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The grant under which it claims.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The requests that wait for positions.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// The first position not yet claimed, or `None` once sealed. Stale as soon as it is read.
    pub fn cursor(&self) -> Option<Position> {
        Some(self.cursor.load(Ordering::Relaxed)).filter(|&cursor| cursor != SEALED).map(Position)
    }

    /// Ends all claims, for ever, and returns the first position that was never claimed; `None` if it was sealed before.
    ///
    /// A claim that races with this either happened before, and is below the returned position, or fails.
    pub fn seal(&self) -> Option<Position> {
        let cursor = self.cursor.swap(SEALED, Ordering::Relaxed);
        (cursor != SEALED).then_some(Position(cursor))
    }

    /// The ID clock: never below the tick of the last position claimed.
    pub fn id_time(&self, now: Now) -> UnixMicros {
        let by_clock = clock::id_time(now, &self.ride, self.rules.max_ahead);
        let used = self.cursor().map_or(0, |cursor| cursor.0.saturating_sub(1));
        by_clock.max(self.numbering.start_of(self.numbering.tick_of(Position(used))))
    }

    /// What can be claimed now.
    #[inline]
    pub fn window(&self, now: Now) -> Window {
        if now.jumped {
            return Window {
                floor: Position(0),
                edge: Position(0),
                bound: Bound::Ceiling,
                id_time: now.wall,
                now,
            };
        }
        let id_time = clock::id_time(now, &self.ride, self.rules.max_ahead);
        let by_clock = self.edge_at(id_time);
        if self.cursor.load(Ordering::Relaxed) > by_clock.0 {
            return self.window_behind(now);
        }
        self.note_reading(now);
        self.window_at(now, id_time, by_clock)
    }

    /// Remembers the newest reading by which positions may have been claimed. Written once a millisecond at most, so that
    /// shards do not contend for it.
    #[inline]
    fn note_reading(&self, now: Now) {
        let newest_boot_us = self.newest_boot_us.load(Ordering::Relaxed);
        if now.boot.0.saturating_sub(newest_boot_us) >= clock::micros(READING_SKEW) {
            self.newest_boot_us.fetch_max(now.boot.0, Ordering::Relaxed);
        }
    }

    /// The end of the ID clock's tick.
    #[inline]
    fn edge_at(&self, id_time: UnixMicros) -> Position {
        self.numbering.first_of(Tick(self.numbering.tick_at(id_time).0.saturating_add(1)))
    }

    #[inline]
    fn window_at(&self, now: Now, id_time: UnixMicros, by_clock: Position) -> Window {
        let oldest = UnixMicros(id_time.0.saturating_sub(clock::micros(self.rules.burst_window)));
        let floor = self.numbering.first_of(self.numbering.tick_at(oldest));
        let ceiling = self.grant.ceiling();
        let bound = if ceiling < by_clock {
            Bound::Ceiling
        } else if by_clock == self.numbering.end() {
            Bound::Ended
        } else {
            Bound::Clock
        };
        Window { floor, edge: by_clock.min(ceiling), bound, id_time, now }
    }

    /// What can be claimed while the last position claimed is ahead of the ID clock: what happens when the clock goes
    /// back.
    #[cold]
    fn window_behind(&self, now: Now) -> Window {
        let nothing = |bound| Window { floor: Position(0), edge: Position(0), bound, id_time: now.wall, now };
        // Acquire: sees the reading by which the cursor got where it is.
        let cursor = Position(self.cursor.load(Ordering::Acquire));
        if cursor.0 == SEALED {
            return nothing(Bound::Sealed);
        }
        let nothing_left = || {
            let id_time = clock::id_time(now, &self.ride, self.rules.max_ahead);
            let window = self.window_at(now, id_time, self.edge_at(id_time));
            Window { edge: window.edge.min(cursor), bound: Bound::Clock, ..window }
        };
        if now.boot.0 < self.newest_boot_us.load(Ordering::Relaxed) {
            // Not the clock is behind, but the thread that read it. Its next reading tells.
            return nothing_left();
        }
        let highest_used =
            self.numbering.start_of(self.numbering.tick_of(Position(cursor.0.saturating_sub(1))));
        let max_ahead = match self.rules.on_step_back {
            OnStepBack::Ride => {
                self.ride.raise_to(highest_used, now.boot);
                self.rules.max_ahead
            }
            OnStepBack::Wait => Duration::ZERO,
        };
        let id_time = clock::id_time(now, &self.ride, self.rules.max_ahead);
        if id_time >= highest_used {
            self.note_reading(now);
            return self.window_at(now, id_time, self.edge_at(id_time));
        }
        match clock::until(now, &self.ride, max_ahead, highest_used) {
            ready_in if ready_in < READING_SKEW => nothing_left(),
            ready_in => nothing(Bound::Standing(ready_in)),
        }
    }

    /// The end of the tick that the ID clock will have reached `wait` after `now`, if no clock steps meanwhile.
    fn edge_after(&self, now: Now, wait: Duration) -> Position {
        self.edge_at(clock::id_time(now.after(wait), &self.ride, self.rules.max_ahead))
    }

    /// How long until the ID clock enters the tick after the window's.
    pub fn next_tick_in(&self, window: &Window) -> Duration {
        match window.bound {
            Bound::Standing(ready_in) => ready_in,
            _ => {
                let next = Tick(self.numbering.tick_at(window.id_time).0.saturating_add(1));
                let start = self.numbering.start_of(next);
                clock::until(window.now, &self.ride, self.rules.max_ahead, start)
            }
        }
    }

    /// Claims exactly `count` positions, at once or not at all. `None` too while others wait whom this one may not pass.
    #[inline]
    pub fn claim(&self, window: &Window, count: u64, rng: &mut fastrand::Rng) -> Option<Position> {
        let passage = self.line.passage(count);
        if passage == Passage::Closed {
            return None;
        }
        let span = self.claim_some(window, count, count, window.edge, rng);
        if span.is_none() && passage == Passage::Counted {
            self.line.uncount_passage(count);
        }
        span.map(|span| span.from)
    }

    /// Claims exactly `count` positions ahead of demand, of ticks young enough to be handed out for `keep_for` yet.
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

    /// How many positions a claim could get at this moment, if nobody else claims.
    pub fn left(&self, window: &Window) -> u64 {
        let cursor = self.cursor.load(Ordering::Relaxed).max(window.floor.0);
        window.edge.0.saturating_sub(cursor)
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
            // `from + count` is at most `limit`, so it neither overflows nor reaches SEALED.
            let next = from + count;
            match self.cursor.compare_exchange_weak(cursor, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(Span { from: Position(from), count }),
                Err(current) => cursor = current,
            }
        }
    }

    /// Where the sequence starts when the cursor jumps to the floor: at a random index in the lowest quarter of the tick,
    /// of at least 256 indices, all where a tick has fewer. At the floor itself if the claim would not fit otherwise.
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

fn tick_of(numbering: &Numbering) -> Duration {
    Duration::from_millis(numbering.layout().tick_ms())
}

#[cfg(test)]
mod tests;
