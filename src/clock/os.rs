//! The one file that reads the operating system's clocks.

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::{BootMicros, Reading};
use snowbank_client::layout::UnixMicros;

/// The most that the boot clock may advance during a good reading of the wall clock. If it advanced
/// more, the thread lost the processor, or the machine slept.
const TORN_US: i64 = 1_000;
/// The number of attempts before the tightest torn reading is used. Only a machine that takes the
/// processor away every millisecond needs them all.
const ATTEMPTS: usize = 16;

/// Reads the wall clock and the boot clock at one moment: the boot clock is read on both sides of
/// the wall clock.
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
    tightest.map_or_else(|| unreachable!("at least one attempt is made"), |(_, reading)| reading)
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
