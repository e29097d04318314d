//! Measures the distance to another machine's clock in the warm-up.

use crate::check::reply::Asked;

/// The distance between the target's clock and ours.
#[derive(Debug)]
pub(super) struct ClockOffset {
    known_us: Option<i64>,
    /// The shortest round trip of the warm-up, and the offset seen in it.
    best: Option<(u64, i64)>,
}

impl ClockOffset {
    pub(super) fn new(same_clock: bool) -> Self {
        Self { known_us: same_clock.then_some(0), best: None }
    }

    /// Returns the distance that widens the window; `None` until the warm-up is over.
    pub(super) fn known_us(&self) -> Option<i64> {
        self.known_us
    }

    /// Returns the target's clock less ours; 0 while nothing was seen.
    pub(super) fn seen_us(&self) -> i64 {
        self.best.map_or(0, |(_, offset_us)| offset_us)
    }

    /// Learns from a reply; the first one after the warm-up settles it.
    pub(super) fn see(
        &mut self,
        asked: &Asked,
        round_trip_ns: u64,
        dated_us: Option<i64>,
        received_us: i64,
        warm: bool,
    ) {
        let middle_us = asked.sent_us.midpoint(received_us);
        if let Some(dated_us) = dated_us
            && self.best.is_none_or(|(shortest_ns, _)| round_trip_ns < shortest_ns)
        {
            self.best = Some((round_trip_ns, dated_us - middle_us));
        }
        if warm {
            self.known_us = Some(self.best.map_or(0, |(_, offset_us)| offset_us.saturating_abs()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Asked = Asked { count: 1, sent_us: 1_000_000, above: 0 };

    #[test]
    fn the_shortest_round_trip_of_the_warm_up_tells() {
        let mut clocks = ClockOffset::new(false);
        clocks.see(&SENT, 10_000_000, Some(1_900_000), 1_010_000, false);
        clocks.see(&SENT, 2_000_000, Some(751_000), 1_002_000, false);
        clocks.see(&SENT, 9_000_000, Some(0), 1_009_000, false);
        assert_eq!((clocks.known_us(), clocks.seen_us()), (None, -250_000));
        clocks.see(&SENT, 9_000_000, Some(0), 1_009_000, true);
        assert_eq!(clocks.known_us(), Some(250_000), "widened both ways");
    }

    #[test]
    fn on_one_machine_there_is_nothing_to_learn() {
        assert_eq!(ClockOffset::new(true).known_us(), Some(0));
    }
}
