//! Reads the operating system's wall clock and boot clock.

use rustix::time::{ClockId, Timespec, clock_gettime};

use snowbank_core::clock::{BootMicros, Reading};
use snowbank_id::layout::UnixMicros;

/// The most that the boot clock may advance while the wall clock is read. If it advances more, the
/// thread has lost the processor or the machine has slept, and the reading is torn.
const TORN_US: i64 = 1_000;
/// The most attempts. After them, `read` returns the torn reading with the smallest gap.
const ATTEMPTS: usize = 16;

/// Reads the wall clock and the boot clock as of one moment. Reads the boot clock before and after
/// the wall clock, and compares the two readings.
#[inline]
pub fn read() -> Reading {
    let mut tightest: Option<(i64, Reading)> = None;
    for _ in 0..ATTEMPTS {
        let before = boot();
        let wall = UnixMicros(micros(clock_gettime(ClockId::Realtime)));
        let gap_us = boot().0 - before.0;
        let reading = Reading { wall, boot: before };
        if gap_us <= TORN_US {
            return reading;
        }
        if tightest.is_none_or(|(gap, _)| gap_us < gap) {
            tightest = Some((gap_us, reading));
        }
    }
    tightest.map_or_else(|| unreachable!("ATTEMPTS is above 0"), |(_, reading)| reading)
}

/// Reads the boot clock alone, which keeps running while the machine sleeps and never steps.
#[inline]
pub fn boot() -> BootMicros {
    BootMicros(micros(clock_gettime(ClockId::Boottime)))
}

#[inline]
fn micros(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000)
}
