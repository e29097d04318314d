//! What can be claimed at one moment, by the ID clock and the ceiling; and what happens when the clock goes back.

use std::time::Duration;

use super::{OnStepBack, SEALED, Source};
use crate::clock::{self, Now};
use crate::sync::Ordering;
use snowbank_client::layout::{Position, Tick, UnixMicros};

/// Shards read the clock at their own moments. A reading older than another shard's by less than this is taken as if it
/// were as new; half of it is the most by which that can raise the catch_up.
const READING_SKEW: Duration = Duration::from_millis(1);

/// Why a window's limit is where it is.
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

/// What can be claimed at one moment: positions in [floor, limit).
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// No position below it is claimed any more: its tick is older than the burst window.
    pub floor: Position,
    /// The first position that is not to be had yet.
    pub limit: Position,
    /// What holds the limit.
    pub bound: Bound,
    /// The ID clock at that moment.
    pub id_time: UnixMicros,
    pub(super) now: Now,
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

impl Source {
    /// The ID clock: never below the tick of the last position claimed.
    pub fn id_time(&self, now: Now) -> UnixMicros {
        let by_clock = clock::id_time(now, &self.catch_up, self.rules.max_ahead);
        let used = self.cursor().map_or(0, |cursor| cursor.0.saturating_sub(1));
        by_clock.max(self.numbering.start_of(self.numbering.tick_of(Position(used))))
    }

    /// What can be claimed now, and the grant's generation for whoever keeps some of it.
    #[inline]
    pub fn window_and_generation(&self, now: Now) -> (Window, u64) {
        // Read before the window's ceiling. If the grant is lost in between, what is claimed below the old ceiling has the
        // old generation, and is dropped at the next look. Read after it, the same would pass for claimed after the loss,
        // and be handed out.
        let generation = self.grant.generation();
        (self.window(now), generation)
    }

    /// What can be claimed now.
    #[inline]
    pub fn window(&self, now: Now) -> Window {
        if now.jumped {
            return Window {
                floor: Position(0),
                limit: Position(0),
                bound: Bound::Ceiling,
                id_time: now.wall,
                now,
            };
        }
        let id_time = clock::id_time(now, &self.catch_up, self.rules.max_ahead);
        let by_clock = self.limit_at(id_time);
        let cursor = self.cursor.load(Ordering::Relaxed);
        // At the start the clock is behind as well if it has not got to its tick.
        if cursor > by_clock.0 || (cursor == by_clock.0 && cursor == self.start.0) {
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
    pub(super) fn limit_at(&self, id_time: UnixMicros) -> Position {
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
        Window { floor, limit: by_clock.min(ceiling), bound, id_time, now }
    }

    /// What can be claimed while the last position claimed is ahead of the ID clock: what happens when the clock goes
    /// back.
    #[cold]
    fn window_behind(&self, now: Now) -> Window {
        let nothing =
            |bound| Window { floor: Position(0), limit: Position(0), bound, id_time: now.wall, now };
        // Acquire: sees the reading by which the cursor got where it is.
        let cursor = Position(self.cursor.load(Ordering::Acquire));
        if cursor.0 == SEALED {
            return nothing(Bound::Sealed);
        }
        let nothing_left = || {
            let id_time = clock::id_time(now, &self.catch_up, self.rules.max_ahead);
            let window = self.window_at(now, id_time, self.limit_at(id_time));
            Window { limit: window.limit.min(cursor), bound: Bound::Clock, ..window }
        };
        if now.boot.0 < self.newest_boot_us.load(Ordering::Relaxed) || self.is_yet_to_begin(cursor, now) {
            // Not the clock is behind, but the thread that read it, whose next reading tells; or the start is yet to come.
            return nothing_left();
        }
        let highest_used = self.begun(cursor);
        let max_ahead = match self.rules.on_step_back {
            OnStepBack::Ride => {
                self.catch_up.raise_to(highest_used, now.boot);
                self.rules.max_ahead
            }
            OnStepBack::Wait => Duration::ZERO,
        };
        let id_time = clock::id_time(now, &self.catch_up, self.rules.max_ahead);
        if id_time >= highest_used {
            self.note_reading(now);
            return self.window_at(now, id_time, self.limit_at(id_time));
        }
        match clock::until(now, &self.catch_up, max_ahead, highest_used) {
            ready_in if ready_in < READING_SKEW => nothing_left(),
            ready_in => nothing(Bound::Standing(ready_in)),
        }
    }

    /// The start of the highest tick that the ID clock must be in: the last position's, or before the first claim the start's
    /// own, for there is nothing to be had below it.
    fn begun(&self, cursor: Position) -> UnixMicros {
        let is_to_begin = cursor == self.start && cursor < self.numbering.end();
        let highest = if is_to_begin { cursor.0 } else { cursor.0.saturating_sub(1) };
        self.numbering.start_of(self.numbering.tick_of(Position(highest)))
    }

    /// How long the clock keeps IDs from being had: zero unless it is further behind the last position claimed than the rules
    /// let the ID clock be ahead. Only looks: what a claim would do about it is not done.
    pub fn stands_for(&self, now: Now) -> Duration {
        let Some(cursor) = self.cursor().filter(|&cursor| !self.is_yet_to_begin(cursor, now)) else {
            return Duration::ZERO;
        };
        let highest_used = self.begun(cursor);
        if clock::id_time(now, &self.catch_up, self.rules.max_ahead) >= highest_used {
            return Duration::ZERO;
        }
        let stands_for = match self.rules.on_step_back {
            // The next claim begins a ride there, which goes as far as `max_ahead` from the start.
            OnStepBack::Ride => {
                let behind_us = highest_used.0.saturating_sub(now.wall.0);
                let beyond_us = behind_us.saturating_sub(clock::micros(self.rules.max_ahead));
                Duration::from_micros(beyond_us.max(0).unsigned_abs())
            }
            OnStepBack::Wait => clock::until(now, &self.catch_up, Duration::ZERO, highest_used),
        };
        if stands_for < READING_SKEW { Duration::ZERO } else { stands_for }
    }

    /// Begins a ride where somebody waits for the next tick: a wall clock that runs overtakes it at once, and past one that
    /// stands still it goes on at half speed.
    pub(super) fn begin_catch_up(&self, now: Now) {
        let newest_boot_us = self.newest_boot_us.load(Ordering::Relaxed);
        // An older reading would put the line too far ahead.
        if self.rules.on_step_back == OnStepBack::Wait || now.boot.0 < newest_boot_us {
            return;
        }
        if let Some(cursor) = self.cursor().filter(|&cursor| !self.is_yet_to_begin(cursor, now)) {
            let highest_used = self.numbering.tick_of(Position(cursor.0.saturating_sub(1)));
            self.catch_up.raise_to(self.numbering.start_of(highest_used), now.boot);
        }
    }

    /// Ends a ride that the wall clock has caught up with: a later step back is not to find it.
    pub fn end_catch_up(&self, now: Now) {
        self.catch_up.end_below(now);
    }

    /// The end of the tick that the ID clock will have reached `wait` after `now`, if no clock steps meanwhile.
    pub(super) fn limit_after(&self, now: Now, wait: Duration) -> Position {
        self.limit_at(clock::id_time(now.after(wait), &self.catch_up, self.rules.max_ahead))
    }

    /// How long until the ID clock is at a position's tick, if no clock steps meanwhile.
    pub fn reaches_in(&self, now: Now, position: Position) -> Duration {
        let start = self.numbering.start_of(self.numbering.tick_of(position));
        clock::until(now, &self.catch_up, self.rules.max_ahead, start)
    }

    /// How long until the ID clock enters the tick after the window's.
    pub fn next_tick_in(&self, window: &Window) -> Duration {
        match window.bound {
            Bound::Standing(ready_in) => ready_in,
            _ => {
                let next = Tick(self.numbering.tick_at(window.id_time).0.saturating_add(1));
                let start = self.numbering.start_of(next);
                clock::until(window.now, &self.catch_up, self.rules.max_ahead, start)
            }
        }
    }
}
