//! The ceilings of a far writer, the coordinator of a fleet: minutes ahead, and raised for idle
//! sources too.

use std::time::Duration;

use snowbank_id::layout::{Position, Tick, UnixMicros};
use snowbank_id::numbering::Numbering;

use crate::clock::{self, Now};

/// Returns the instant from which the horizon of a ceiling counts. It is the later of the ID clock
/// and the wall clock, at most `max_ahead` after the wall clock.
///
/// Invariant: no ceiling grants IDs later than the asking daemon's wall clock plus its `max_ahead`
/// and its horizon. The floor after a restore of the coordinator (`rules::floor_after_loss`) must
/// be above all grants that the coordinator has forgotten. So it relies on the invariant. A source
/// may start at a floor or a bound that is further ahead. Such a source hands out nothing before
/// its clock is within `max_ahead` of that start. Until a ceiling of this rule passes the start,
/// the source's key at the coordinator holds the start as a bound. Such a bound grants nothing.
pub fn counts_from(now: Now, id_time: UnixMicros, max_ahead: Duration) -> UnixMicros {
    now.wall.max(id_time).min(now.after(max_ahead).wall)
}

/// Returns the ceiling to write for a source: `horizon` ahead of `counts_from`.
pub fn ceiling(numbering: &Numbering, counts_from: UnixMicros, horizon: Duration) -> Position {
    let reach = UnixMicros(counts_from.0.saturating_add(clock::micros(horizon)));
    numbering.first_of(Tick(numbering.tick_at(reach).0.saturating_add(1)))
}

/// Returns whether half of the horizon below a ceiling is used up. If so, the ceiling is raised
/// even if no request comes.
pub fn is_due(numbering: &Numbering, ceiling: Position, counts_from: UnixMicros, horizon: Duration) -> bool {
    left(numbering, ceiling, counts_from) <= horizon / 2
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

    const HORIZON: Duration = Duration::from_secs(300);
    const MAX_AHEAD: Duration = Duration::from_secs(10);

    fn from(wall: i64, id_time: i64) -> UnixMicros {
        let now = Now { wall: after(wall), boot: BootMicros(0), jumped: false };
        counts_from(now, after(id_time), MAX_AHEAD)
    }

    fn numbering() -> Numbering {
        Numbering::new(Layout::resolve("twitter").unwrap(), WorkerSet::single(5)).unwrap()
    }

    #[test]
    fn a_ceiling_is_due_when_half_of_its_horizon_is_used_up() {
        let numbering = numbering();
        let at = ceiling(&numbering, from(0, 0), HORIZON);
        assert_eq!(left(&numbering, at, after(0)), HORIZON + Duration::from_millis(1));
        assert!(!is_due(&numbering, at, from(149, 149), HORIZON));
        assert!(is_due(&numbering, at, from(151, 151), HORIZON));
        assert!(is_due(&numbering, at, from(141, 151), HORIZON), "the ID clock is ahead of the wall clock");
        assert_eq!(left(&numbering, at, after(400)), Duration::ZERO);
    }

    /// The source starts at the floor that was set after a restore of the coordinator. The next
    /// floor must be above every ID that is granted now.
    #[test]
    fn a_source_far_ahead_is_granted_no_more_than_others() {
        let numbering = numbering();
        let floor = numbering.first_of(numbering.tick_at(after(320)));
        assert!(!is_due(&numbering, floor, from(0, 320), HORIZON));
        let highest = ceiling(&numbering, from(0, 10), HORIZON);
        assert_eq!(ceiling(&numbering, from(0, 320), HORIZON), highest);
        assert!(
            is_due(&numbering, floor, from(161, 320), HORIZON),
            "the ceiling must pass the start before the source hands out IDs"
        );
    }
}
