//! The first position of a source, and what is known about earlier IDs.

use std::collections::HashSet;
use std::time::Duration;

use crate::ceiling::store::Record;
use crate::ceiling::{CeilingRule, Mark};
use crate::numbering::Numbering;
use crate::source::OnStepBack;
use snowbank_id::layout::{Position, Tick, UnixMicros};

/// Returns the lowest position at which these worker IDs may start. If the state has a record of
/// each of them, this is 0. Otherwise it is the start of the next tick, because an earlier process,
/// perhaps on another machine, may have handed out IDs of the current tick with a worker ID that
/// has no record.
///
/// Records of other worker IDs do not count, because they do not show which IDs were handed out
/// with these worker IDs. For a ticket counter, the lowest position is always 0: a counter without
/// a record starts only if the fleet's coordinator has it.
pub(super) fn guard(numbering: &Numbering, records: &[Record], wall: UnixMicros) -> Position {
    if numbering.snowflake().is_none() {
        return Position(0);
    }
    let same_space = records.iter().filter(|record| record.numbering.is_of_space(numbering));
    let known: HashSet<u64> = same_space.flat_map(|record| record.numbering.numbers_in_space()).collect();
    if numbering.numbers_in_space().iter().all(|number| known.contains(number)) {
        return Position(0);
    }
    numbering.first_of(Tick(numbering.tick_at(wall).0.saturating_add(1)))
}

/// The first position of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FirstPosition {
    /// The lowest position that the source may claim.
    pub(super) position: Position,
    /// The stored bound that led to the position. If nothing was claimed, a clean stop stores this
    /// bound again.
    pub(super) id_bound: u64,
    /// True if IDs were handed out right up to this position, as a clean stop has recorded. After a
    /// crash, nothing shows how far below this position the last ID is.
    pub(super) is_clean: bool,
}

impl FirstPosition {
    /// Returns `position` as a first position, with what the records and the marks show about it.
    ///
    /// If a bound of other worker IDs led to the position, that bound is usually below the ID that
    /// this source makes at the position. If nothing was claimed, a stop stores the lower of the
    /// two. Otherwise each change of the worker IDs would raise the stored bound, although no ID
    /// was handed out.
    pub(super) fn of(position: Position, numbering: &Numbering, records: &[Record], marks: &[Mark]) -> Self {
        let leads_here = |id_bound: &u64| numbering.position_from(*id_bound) == position;
        let mut ends_here = records.iter().filter(|record| leads_here(&record.id_bound)).peekable();
        let is_clean = ends_here.peek().is_some() && ends_here.all(Record::ends_at_a_claim);
        let stored = records.iter().map(|record| record.id_bound);
        let known = stored.chain(marks.iter().map(|mark| mark.id_bound));
        let id_bound = known.filter(leads_here).max().unwrap_or_else(|| numbering.id_bound(position));
        FirstPosition { position, id_bound, is_clean }
    }

    /// Returns how far the ID clock may run ahead of the wall clock.
    ///
    /// With `on_step_back = "wait"`, this is the largest lead that crashes can cause without a step
    /// of the clock: the horizon and, if a second crash follows, two more ticks. After a clean
    /// stop it is 0, because a clock that is behind the last ID must have gone back.
    pub(super) fn max_ahead(self, on_step_back: OnStepBack, rule: &CeilingRule) -> Duration {
        match on_step_back {
            OnStepBack::Ride => rule.max_ahead,
            OnStepBack::Wait if self.is_clean => Duration::ZERO,
            OnStepBack::Wait => rule.max_ahead.min(rule.horizon.saturating_add(2 * rule.tick)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceiling::{HostIdentity, Owner};
    use snowbank_id::layout::Layout;

    fn numbering(workers: &str) -> Numbering {
        let layout = "time:30,worker:10,sequence:12;tick=3600s;epoch=2020-01-01T00:00:00Z";
        Numbering::new(Layout::resolve(layout).unwrap(), workers.parse().unwrap()).unwrap()
    }

    fn record(name: &str, workers: &str, ceiling: Position, clean: bool) -> Record {
        let record = Record::new(name, &numbering(workers), ceiling, &Owner::new(), &HostIdentity::default());
        Record { clean, ..record }
    }

    fn first(workers: &str, position: Position, records: &[Record]) -> FirstPosition {
        FirstPosition::of(position, &numbering(workers), records, &[])
    }

    #[test]
    fn a_first_position_keeps_the_highest_bound_that_led_to_it() {
        let at = Position(900_000_000);
        let five = numbering("5");
        let by_another = record("orders", "9", at, true);
        let above = five.position_from(by_another.id_bound);
        let renamed = record("invoices", "9", at, true);
        for other in [&by_another, &renamed] {
            let found = first("5", above, std::slice::from_ref(other));
            assert_eq!(
                found.id_bound, other.id_bound,
                "the stored bound, and not this source's higher ID at the position"
            );
        }
        let earlier = record("orders", "5", Position(above.0 - 7), true);
        assert_eq!(first("5", above, &[earlier, by_another.clone()]).id_bound, by_another.id_bound);
        let own_too = [by_another.clone(), record("orders", "5", above, true)];
        assert_eq!(
            first("5", above, &own_too).id_bound,
            five.id_bound(above),
            "the source's own record has a higher bound"
        );
        let mark = Mark::granted(five.id_bound(above), "");
        let marked = FirstPosition::of(above, &five, &[by_another], &[mark]);
        assert_eq!(marked.id_bound, five.id_bound(above), "the mark has a higher bound");
        assert_eq!(first("5", above, &[]).id_bound, five.id_bound(above), "nothing is stored");
    }

    #[test]
    fn no_lead_is_allowed_after_a_clean_stop_with_step_back_wait() {
        let rule = CeilingRule {
            horizon: Duration::from_secs(3),
            max_ahead: Duration::from_secs(10),
            tick: Duration::from_millis(1),
        };
        let at = Position(900_000_000);
        let crashed = Duration::from_millis(3_002);
        for (clean, on_step_back, expected) in [
            (true, OnStepBack::Ride, rule.max_ahead),
            (false, OnStepBack::Ride, rule.max_ahead),
            (true, OnStepBack::Wait, Duration::ZERO),
            (false, OnStepBack::Wait, crashed),
        ] {
            let found = first("5", at, &[record("orders", "5", at, clean)]);
            assert_eq!(found.max_ahead(on_step_back, &rule), expected, "clean: {clean}, {on_step_back:?}");
        }
        assert_eq!(first("5", at, &[]).max_ahead(OnStepBack::Wait, &rule), crashed, "nothing is known");
    }
}
