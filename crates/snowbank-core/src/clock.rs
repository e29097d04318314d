//! The ID clock: one rule and one pure function.
//!
//! ```text
//! id_time = min( max( believed wall, catch-up ), believed wall + max_ahead )
//! ```
//!
//! - [`Wall`] decides how much of the wall clock is believed: a large step forward counts only
//!   after it has lasted.
//! - [`CatchUp`] is a clock at half speed. The ID clock follows this clock while the wall clock is
//!   behind IDs already handed out.
//! - [`id_time`] combines the two.
//! - [`Source::window`](crate::source::Source::window) handles a wall clock that goes back: the ID
//!   clock never goes below a position already claimed.
//!
//! Nothing here reads a clock.

use std::time::Duration;

use crate::sync::{AtomicI64, Ordering};
use snowbank_id::layout::UnixMicros;

/// Microseconds on a clock that counts from the machine's boot, never steps, and keeps running
/// while the machine sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootMicros(pub i64);

impl BootMicros {
    /// Returns the instant `duration` later. Saturates.
    pub fn after(self, duration: Duration) -> BootMicros {
        BootMicros(self.0.saturating_add(micros(duration)))
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: BootMicros) -> Duration {
        Duration::from_micros(self.micros_since(earlier))
    }

    /// Returns the microseconds since `earlier`, or 0 if `earlier` is later.
    pub fn micros_since(self, earlier: BootMicros) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

/// One reading of both clocks of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock, which may step in both directions, freeze or be wrong.
    pub wall: UnixMicros,
    /// The boot clock at the same moment.
    pub boot: BootMicros,
}

impl Reading {
    /// Returns wall − boot. This difference changes only if the wall clock steps or stands still:
    /// Linux slews both clocks alike.
    pub fn offset_us(self) -> i64 {
        self.wall.0.saturating_sub(self.boot.0)
    }
}

/// Returns whether two values of wall − boot, in microseconds, show that the clocks have jumped
/// against each other.
#[inline]
pub fn has_jumped(one_us: i64, other_us: i64) -> bool {
    one_us.saturating_sub(other_us).unsigned_abs() > JUMP.as_micros() as u64
}

/// A reading that [`Wall::believe`] has judged. The ID clock uses no other readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock as far as it is believed.
    pub wall: UnixMicros,
    /// The boot clock at the same moment.
    pub boot: BootMicros,
    /// True if the two clocks have jumped against each other since the keeper's last poll. The
    /// machine may have been restored from a snapshot, so nothing is claimed until the keeper has
    /// checked its ceilings.
    pub jumped: bool,
}

impl Now {
    /// Returns the reading after `duration`, if no clock steps meanwhile.
    pub fn after(self, duration: Duration) -> Now {
        let wall = UnixMicros(self.wall.0.saturating_add(micros(duration)));
        Now { wall, boot: self.boot.after(duration), ..self }
    }
}

/// What an earlier process recorded about the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// No record.
    Nothing,
    /// Wall − boot in microseconds, as believed by a process that ran since the machine's last
    /// boot.
    Offset(i64),
    /// The instant of the highest ceiling granted before the machine's last boot. When that ceiling
    /// was granted, the time was about this instant.
    GrantedUntil(UnixMicros),
}

impl Remembered {
    /// Returns wall − boot, in microseconds, with which a process begins at this reading.
    fn offset_us(self, first: Reading) -> i64 {
        match self {
            Remembered::Nothing => first.offset_us(),
            Remembered::Offset(offset_us) => offset_us,
            Remembered::GrantedUntil(wall) => first.offset_us().max(Reading { wall, ..first }.offset_us()),
        }
    }
}

/// The largest forward step of the wall clock that is believed at once. A clock that follows a time
/// server is hardly ever wrong by more than this. If a believed step was wrong, a source loses at
/// most the IDs of this much time.
pub const STEP_BELIEVED_AT_ONCE: Duration = Duration::from_secs(60);

/// The rule that decides which forward steps of the wall clock are believed, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRule {
    /// A forward step of at most this much is believed at once.
    pub max_step: Duration,
    /// A larger step is believed when it has lasted this long.
    pub step_hold: Duration,
}

/// Between two polls of the keeper, a change of wall − boot by more than this is a jump. The wall
/// clock has stepped, or the machine was restored from a snapshot. The keeper is polled at least
/// once a second. So a wall clock that stands still changes wall − boot by at most a second.
const JUMP: Duration = Duration::from_secs(2);

/// The wall clock as far as the daemon believes it. Each daemon has one `Wall`: every shard reads
/// it, and the keeper writes it.
///
/// A step is not measured against the last reading of the wall clock. It is measured against the
/// highest believed time plus the time that the boot clock has run since then. So a wall clock that
/// went back and returns is believed at once.
#[derive(Debug)]
pub struct Wall {
    rule: StepRule,
    /// Wall − boot at the highest believed wall time, in microseconds. Only a poll that believes a
    /// new highest wall time changes it.
    carried_us: AtomicI64,
    /// Wall − boot in microseconds at the keeper's last poll, believed or not.
    seen_us: AtomicI64,
}

impl Wall {
    /// Starts from the offset remembered from the same boot of the machine, or else from the first
    /// reading.
    ///
    /// If a ceiling granted before the boot is above the first reading, steps are measured from
    /// that ceiling. So a clock that was slow after a boot is believed at once when it is
    /// corrected. No IDs are skipped, because all ticks below the ceiling were granted already.
    pub fn new(rule: StepRule, first: Reading, remembered: Remembered) -> Self {
        let carried_us = AtomicI64::new(remembered.offset_us(first));
        Wall { rule, carried_us, seen_us: AtomicI64::new(first.offset_us()) }
    }

    /// Begins again from this reading, as [`new`](Wall::new) does. A daemon listens before it has
    /// read its state, and calls this once it has. Must not be called after the first grant.
    pub(crate) fn begin(&self, first: Reading, remembered: Remembered) {
        self.carried_us.store(remembered.offset_us(first), Ordering::Relaxed);
    }

    /// Returns wall − boot at the highest believed wall time, in microseconds. A later start in the
    /// same boot of the machine remembers this offset.
    pub fn carried_us(&self) -> i64 {
        self.carried_us.load(Ordering::Relaxed)
    }

    /// Judges a reading, without a lock. The same reading gives the same result until the keeper
    /// is polled again.
    #[inline]
    pub fn believe(&self, reading: Reading) -> Now {
        let carried_us = self.carried_us.load(Ordering::Relaxed);
        let wall = if self.steps_ahead(reading, carried_us) {
            UnixMicros(reading.boot.0.saturating_add(carried_us))
        } else {
            reading.wall
        };
        Now { wall, boot: reading.boot, jumped: self.has_jumped(reading) }
    }

    /// Returns whether the clocks have jumped against each other since the last call of
    /// [`record_seen`](Wall::record_seen).
    #[inline]
    pub fn has_jumped(&self, reading: Reading) -> bool {
        // Acquire: a thread that sees the keeper's new offset also sees the revoked grants.
        has_jumped(reading.offset_us(), self.seen_us.load(Ordering::Acquire))
    }

    /// Sets the reading from which later jumps are measured. After that, a present jump counts as
    /// over. So at a jump, the keeper first revokes all grants.
    pub fn record_seen(&self, reading: Reading) {
        self.seen_us.store(reading.offset_us(), Ordering::Release);
    }

    #[inline]
    fn steps_ahead(&self, reading: Reading, carried_us: i64) -> bool {
        reading.offset_us().saturating_sub(carried_us) > micros(self.rule.max_step)
    }
}

/// The state of the wall clock, as the keeper found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Observed {
    /// The wall clock runs as expected.
    #[default]
    Steady,
    /// The wall clock is behind by this much: behind the highest time believed or remembered, or
    /// behind the boot clock if it stands still.
    Behind(Duration),
    /// The wall clock stepped forward by this much, and is not believed yet.
    Held(Duration),
    /// The wall clock stepped forward by this much. The step has lasted `step_hold` and is believed
    /// from now on.
    Believed(Duration),
}

/// The keeper's part of [`Wall`]: observes the clock about once a second and measures how long a
/// step has lasted.
#[derive(Debug)]
pub struct StepWatch {
    /// The highest wall time believed or remembered so far.
    highest: UnixMicros,
    held_since: Option<BootMicros>,
}

impl StepWatch {
    /// Starts at the wall time believed at `reading`, or at the remembered time if that is later.
    pub fn new(wall: &Wall, reading: Reading) -> Self {
        // The remembered offset says that the time is `carried` now. If the wall clock went back
        // before this start, it is believed at once when it returns.
        let carried = UnixMicros(reading.boot.0.saturating_add(wall.carried_us()));
        StepWatch { highest: wall.believe(reading).wall.max(carried), held_since: None }
    }

    /// Observes the clock once. Only this function writes the believed offset of `wall`.
    pub fn observe(&mut self, wall: &Wall, reading: Reading) -> Observed {
        let carried_us = wall.carried_us.load(Ordering::Relaxed);
        let step = Duration::from_micros(reading.offset_us().saturating_sub(carried_us).max(0) as u64);
        if wall.steps_ahead(reading, carried_us) {
            let since = *self.held_since.get_or_insert(reading.boot);
            if reading.boot.since(since) < wall.rule.step_hold {
                self.highest = self.highest.max(wall.believe(reading).wall);
                return Observed::Held(step);
            }
            self.believe(wall, reading);
            return Observed::Believed(step);
        }
        self.held_since = None;
        if reading.wall <= self.highest {
            // While the wall clock is behind or stands still, the believed offset does not change.
            // So the clock is believed at once when it returns.
            let behind_us = match self.highest.0.saturating_sub(reading.wall.0) {
                0 => carried_us.saturating_sub(reading.offset_us()).max(0),
                behind_us => behind_us,
            };
            let behind = Duration::from_micros(behind_us as u64);
            return if behind.is_zero() { Observed::Steady } else { Observed::Behind(behind) };
        }
        self.believe(wall, reading);
        Observed::Steady
    }

    fn believe(&mut self, wall: &Wall, reading: Reading) {
        wall.carried_us.store(reading.offset_us(), Ordering::Relaxed);
        self.highest = self.highest.max(reading.wall);
        self.held_since = None;
    }
}

/// The clock at half speed that a source's ID clock follows while the wall clock is behind IDs
/// already handed out.
///
/// `catch_up(boot) = base + (boot − boot at base) / 2`. Only the value at boot 0 is stored, so one
/// atomic is enough. A catch-up below the wall clock has no effect, because the ID clock takes the
/// higher of the two.
#[derive(Debug)]
pub struct CatchUp {
    /// The catch-up's value at boot 0, in microseconds of Unix time; `i64::MIN` if there is no
    /// catch-up.
    at_boot_us: AtomicI64,
}

impl CatchUp {
    /// Returns a catch-up without effect: its value is below every time.
    pub fn none() -> Self {
        CatchUp { at_boot_us: AtomicI64::new(i64::MIN) }
    }

    /// Raises the catch-up so that its value at the moment `boot` is at least `base`.
    pub fn raise_to(&self, base: UnixMicros, boot: BootMicros) {
        self.at_boot_us.fetch_max(base.0.saturating_sub(boot.0 / 2), Ordering::Relaxed);
    }

    /// Lowers a catch-up that is too far ahead of the wall clock, and ends a catch-up that the wall
    /// clock has reached. Without this limit, the catch-up would run on while IDs are refused.
    /// Afterwards the ID clock would stay `max_ahead` ahead for as long as the refusals lasted.
    pub fn bound(&self, now: Now, max_ahead: Duration) {
        let highest = now.wall.0.saturating_add(micros(max_ahead));
        self.at_boot_us.fetch_min(highest.saturating_sub(now.boot.0 / 2), Ordering::Relaxed);
        let at_boot_us = self.at_boot_us.load(Ordering::Relaxed);
        if at_boot_us.saturating_add(now.boot.0 / 2) <= now.wall.0 {
            // The exchange fails if another thread has raised the catch-up meanwhile. Then the
            // catch-up must go on.
            let ended = i64::MIN;
            let _ = self.at_boot_us.compare_exchange(at_boot_us, ended, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    #[inline]
    fn at(&self, boot: BootMicros) -> UnixMicros {
        UnixMicros(self.at_boot_us.load(Ordering::Relaxed).saturating_add(boot.0 / 2))
    }
}

/// Returns the ID clock: the higher of the believed wall clock and the catch-up, at most
/// `max_ahead` above the wall clock.
#[inline]
pub fn id_time(now: Now, catch_up: &CatchUp, max_ahead: Duration) -> UnixMicros {
    let highest = UnixMicros(now.wall.0.saturating_add(micros(max_ahead)));
    now.wall.max(catch_up.at(now.boot)).min(highest)
}

/// Returns the time until the ID clock reaches `target`, if no clock steps meanwhile. A catch-up
/// takes twice as long as the wall clock, and the cap at `max_ahead` moves with the wall clock.
pub fn until(now: Now, catch_up: &CatchUp, max_ahead: Duration, target: UnixMicros) -> Duration {
    let by_wall_us = target.0.saturating_sub(now.wall.0);
    let by_cap_us = by_wall_us.saturating_sub(micros(max_ahead));
    let by_catch_up_us = target.0.saturating_sub(catch_up.at(now.boot).0).saturating_mul(2);
    Duration::from_micros(by_wall_us.min(by_catch_up_us.max(by_cap_us)).max(0) as u64)
}

/// Returns a duration in whole microseconds. Saturates.
#[inline]
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
