//! The age of buffered IDs. The age includes the time for which the machine sleeps.

use std::time::Duration;

#[cfg(target_os = "linux")]
use rustix::time::ClockId;
use tokio::time::{Instant, sleep};

/// The longest time for which one timer runs. Timers stand still while the machine sleeps. So after
/// the machine wakes, an age that is over its limit is noticed late, by at most this time.
const STEP: Duration = Duration::from_millis(50);

/// The clock that measures ages. Unlike the monotonic clock, it runs on while the machine sleeps.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;

/// An instant from which an age counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Birth {
    instant: Instant,
    boot_time: Duration,
}

impl Birth {
    pub(super) fn now() -> Self {
        Self { instant: Instant::now(), boot_time: boot_time() }
    }

    /// Returns the time since this instant, including the time that the machine slept.
    pub(super) fn age(&self) -> Duration {
        self.instant.elapsed().max(boot_time().saturating_sub(self.boot_time))
    }

    /// Waits until the age reaches `limit` or `is_bad` returns true. Checks both every [`STEP`].
    pub(super) async fn reaches(&self, limit: Duration, is_bad: impl Fn() -> bool) {
        loop {
            let left = limit.saturating_sub(self.age());
            if left.is_zero() || is_bad() {
                return;
            }
            sleep(left.min(STEP)).await;
        }
    }
}

/// Returns the time since the machine's start, including the time for which the machine slept.
#[cfg(all(target_os = "linux", not(test)))]
fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(CLOCK);
    Duration::try_from(now).unwrap_or_default()
}

/// Returns zero, because this module reads the boot clock only on Linux. On other systems only the
/// monotonic clock measures ages.
#[cfg(all(not(target_os = "linux"), not(test)))]
fn boot_time() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
thread_local! {
    static SLEPT: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

/// Simulates a sleep of the machine, for this thread.
#[cfg(test)]
pub(super) fn sleep_machine(time: Duration) {
    SLEPT.set(SLEPT.get() + time);
}

/// Returns the time that this thread's simulated machine has slept. Tests measure all other time
/// with the monotonic clock.
#[cfg(test)]
fn boot_time() -> Duration {
    SLEPT.get()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    /// A test cannot make the machine sleep. So this test checks which clock is used.
    #[test]
    fn the_clock_of_ages_counts_the_machines_sleep() {
        assert_eq!(super::CLOCK as libc::clockid_t, libc::CLOCK_BOOTTIME);
    }
}
