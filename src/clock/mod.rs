//! When: the ID clock, one rule and one pure function.
//!
//! ```text
//! id_time = min( max( believed wall, ride ), believed wall + max_ahead )
//! ```
//!
//! [`Wall`] decides how much of the wall clock is believed (a large step forward is held), [`CatchUp`] is the line at half
//! speed on which the ID clock goes on when the wall clock has fallen behind IDs already handed out, and [`id_time`] puts
//! the two together. That the ID clock never goes below a position already claimed is decided where that position is
//! known: in [`Source::window`](crate::source::Source::window).
//!
//! Nothing here reads a clock. [`os`] does, and only [`os`].

pub mod os;

use std::time::Duration;

use crate::sync::{AtomicI64, Ordering};
use snowbank_client::layout::UnixMicros;

/// Microseconds on a clock that counts from the machine's boot, never steps, and goes on while the machine sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootMicros(pub i64);

impl BootMicros {
    /// This instant and `duration` on; saturates.
    pub fn after(self, duration: Duration) -> BootMicros {
        BootMicros(self.0.saturating_add(micros(duration)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: BootMicros) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// One look at both clocks of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock, which may step in both directions, freeze or be wrong.
    pub wall: UnixMicros,
    /// The boot clock at the same moment.
    pub boot: BootMicros,
}

impl Reading {
    /// Wall − boot: constant while the wall clock runs at its proper speed, so that a change of it is a step.
    pub fn offset_us(self) -> i64 {
        self.wall.0.saturating_sub(self.boot.0)
    }
}

/// A reading whose wall clock has been judged by [`Wall::believe`]. All that the ID clock goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock as far as it is believed.
    pub wall: UnixMicros,
    /// The boot clock at the same moment.
    pub boot: BootMicros,
    /// Whether the two clocks have jumped against each other since the keeper last looked: the machine may have been
    /// restored from a snapshot, so nothing is claimed before the keeper has made sure of its ceilings.
    pub jumped: bool,
}

impl Now {
    /// What `self` will be after `duration`, if no clock steps meanwhile.
    pub fn after(self, duration: Duration) -> Now {
        let wall = UnixMicros(self.wall.0.saturating_add(micros(duration)));
        Now { wall, boot: self.boot.after(duration), ..self }
    }
}

/// What is known of the time from before a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// Nothing.
    Nothing,
    /// Wall − boot as it was believed earlier in this boot of the machine, in microseconds.
    Offset(i64),
    /// In another boot ceilings were granted up to this instant, so time had come about as far then.
    GrantedUntil(UnixMicros),
}

/// How far a forward step of the wall clock is believed, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRule {
    /// A forward step of at most this much is believed at once.
    pub max_step: Duration,
    /// A larger one is believed when it has lasted this long.
    pub step_hold: Duration,
}

/// By how much wall − boot may change between two looks of the keeper. It looks once a second, so a wall clock that stands
/// still changes it by one second; whatever is more is a step, or a machine that was restored from a snapshot.
const JUMP: Duration = Duration::from_secs(2);

/// The wall clock as far as the daemon believes it. One for each daemon, read by every shard, written by its keeper.
///
/// A step is measured against ID time carried forward by the boot clock, not against the last wall reading: a wall clock
/// that went back and comes back is believed at once.
#[derive(Debug)]
pub struct Wall {
    rule: StepRule,
    /// Believed wall − boot, as of the last moment when the wall clock was not behind ID time. Microseconds.
    carried_us: AtomicI64,
    /// Wall − boot when the keeper last looked, believed or not. Microseconds.
    seen_us: AtomicI64,
}

impl Wall {
    /// Starts from a first reading, which is believed, or from an offset remembered from the same boot of the machine.
    ///
    /// In another boot the first reading is believed as well; but where ceilings were granted above it, ID time starts there,
    /// and steps are measured against that: a clock that was slow after a boot and is set right is believed at once. That
    /// burns nothing, for what lies below was granted already.
    pub fn new(rule: StepRule, first: Reading, remembered: Remembered) -> Self {
        let carried_us = match remembered {
            Remembered::Nothing => first.offset_us(),
            Remembered::Offset(offset_us) => offset_us,
            Remembered::GrantedUntil(wall) => first.offset_us().max(Reading { wall, ..first }.offset_us()),
        };
        Wall { rule, carried_us: AtomicI64::new(carried_us), seen_us: AtomicI64::new(first.offset_us()) }
    }

    /// Believed wall − boot, in microseconds: what a start in the same boot of the machine is to remember.
    pub fn carried_us(&self) -> i64 {
        self.carried_us.load(Ordering::Relaxed)
    }

    /// Judges a reading. Lock-free, and the same answer for the same reading until the keeper observes anew.
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

    /// Whether the clocks have jumped against each other since [`note_seen`](Wall::note_seen).
    #[inline]
    pub fn has_jumped(&self, reading: Reading) -> bool {
        // Acquire: who sees the keeper's new offset sees as well what it took away before it stored that.
        let seen_us = self.seen_us.load(Ordering::Acquire);
        reading.offset_us().saturating_sub(seen_us).unsigned_abs() > JUMP.as_micros() as u64
    }

    /// Ends a jump: the keeper calls this with its reading, after it has taken away what a jump makes doubtful.
    pub fn note_seen(&self, reading: Reading) {
        self.seen_us.store(reading.offset_us(), Ordering::Release);
    }

    #[inline]
    fn steps_ahead(&self, reading: Reading, carried_us: i64) -> bool {
        reading.offset_us().saturating_sub(carried_us) > micros(self.rule.max_step)
    }
}

/// What the keeper found when it looked at the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// As expected.
    Steady,
    /// Behind ID time by this much: a step back, or a clock that stands.
    Behind(Duration),
    /// A step forward by this much, not believed yet.
    Held(Duration),
    /// A step forward that has lasted `step_hold` and is believed from now on.
    Believed(Duration),
}

/// The keeper's part of [`Wall`]: looks at the clock about once a second and decides how long a step has lasted.
#[derive(Debug)]
pub struct StepWatch {
    /// The highest wall time believed so far: where ID time stands at least.
    highest: UnixMicros,
    held_since: Option<BootMicros>,
}

impl StepWatch {
    /// Starts at the wall time believed at `reading`.
    pub fn new(wall: &Wall, reading: Reading) -> Self {
        // A remembered offset says how far time had come before the restart: a wall clock that has gone back since, and
        // comes back, is believed at once.
        let carried = UnixMicros(reading.boot.0.saturating_add(wall.carried_us()));
        StepWatch { highest: wall.believe(reading).wall.max(carried), held_since: None }
    }

    /// Looks once. The only writer of `wall`.
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
        if reading.wall < self.highest {
            let behind_us = self.highest.0.saturating_sub(reading.wall.0);
            return Observed::Behind(Duration::from_micros(behind_us as u64));
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

/// The line at half speed on which a source's ID clock rides while the wall clock is behind IDs already handed out.
///
/// `line(boot) = base + (boot − boot at base) / 2`, kept as its value at boot 0, so that it is one atomic. It is raised
/// until the wall clock has caught up: a line below ID time says nothing, because the ID clock takes the higher of line and
/// wall.
#[derive(Debug)]
pub struct CatchUp {
    /// The line at boot 0, in microseconds of Unix time; `i64::MIN` when there is nothing to catch_up.
    at_boot_us: AtomicI64,
}

impl CatchUp {
    /// A line below everything: nothing to catch_up.
    pub fn none() -> Self {
        CatchUp { at_boot_us: AtomicI64::new(i64::MIN) }
    }

    /// Raises the line so that it stands at `base` at the moment `boot`.
    pub fn raise_to(&self, base: UnixMicros, boot: BootMicros) {
        self.at_boot_us.fetch_max(base.0.saturating_sub(boot.0 / 2), Ordering::Relaxed);
    }

    /// Ends a ride that the believed wall clock has caught up with.
    pub fn end_below(&self, now: Now) {
        let at_boot_us = self.at_boot_us.load(Ordering::Relaxed);
        if at_boot_us.saturating_add(now.boot.0 / 2) <= now.wall.0 {
            // Fails when it was raised meanwhile: then it is a new one.
            let ended = i64::MIN;
            let _ = self.at_boot_us.compare_exchange(at_boot_us, ended, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    #[inline]
    fn at(&self, boot: BootMicros) -> UnixMicros {
        UnixMicros(self.at_boot_us.load(Ordering::Relaxed).saturating_add(boot.0 / 2))
    }
}

/// The ID clock: the higher of the believed wall clock and the ride, at most `max_ahead` ahead of the former.
#[inline]
pub fn id_time(now: Now, catch_up: &CatchUp, max_ahead: Duration) -> UnixMicros {
    let highest = UnixMicros(now.wall.0.saturating_add(micros(max_ahead)));
    now.wall.max(catch_up.at(now.boot)).min(highest)
}

/// How long until the ID clock reaches `target`, if no clock steps meanwhile. Half speed counts
/// twice, and the cap at `max_ahead` moves with the wall clock.
pub fn until(now: Now, catch_up: &CatchUp, max_ahead: Duration, target: UnixMicros) -> Duration {
    let by_wall_us = target.0.saturating_sub(now.wall.0);
    let by_cap_us = by_wall_us.saturating_sub(micros(max_ahead));
    let by_catch_up_us = target.0.saturating_sub(catch_up.at(now.boot).0).saturating_mul(2);
    Duration::from_micros(by_wall_us.min(by_catch_up_us.max(by_cap_us)).max(0) as u64)
}

/// A duration in whole microseconds; saturates.
#[inline]
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
