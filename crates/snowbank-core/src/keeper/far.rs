//! The ceilings of a far writer, the coordinator of a fleet: minutes ahead, and raised for idle sources too.

use std::time::Duration;

use snowbank_id::layout::{Position, Tick, UnixMicros};
use snowbank_id::numbering::Numbering;

use crate::clock::{self, Now};

/// Returns the ceiling to write for a source: this horizon ahead of the wall clock and of its newest ID.
pub fn ceiling(numbering: &Numbering, now: Now, id_time: UnixMicros, horizon: Duration) -> Position {
    let reach = now.wall.max(id_time).0.saturating_add(clock::micros(horizon));
    numbering.first_of(Tick(numbering.tick_at(UnixMicros(reach)).0.saturating_add(1)))
}

/// Returns whether half of the horizon below a ceiling is used up. It is then raised, even if no client asks.
pub fn is_due(
    numbering: &Numbering,
    ceiling: Position,
    now: Now,
    id_time: UnixMicros,
    horizon: Duration,
) -> bool {
    left(numbering, ceiling, now.wall.max(id_time)) <= horizon / 2
}

/// Returns the time from an instant to a ceiling.
pub fn left(numbering: &Numbering, ceiling: Position, from: UnixMicros) -> Duration {
    let until = numbering.start_of(numbering.tick_of(ceiling));
    Duration::from_micros(until.0.saturating_sub(from.0).max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootMicros;
    use snowbank_id::layout::{Layout, WorkerSet};

    fn after(seconds: i64) -> UnixMicros {
        UnixMicros(1_800_000_000_000_000 + seconds * 1_000_000)
    }

    #[test]
    fn a_ceiling_is_due_when_half_of_its_horizon_is_used_up() {
        let twitter = Layout::resolve("twitter").unwrap();
        let numbering = Numbering::new(twitter, WorkerSet::single(5)).unwrap();
        let horizon = Duration::from_secs(300);
        let now = |seconds| Now { wall: after(seconds), boot: BootMicros(0), jumped: false };
        let at = ceiling(&numbering, now(0), after(0), horizon);
        assert_eq!(left(&numbering, at, after(0)), horizon + Duration::from_millis(1));
        assert!(!is_due(&numbering, at, now(149), after(149), horizon));
        assert!(is_due(&numbering, at, now(151), after(151), horizon));
        assert!(is_due(&numbering, at, now(0), after(160), horizon), "IDs ahead of the clock use it up too");
        assert_eq!(left(&numbering, at, after(400)), Duration::ZERO);
    }
}
