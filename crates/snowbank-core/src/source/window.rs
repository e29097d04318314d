//! The window: the positions that a claim may take at one moment. The ID clock and the ceiling
//! decide, even when the wall clock goes back.

use std::time::Duration;

use super::{OnStepBack, SEALED, Source};
use crate::clock::{self, Now};
use crate::sync::Ordering;
use snowbank_id::layout::{Position, Tick, UnixMicros};

/// Clock readings of two shards count as equally old if they differ by less than this, because each
/// shard reads the clock by itself. A reading that is older by less than this moves the catch-up
/// ahead by at most half of this time.
const READING_SKEW: Duration = Duration::from_millis(1);

/// The reason for a window's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The ID clock. The next tick has more positions.
    Clock,
    /// The ceiling. More positions can be claimed after it is raised.
    Ceiling,
    /// The wall clock is too far behind IDs already handed out. IDs are available again after this
    /// time.
    Standing(Duration),
    /// The source has no stored state, and the wall clock has not reached the source's start. The
    /// clock reaches the start after this time.
    YetToBegin(Duration),
    /// The end of the layout or of the counter. No position at or above the limit ever becomes
    /// available.
    Ended,
    /// The source was sealed.
    Sealed,
}

/// The positions that can be claimed at one moment: [floor, limit).
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The lowest position that can be claimed. Ticks below it are older than the burst window.
    pub floor: Position,
    /// The first position that cannot be claimed yet.
    pub limit: Position,
    /// The reason for the limit.
    pub bound: Bound,
    /// The ID clock's time at that moment. May be earlier if nothing can be claimed.
    pub id_time: UnixMicros,
    pub(super) now: Now,
}

impl Window {
    fn empty(bound: Bound, now: Now) -> Self {
        Window { floor: Position(0), limit: Position(0), bound, id_time: now.wall, now }
    }

    /// Returns the moment for which this window was computed.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Returns true if no IDs may be handed out at this moment, not even those claimed ahead.
    pub fn is_shut(&self) -> bool {
        self.now.jumped || matches!(self.bound, Bound::Standing(_) | Bound::Sealed)
    }
}

impl Source {
    /// Returns the ID clock's time, which is never below the tick of the last position claimed.
    pub fn id_time(&self, now: Now) -> UnixMicros {
        let by_clock = clock::id_time(now, &self.catch_up, self.rules.max_ahead);
        let used = self.cursor().map_or(0, |cursor| cursor.0.saturating_sub(1));
        by_clock.max(self.numbering.start_of(self.numbering.tick_of(Position(used))))
    }

    /// Returns the window for `now`, and the grant's generation for a caller that keeps positions.
    #[inline]
    pub fn window_and_generation(&self, now: Now) -> (Window, u64) {
        // The generation must be read before the ceiling. If the grant is lost in between, claims
        // below the old ceiling carry the old generation, and are dropped when the generations are
        // compared. In the opposite order, claims below the old ceiling would carry the new
        // generation, and their IDs would be handed out.
        let generation = self.grant.generation();
        (self.window(now), generation)
    }

    /// Returns the window for `now`.
    #[inline]
    pub fn window(&self, now: Now) -> Window {
        if now.jumped {
            // Nothing is claimed until the keeper has made the ceiling durable again.
            return Window::empty(Bound::Ceiling, now);
        }
        let id_time = clock::id_time(now, &self.catch_up, self.rules.max_ahead);
        let by_clock = self.limit_at(id_time);
        let cursor = self.cursor.load(Ordering::Relaxed);
        // Before the first claim, the clock is also behind if it has not reached the start's tick.
        if cursor > by_clock.0 || (cursor == by_clock.0 && cursor == self.start.0) {
            return self.window_behind(now);
        }
        self.record_reading(now);
        self.window_at(now, id_time, by_clock)
    }

    /// Records the newest reading from which positions may have been claimed. Writes the atomic
    /// once a millisecond at most, so that shards do not contend for it.
    #[inline]
    fn record_reading(&self, now: Now) {
        let newest_boot_us = self.newest_boot_us.load(Ordering::Relaxed);
        if now.boot.0.saturating_sub(newest_boot_us) >= clock::micros(READING_SKEW) {
            self.newest_boot_us.fetch_max(now.boot.0, Ordering::Relaxed);
        }
    }

    /// Returns the position after the last one of the tick that contains this ID time.
    #[inline]
    pub(super) fn limit_at(&self, id_time: UnixMicros) -> Position {
        self.numbering.first_of(Tick(self.numbering.tick_at(id_time).0.saturating_add(1)))
    }

    #[inline]
    fn window_at(&self, now: Now, id_time: UnixMicros, by_clock: Position) -> Window {
        let oldest = UnixMicros(id_time.0.saturating_sub(clock::micros(self.rules.burst_window)));
        let floor = self.numbering.first_of(self.numbering.tick_at(oldest));
        let ceiling = self.grant.ceiling();
        debug_assert!(by_clock.0 < SEALED, "a claim below the limit never seals the source");
        let bound = if ceiling < by_clock {
            if self.ends_at(ceiling) { Bound::Ended } else { Bound::Ceiling }
        } else if by_clock == self.numbering.end() {
            Bound::Ended
        } else {
            Bound::Clock
        };
        Window { floor, limit: by_clock.min(ceiling), bound, id_time, now }
    }

    /// Returns the window while the last position claimed is ahead of the ID clock, as after a step
    /// back.
    #[cold]
    fn window_behind(&self, now: Now) -> Window {
        // Acquire: this thread then also sees the clock reading that moved the cursor here.
        let cursor = Position(self.cursor.load(Ordering::Acquire));
        if cursor.0 == SEALED {
            return Window::empty(Bound::Sealed, now);
        }
        if let Some(begins_in) = self.begins_in(cursor, now) {
            return Window { bound: Bound::YetToBegin(begins_in), ..self.window_below(cursor, now) };
        }
        if now.boot.0 < self.newest_boot_us.load(Ordering::Relaxed) {
            // The clock did not go back: this thread was delayed after it read the clock. Its next
            // reading will be newer.
            return self.window_below(cursor, now);
        }
        let highest_used = self.time_to_reach(cursor);
        let ready_in = self.time_until_reached(highest_used, cursor, now);
        if ready_in >= READING_SKEW {
            return Window::empty(Bound::Standing(ready_in), now);
        }
        if self.may_catch_up(cursor) {
            self.catch_up.raise_to(highest_used, now.boot);
        }
        let id_time = clock::id_time(now, &self.catch_up, self.rules.max_ahead);
        if id_time < highest_used {
            return self.window_below(cursor, now);
        }
        self.record_reading(now);
        self.window_at(now, id_time, self.limit_at(id_time))
    }

    /// Returns the ID clock's window with a limit at or below the cursor, so that nothing can be
    /// claimed.
    fn window_below(&self, cursor: Position, now: Now) -> Window {
        let id_time = clock::id_time(now, &self.catch_up, self.rules.max_ahead);
        let window = self.window_at(now, id_time, self.limit_at(id_time));
        Window { limit: window.limit.min(cursor), bound: Bound::Clock, ..window }
    }

    /// Returns true if a catch-up may begin at the cursor. Before the first claim, a catch-up may
    /// always begin. The cursor is then ahead because the source started ahead of the clock, for
    /// example at the ceiling of a process that crashed.
    fn may_catch_up(&self, cursor: Position) -> bool {
        self.rules.on_step_back == OnStepBack::Ride || cursor == self.start
    }

    /// Returns the time until the wall clock lets the ID clock reach `highest_used`, if no clock
    /// steps meanwhile.
    fn time_until_reached(&self, highest_used: UnixMicros, cursor: Position, now: Now) -> Duration {
        if !self.may_catch_up(cursor) {
            return clock::until(now, &self.catch_up, self.rules.max_ahead, highest_used);
        }
        // A catch-up begins at `highest_used` once that instant is at most `max_ahead` ahead of the
        // wall clock. Until then the ID clock stands still.
        let ahead_us = highest_used.0.saturating_sub(now.wall.0);
        let beyond_us = ahead_us.saturating_sub(clock::micros(self.rules.max_ahead));
        Duration::from_micros(beyond_us.max(0).unsigned_abs())
    }

    /// Returns the start of the tick that the ID clock must have reached before the next claim. It
    /// is the tick of the last position claimed or, before the first claim, that of the start. If
    /// `max_ahead` is zero, the position before the start counts as claimed. So the first claim
    /// waits for its tick as every other claim does.
    fn time_to_reach(&self, cursor: Position) -> UnixMicros {
        let is_to_begin =
            cursor == self.start && cursor < self.numbering.end() && !self.rules.max_ahead.is_zero();
        let highest = if is_to_begin { cursor.0 } else { cursor.0.saturating_sub(1) };
        self.numbering.start_of(self.numbering.tick_of(Position(highest)))
    }

    /// Returns the time until the clock allows IDs again.
    ///
    /// The result is above zero in two cases. The cursor is further ahead of the clock than the
    /// rules allow. Or the source has no stored state, and the clock has not reached its start.
    /// Unlike [`window`](Source::window), this function begins no catch-up.
    pub fn unavailable_for(&self, now: Now) -> Duration {
        let Some(cursor) = self.cursor() else { return Duration::ZERO };
        if let Some(begins_in) = self.begins_in(cursor, now) {
            return begins_in;
        }
        let wait = self.time_until_reached(self.time_to_reach(cursor), cursor, now);
        if wait < READING_SKEW { Duration::ZERO } else { wait }
    }

    /// Begins a catch-up because a request waits for the next tick. A running wall clock overtakes
    /// the catch-up at once. If the wall clock stands still, the ID clock runs at half speed.
    pub(crate) fn begin_catch_up(&self, now: Now) {
        // Acquire: this thread then also sees the clock reading that moved the cursor here.
        let cursor = Position(self.cursor.load(Ordering::Acquire));
        // An old reading would start the catch-up too far ahead.
        let is_old = now.boot.0 < self.newest_boot_us.load(Ordering::Relaxed);
        if self.rules.on_step_back == OnStepBack::Wait || is_old || cursor.0 == SEALED {
            return;
        }
        if self.begins_in(cursor, now).is_none() {
            let highest_used = self.numbering.tick_of(Position(cursor.0.saturating_sub(1)));
            self.catch_up.raise_to(self.numbering.start_of(highest_used), now.boot);
        }
    }

    /// Ends a catch-up once the wall clock has caught up, so that a later step back does not resume
    /// the old catch-up. Lowers a catch-up that is too far ahead after a step back.
    pub fn bound_catch_up(&self, now: Now) {
        self.catch_up.bound(now, self.rules.max_ahead);
    }

    /// Returns the end of the tick that the ID clock will have reached `wait` after `now`, if no
    /// clock steps meanwhile.
    pub(super) fn limit_after(&self, now: Now, wait: Duration) -> Position {
        self.limit_at(clock::id_time(now.after(wait), &self.catch_up, self.rules.max_ahead))
    }

    /// Returns the time until the ID clock reaches a position's tick, if no clock steps meanwhile.
    pub fn reaches_in(&self, now: Now, position: Position) -> Duration {
        let start = self.numbering.start_of(self.numbering.tick_of(position));
        clock::until(now, &self.catch_up, self.rules.max_ahead, start)
    }

    /// Returns the time until the ID clock enters the tick after the window's tick. If the clock is
    /// too far behind, returns the time until IDs are available again.
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
