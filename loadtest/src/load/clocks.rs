//! Measures the distance between this machine's clock and a target's: in the warm-up, and again
//! during the run.
//!
//! Two machines' clocks drift apart by some 50 us in a second. So with a distance that was measured
//! only once, a sound target would fail after some minutes. A target behind a forwarded port seems
//! to be on this machine, but has another clock.

use super::Now;
use super::connection::InFlight;

/// The distance is measured again in each period of this length. A period is long enough to contain
/// a short round trip, and so short that clocks drift apart by less than a millisecond.
const PERIOD_NS: u64 = 10_000_000_000;

/// The largest distance that the clock of a [`Clock::Nearby`] target may have. If the target's IDs
/// are dated further off, the target is at fault.
const MAX_NEARBY_US: i64 = 1_000_000;

/// The assumption about a target's clock before the distance is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The target uses this machine's clock.
    Same,
    /// The target seems to be on this machine, but may be behind a forwarded port.
    Nearby,
    Other,
}

/// The distance between the target's clock and ours.
#[derive(Debug)]
pub(super) struct ClockOffset {
    pub(super) clock: Clock,
    /// How far the target's clock may be from ours. An ID's time may be outside the promised window
    /// by this much. If the clock is not [`Clock::Same`], this is `None` until the warm-up is over.
    pub(super) known_us: Option<i64>,
    /// The shortest round trip of the period, and the offset measured in that round trip.
    best: (u64, i64),
    period_ends_ns: u64,
    /// The largest distance measured so far: the target's clock minus ours. 0 before the first
    /// measurement.
    pub(super) seen_us: i64,
}

impl ClockOffset {
    pub(super) fn new(clock: Clock) -> Self {
        let known_us = (clock == Clock::Same).then_some(0);
        Self { clock, known_us, best: (0, 0), period_ends_ns: 0, seen_us: 0 }
    }

    /// Measures the distance by the round trip of a request and the time of an ID in its reply.
    /// Each reply to a timed request sets `known_us`.
    pub(super) fn see(&mut self, request: &InFlight, now: Now, dated_us: Option<i64>, is_warm: bool) {
        let Some(dated_us) = dated_us else {
            self.known_us = self.known_us.or(is_warm.then_some(0));
            return;
        };
        let offset_us = dated_us - request.asked.sent_us.midpoint(now.wall_us);
        let round_trip_ns = now.ns - request.sent_ns;
        let is_new_period = now.ns >= self.period_ends_ns;
        if is_new_period {
            self.period_ends_ns = now.ns + PERIOD_NS;
        }
        if is_new_period || round_trip_ns < self.best.0 {
            self.best = (round_trip_ns, offset_us);
        }
        if !is_warm {
            return;
        }
        let (round_trip_ns, offset_us) = self.best;
        // The target may have dated the reply at any time of the round trip. So the offset may be
        // wrong by half of the round trip.
        let known_us = offset_us.saturating_abs().saturating_add_unsigned(round_trip_ns / 2_000);
        let is_too_far = self.clock == Clock::Nearby && known_us > MAX_NEARBY_US;
        self.known_us = Some(if is_too_far { 0 } else { known_us });
        if offset_us.abs() > self.seen_us.abs() {
            self.seen_us = offset_us;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::reply::Asked;

    fn see(clocks: &mut ClockOffset, sent_s: u64, round_trip_ms: i64, offset_us: i64, is_warm: bool) {
        let sent_ns = sent_s * 1_000_000_000;
        let asked = Asked { count: 1, sent_us: 1_000_000, above: 0 };
        let now = Now {
            ns: sent_ns + round_trip_ms as u64 * 1_000_000,
            wall_us: asked.sent_us + round_trip_ms * 1_000,
        };
        let dated_us = asked.sent_us.midpoint(now.wall_us) + offset_us;
        clocks.see(&InFlight { intended_ns: sent_ns, sent_ns, asked, tag: 0 }, now, Some(dated_us), is_warm);
    }

    #[test]
    fn the_shortest_round_trip_of_the_warm_up_counts() {
        let mut clocks = ClockOffset::new(Clock::Other);
        see(&mut clocks, 0, 10, 895_000, false);
        see(&mut clocks, 0, 2, -250_000, false);
        assert_eq!(clocks.known_us, None);
        see(&mut clocks, 1, 9, -7, true);
        assert_eq!((clocks.known_us, clocks.seen_us), (Some(251_000), -250_000));
    }

    #[test]
    fn clocks_that_drift_apart_are_measured_again() {
        let mut clocks = ClockOffset::new(Clock::Other);
        for now_s in 0..600 {
            let offset_us = now_s as i64 * 50;
            see(&mut clocks, now_s, 2, offset_us, now_s > 0);
            let known_us = clocks.known_us.unwrap_or(offset_us);
            assert!(known_us >= offset_us && known_us <= offset_us + 1_501, "{now_s}: {known_us}");
        }
        assert!(clocks.seen_us > 29_000);
    }

    #[test]
    fn a_local_clock_may_be_off_but_not_by_a_minute() {
        let known_us = |clock, offset_us| {
            let mut clocks = ClockOffset::new(clock);
            see(&mut clocks, 1, 2, offset_us, true);
            clocks.known_us
        };
        assert_eq!(known_us(Clock::Nearby, -50_000), Some(51_000));
        assert_eq!(known_us(Clock::Nearby, -60_000_000), Some(0));
        assert_eq!(known_us(Clock::Other, -60_000_000), Some(60_001_000));
        assert_eq!(ClockOffset::new(Clock::Same).known_us, Some(0));
    }
}
