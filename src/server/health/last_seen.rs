//! Gives other threads what the keeper thread last observed.

use std::collections::VecDeque;
use std::time::Duration;

use snowbank_core::clock::{BootMicros, Reading};
use snowbank_core::keeper::{PERIOD, Polled, Reach, Written};

/// The least change of wall − boot (the wall clock minus the boot clock) that counts as a step
/// between two polls. A time server that slews the clock changes wall − boot by far less.
const STEP_US: i64 = 100_000;
/// The time for which the lengths of raises are kept.
const MINUTE: Duration = Duration::from_secs(60);
/// Of the raises within this time, only the longest is kept.
const SLOT: Duration = Duration::from_secs(5);

/// The last observations of the keeper thread, and its counts since the start.
#[derive(Debug, Default)]
pub(crate) struct LastSeen {
    /// The result of the last poll.
    pub(crate) polled: Polled,
    pub(crate) steps_back: u64,
    pub(crate) steps_forward: u64,
    /// The number of durable raises, the time at which the last of them became durable, and the sum
    /// of their lengths.
    pub(crate) raises: u64,
    pub(crate) raised_at: Option<BootMicros>,
    pub(crate) raising: Duration,
    pub(crate) failures: u64,
    /// The number of raises made durable at the coordinator, plus the number of ranges taken there.
    pub(crate) fleet_raises: u64,
    /// The lengths of the raises of the last minute.
    pub(crate) raise_lengths: RaiseLengths,
    /// The boot clock when wall − boot was last compared, and the value of wall − boot then.
    compared_at: BootMicros,
    offset_us: i64,
    /// The direction of the step at the last comparison: 1, −1, or 0 without a step. A clock that
    /// stands still seems to step back at each poll, so equal directions in a row count as one
    /// step.
    stepped: i64,
}

/// The lengths of the raises of the last minute.
///
/// They show whether a ceiling was reached between two polls. The headroom alone does not show
/// that: it falls until the next raise, and polls miss its low points.
#[derive(Debug, Default)]
pub(crate) struct RaiseLengths {
    /// For each [`SLOT`] of the last minute, the time at which the slot began, and its longest
    /// raise. The oldest slot comes first.
    slots: VecDeque<(BootMicros, Duration)>,
    /// The ends and the lengths of the last two raises. The latest raise comes first.
    last: VecDeque<(BootMicros, Duration)>,
}

impl RaiseLengths {
    /// Records a raise that has ended.
    pub(crate) fn record(&mut self, now: BootMicros, took: Duration) {
        self.slots.retain(|(began, _)| now.since(*began) <= MINUTE);
        match self.slots.back_mut().filter(|(began, _)| now.since(*began) < SLOT) {
            Some((_, longest)) => *longest = took.max(*longest),
            None => self.slots.push_back((now, took)),
        }
        self.last.truncate(1);
        self.last.push_front((now, took));
    }

    /// Returns the length of the longest raise of the last minute.
    pub(crate) fn slowest(&self, now: BootMicros) -> Duration {
        let slots = self.slots.iter().filter(|(began, _)| now.since(*began) <= MINUTE);
        slots.map(|(_, longest)| *longest).max().unwrap_or_default()
    }

    /// Returns the length of the shorter of the last two raises, or 0 unless both ended in the last
    /// minute. A single slow raise does not change the result.
    pub(crate) fn usual(&self, now: BootMicros) -> Duration {
        let is_recent =
            self.last.len() == 2 && self.last.iter().all(|(ended, _)| now.since(*ended) <= MINUTE);
        let shorter = self.last.iter().map(|(_, took)| *took).min();
        shorter.filter(|_| is_recent).unwrap_or_default()
    }
}

impl LastSeen {
    pub(crate) fn new(started: Reading) -> Self {
        LastSeen {
            polled: Polled { horizon: Duration::MAX, ..Polled::default() },
            compared_at: started.boot,
            offset_us: started.offset_us(),
            ..LastSeen::default()
        }
    }

    /// Records a poll of the keeper.
    pub(crate) fn record(&mut self, reading: Reading, polled: &Polled) {
        self.count_steps(reading);
        self.polled = polled.clone();
    }

    fn count_steps(&mut self, reading: Reading) {
        let change_us = reading.offset_us().saturating_sub(self.offset_us);
        let is_step = change_us.abs() >= STEP_US;
        if !is_step && reading.boot.since(self.compared_at) < PERIOD / 2 {
            // The last comparison is so recent that a clock that stands still may not have fallen
            // behind by a whole step yet.
            return;
        }
        self.compared_at = reading.boot;
        self.offset_us = reading.offset_us();
        let stepped = if is_step { change_us.signum() } else { 0 };
        if stepped != self.stepped {
            self.steps_back += u64::from(stepped < 0);
            self.steps_forward += u64::from(stepped > 0);
        }
        self.stepped = stepped;
    }

    /// Records the end of a write.
    pub(crate) fn written(&mut self, written: &Written, now: BootMicros) {
        if written.reach != Reach::Local {
            self.fleet_raises += u64::from(written.is_durable);
            return;
        }
        self.polled.in_flight_since = None;
        if !written.is_durable {
            self.failures += 1;
            return;
        }
        self.raises += 1;
        self.raised_at = Some(now);
        self.raising += now.since(written.began);
        self.raise_lengths.record(now, now.since(written.began));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowbank_id::layout::UnixMicros;

    fn reading(wall_ms: i64, boot_ms: i64) -> Reading {
        Reading { wall: UnixMicros(wall_ms * 1_000), boot: BootMicros(boot_ms * 1_000) }
    }

    fn steps(walls_ms: &[i64]) -> (u64, u64) {
        let mut seen = LastSeen::new(reading(walls_ms[0], 0));
        let mut stood_ms = 0;
        for (second, &wall_ms) in walls_ms.iter().enumerate() {
            seen.record(reading(wall_ms, second as i64 * 1_000), &Polled::default());
            // Each second has two polls 5 ms apart, like a poll after a write. Between the two
            // polls, the clock advances by 5 ms or stands still.
            let runs = second == 0 || wall_ms != stood_ms;
            seen.record(
                reading(wall_ms + i64::from(runs) * 5, second as i64 * 1_000 + 5),
                &Polled::default(),
            );
            stood_ms = wall_ms;
        }
        (seen.steps_back, seen.steps_forward)
    }

    #[test]
    fn steps_are_counted_by_direction_and_slewing_is_ignored() {
        assert_eq!(steps(&[0, 1_000, 2_000]), (0, 0));
        assert_eq!(steps(&[0, 1_000, 2_050, 3_100]), (0, 0), "a fast clock");
        assert_eq!(steps(&[0, 1_000, 7_000, 8_000]), (0, 1));
        assert_eq!(steps(&[9_000, 10_000, 7_000, 8_000, 12_000, 13_000]), (1, 1));
        assert_eq!(steps(&[9_000, 9_000, 9_000, 9_000, 10_000]), (1, 0), "a clock that stands still");
    }

    #[test]
    fn one_slow_raise_shows_for_a_minute_and_is_not_the_usual() {
        let at = |second: i64| BootMicros(second * 1_000_000);
        let short = Duration::from_millis(2);
        let long = Duration::from_secs(2);
        let mut lengths = RaiseLengths::default();
        for second in 0..=200 {
            lengths.record(at(second), if second == 100 { long } else { short });
            assert!(lengths.slots.len() <= 13 && lengths.last.len() <= 2);
            let is_slow = lengths.slowest(at(second)) == long;
            assert!(is_slow || !(100..=155).contains(&second), "{second}");
            assert!(!is_slow || (100..=165).contains(&second), "{second}");
            assert!(second == 0 || lengths.usual(at(second)) == short, "{second}");
        }
        lengths.record(at(202), long);
        lengths.record(at(204), long);
        assert_eq!(lengths.usual(at(205)), long);
        assert_eq!(lengths.usual(at(265)), Duration::ZERO, "the last raise is more than a minute old");
    }
}
