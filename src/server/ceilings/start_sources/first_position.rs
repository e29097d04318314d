//! Where a source starts, and what is known about earlier IDs.

use std::time::Duration;

use snowbank_core::grant::CeilingRule;
use snowbank_core::source::OnStepBack;
use snowbank_id::layout::{Tick, UnixMicros};
use snowbank_id::numbering::Numbering;
use snowbank_state::store::{self, Claimant, Record, Start};

/// Returns the lowest ID at which these worker IDs may start. If the last run of this state had each of
/// them, this is 0. Otherwise it is the first ID of the next tick, because another machine may have
/// handed out IDs of the current tick with a worker ID that this state never had, or had before. If the
/// state had one of them before, the next tick after `highest` counts, the time by the clock that
/// this state last believed: the clock may have gone back while another machine had the worker ID.
///
/// Records of other worker IDs do not count, because they do not show which IDs were handed out
/// with these worker IDs. For a ticket counter, this is always 0: a counter without a record starts
/// only if the fleet's coordinator has it.
pub(super) fn guard(
    claimant: &Claimant<'_>,
    records: &[Record],
    wall: UnixMicros,
    highest: UnixMicros,
) -> u64 {
    let Claimant { numbering, in_fleet, .. } = *claimant;
    // A key has the bound of what other machines of a fleet had since.
    let of_last_run = records.iter().filter(|record| in_fleet || !record.retired);
    if numbering.snowflake().is_none() || store::has_records_of_all(of_last_run, numbering) {
        return 0;
    }
    // A record without a boot was lowered by an operator, who says how far its IDs got.
    let had = |record: &Record| record.boot.is_some() && record.numbering.shares_ids_with(numbering);
    let now = if records.iter().any(had) { wall.max(highest) } else { wall };
    numbering.id_bound(numbering.first_of(Tick(numbering.tick_at(now).0.saturating_add(1))))
}

/// Returns whether these worker IDs may start while a forward step of the clock is not believed yet: only
/// if this state ran last with each of them, in this boot. The step may be right, and another machine may
/// have used the worker IDs until then.
pub(super) fn may_start_in_step(numbering: &Numbering, records: &[Record], boot: Option<&str>) -> bool {
    let of_last_run = records.iter().filter(|record| !record.retired && record.boot.as_deref() == boot);
    numbering.snowflake().is_none() || boot.is_some() && store::has_records_of_all(of_last_run, numbering)
}

/// Returns the start at a bound. `stored` is the start by the records. A higher bound comes from a mark,
/// the clock or the coordinator, and no stop has stored it.
pub(super) fn start_at(id_bound: u64, stored: Start, numbering: &Numbering) -> Start {
    let is_stored = numbering.position_from(stored.id_bound) == numbering.position_from(id_bound);
    Start { id_bound, is_clean: stored.is_clean && is_stored }
}

/// Returns how far the ID clock of a source may run ahead of the wall clock, if it starts here.
///
/// With `on_step_back = "wait"`, this is the largest lead that crashes can cause without a step
/// of the clock: the horizon and, if a second crash follows, two more ticks. After a clean
/// stop it is 0, because a clock that is behind the last ID must have gone back.
pub(super) fn max_ahead(start: Start, on_step_back: OnStepBack, rule: &CeilingRule) -> Duration {
    match on_step_back {
        OnStepBack::Ride => rule.max_ahead,
        OnStepBack::Wait if start.is_clean => Duration::ZERO,
        OnStepBack::Wait => rule.max_ahead.min(rule.horizon.saturating_add(2 * rule.tick)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowbank_id::layout::{Layout, Position};

    #[test]
    fn only_the_bound_of_a_clean_stop_is_clean() {
        let layout = "time:30,worker:10,sequence:12;tick=3600s;epoch=2020-01-01T00:00:00Z";
        let numbering = Numbering::new(Layout::resolve(layout).unwrap(), "5".parse().unwrap()).unwrap();
        // The ID before the first one of a tick is another worker's.
        let position = Position(219_726 * 4_096);
        let stored = Start { id_bound: numbering.id_bound(position) - 1, is_clean: true };
        let start = |id_bound| start_at(id_bound, stored, &numbering);
        assert_eq!(start(stored.id_bound), stored);
        assert_eq!(start(stored.id_bound + 1), Start { id_bound: stored.id_bound + 1, is_clean: true });
        assert!(!start(stored.id_bound + 2).is_clean, "a mark or the clock has raised it");
    }

    #[test]
    fn no_lead_is_allowed_after_a_clean_stop_with_step_back_wait() {
        let rule = CeilingRule {
            horizon: Duration::from_secs(3),
            max_ahead: Duration::from_secs(10),
            tick: Duration::from_millis(1),
        };
        let crashed = Duration::from_millis(3_002);
        for (is_clean, on_step_back, expected) in [
            (true, OnStepBack::Ride, rule.max_ahead),
            (false, OnStepBack::Ride, rule.max_ahead),
            (true, OnStepBack::Wait, Duration::ZERO),
            (false, OnStepBack::Wait, crashed),
        ] {
            let start = Start { id_bound: 9, is_clean };
            assert_eq!(
                max_ahead(start, on_step_back, &rule),
                expected,
                "clean: {is_clean}, {on_step_back:?}"
            );
        }
    }
}
