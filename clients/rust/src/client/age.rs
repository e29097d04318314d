//! The age of buffered IDs, which counts the time that the machine sleeps.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The longest sleep of a timer that waits for an age. Timers do not count the machine's sleep, so after it
/// one of them may be late by this much.
const STEP: Duration = Duration::from_millis(50);

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

    /// Returns the time since then, with the machine's sleep.
    pub(super) fn age(&self) -> Duration {
        self.instant.elapsed().max(boot_time().saturating_sub(self.boot_time))
    }

    /// Waits until the age is reached, or `is_bad`. It looks every [`STEP`].
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

/// Returns the time since the machine's start, with its sleep.
#[cfg(all(target_os = "linux", not(test)))]
fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).unwrap_or_default()
}

/// Returns zero: systems other than Linux have no such clock, and the monotonic one counts alone.
#[cfg(all(not(target_os = "linux"), not(test)))]
fn boot_time() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
thread_local! {
    static SLEPT: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

/// Lets this thread's machine sleep.
#[cfg(test)]
pub(super) fn sleep_machine(time: Duration) {
    SLEPT.set(SLEPT.get() + time);
}

/// Returns the time that this thread's machine has slept. A test's other time is its monotonic clock's.
#[cfg(test)]
fn boot_time() -> Duration {
    SLEPT.get()
}
