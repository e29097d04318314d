//! The age of a batch, by two clocks.

use std::time::Duration;

pub(crate) use clock::TICK;

/// An instant from which an age counts, by both clocks. The monotonic clock may stand still while
/// the machine sleeps, and the wall clock may be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth {
    monotonic_ns: u64,
    wall_ns: u64,
}

impl Birth {
    pub(crate) fn now() -> Self {
        let (monotonic_ns, wall_ns) = clock::now_ns();
        #[cfg(test)]
        let wall_ns = wall_ns + SLEPT.get().as_nanos() as u64;
        Self { monotonic_ns, wall_ns }
    }

    /// Returns the age at another instant, by the clock that shows more.
    pub(crate) fn age_at(&self, now: &Self) -> Duration {
        Duration::from_nanos(self.running_at(now).max(now.wall_ns.saturating_sub(self.wall_ns)))
    }

    /// Returns the time until another instant by the monotonic clock, in ns.
    pub(crate) fn running_at(&self, now: &Self) -> u64 {
        now.monotonic_ns.saturating_sub(self.monotonic_ns)
    }
}

/// Linux's clocks that move with the kernel's tick. They take a quarter of the time of the exact
/// ones, which would be most of the time that an ID takes.
#[cfg(target_os = "linux")]
mod clock {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    /// The longest tick of a Linux kernel.
    pub(crate) const TICK: Duration = Duration::from_millis(10);

    /// Returns the monotonic clock and the wall clock, each from an epoch of its own.
    pub(super) fn now_ns() -> (u64, u64) {
        let read = |clock| {
            let now = clock_gettime(clock);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        (read(ClockId::MonotonicCoarse), read(ClockId::RealtimeCoarse))
    }
}

#[cfg(not(target_os = "linux"))]
mod clock {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant, SystemTime};

    pub(crate) const TICK: Duration = Duration::ZERO;

    /// Returns the monotonic clock and the wall clock, each from an epoch of its own.
    pub(super) fn now_ns() -> (u64, u64) {
        static EPOCH: OnceLock<Instant> = OnceLock::new();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (EPOCH.get_or_init(Instant::now).elapsed().as_nanos() as u64, wall.as_nanos() as u64)
    }
}

#[cfg(test)]
thread_local! {
    /// The time for which this thread's simulated machine has slept.
    pub(crate) static SLEPT: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}
