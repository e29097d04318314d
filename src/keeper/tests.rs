use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::*;
use crate::ceiling::Grant;
use crate::clock::{Remembered, StepRule};
use crate::source::{OnStepBack, Rules, SequenceStart};
use snowbank_client::layout::{Layout, Numbering, UnixMicros, WorkerSet};

const SECOND_US: i64 = 1_000_000;
const START: Reading =
    Reading { wall: UnixMicros(1_800_000_000 * SECOND_US), boot: BootMicros(500 * SECOND_US) };
const HOUR_US: i64 = 3_600 * SECOND_US;

/// Remembers the ceilings that it was asked to raise, and fails when told to, or when another daemon has it.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<(Vec<Position>, bool, Revoked)>>, Arc<AtomicBool>);

/// Whose grant the next raise takes away.
type Revoked = Option<Arc<Source>>;

impl Disk {
    fn raised(&self) -> Vec<Position> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Has the grant taken away while the next raise is under way.
    fn restored_within(&self, source: &Arc<Source>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).2 = Some(Arc::clone(source));
    }

    fn fail(&self, fails: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1 = fails;
    }
}

impl CeilingStore for Disk {
    fn starts(
        &self,
        newcomers: &[Claimant<'_>],
        _wall: UnixMicros,
    ) -> Result<Vec<Option<Position>>, PlanError> {
        Ok(vec![None; newcomers.len()])
    }

    fn add(&mut self, newcomers: &[Newcomer<'_>], wall_minus_boot_us: i64) -> Result<(), StoreError> {
        let ceilings = newcomers.iter().map(|newcomer| newcomer.ceiling).enumerate();
        self.raise(&ceilings.collect::<Vec<_>>(), wall_minus_boot_us)
    }

    fn raise(&mut self, raises: &[(usize, Position)], _wall_minus_boot_us: i64) -> Result<(), StoreError> {
        let mut disk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        disk.0.extend(raises.iter().map(|(_, ceiling)| ceiling));
        if let Some(source) = disk.2.take() {
            source.grant().revoke();
        }
        if disk.1 { Err(StoreError(String::from("told to fail"))) } else { Ok(()) }
    }

    fn trim(&mut self, _trims: &[(usize, Position)]) -> Result<(), StoreError> {
        Ok(())
    }

    fn still_ours(&self) -> Result<(), TakenOver> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(TakenOver(String::from("another daemon has it"))),
            false => Ok(()),
        }
    }
}

/// What the clocks show `after_us` later, with the wall clock off by `step_us`.
fn later(after_us: i64, step_us: i64) -> Reading {
    Reading { wall: UnixMicros(START.wall.0 + after_us + step_us), boot: BootMicros(START.boot.0 + after_us) }
}

/// A source that starts `ahead_us` from the wall clock, before its first ceiling, and the wall clock.
fn kept(ahead_us: i64) -> (Kept, Arc<Wall>, Now) {
    let step_rule = StepRule { max_step: Duration::from_secs(60), step_hold: Duration::from_secs(60) };
    let wall = Arc::new(Wall::new(step_rule, START, Remembered::Nothing));
    let now = wall.believe(START);
    let layout = Layout::resolve("twitter").expect("a preset");
    let numbering = Numbering::new(layout, WorkerSet::single(0)).expect("worker 0 exists");
    let start = numbering.first_of(numbering.tick_at(UnixMicros(START.wall.0 + ahead_us)));
    let max_ahead = Duration::from_secs(10);
    let rules = Rules {
        burst_window: Duration::from_millis(10),
        max_ahead,
        on_step_back: OnStepBack::Ride,
        sequence_start: SequenceStart::Zero,
    };
    let rule = CeilingRule { horizon: Duration::from_secs(3), max_ahead, tick: Duration::from_millis(1) };
    let source = Source::new(String::from("test"), numbering, rules, Grant::new(Position(0)), start, now);
    (Kept::new(Arc::new(source), rule, start, now), wall, now)
}

/// A keeper of one source whose first ceiling is granted.
fn keeper() -> (Keeper, Disk, Arc<Source>, Arc<Wall>) {
    let (mut kept, wall, now) = kept(0);
    let first = kept.first_ceiling(now);
    kept.grant(first);
    let (source, disk) = (Arc::clone(kept.source()), Disk::default());
    let keeper = Keeper::new(vec![kept], Box::new(disk.clone()), None, Arc::clone(&wall), START);
    (keeper, disk, source, wall)
}

#[test]
fn the_first_ceiling_is_not_below_the_start() {
    let (kept, _, now) = kept(HOUR_US);
    let start = kept.source().cursor().expect("not sealed");
    assert_eq!(kept.first_ceiling(now), start);
}

#[test]
fn a_jump_takes_the_grants_away_until_the_ceilings_are_durable_anew() {
    let (mut keeper, disk, source, wall) = keeper();
    let jumped = later(SECOND_US, 5 * SECOND_US);
    assert!(wall.believe(jumped).jumped);
    disk.fail(true);
    assert!(keeper.look(jumped).failure.is_some());
    assert_eq!((source.grant().ceiling(), source.grant().generation()), (Position(0), 1));
    disk.fail(false);
    assert!(keeper.look(jumped).failure.is_none());
    assert!(!wall.believe(jumped).jumped);
    assert_eq!(Some(source.grant().ceiling()), disk.raised().last().copied());
    assert_eq!(source.grant().generation(), 1);
}

#[test]
fn after_a_jump_no_ceiling_is_lower_than_one_that_was_durable() {
    let (mut keeper, disk, source, _) = keeper();
    let durable = source.grant().ceiling();
    keeper.look(later(SECOND_US, -HOUR_US));
    assert_eq!(disk.raised(), [durable]);
    assert_eq!(source.grant().ceiling(), durable);
}

#[test]
fn a_grant_taken_away_within_a_raise_waits_for_the_next_one() {
    let (mut keeper, disk, source, _) = keeper();
    disk.restored_within(&source);
    keeper.look(later(SECOND_US, 0));
    assert_eq!(source.grant().ceiling(), Position(0), "what was durable before counts no more");
    keeper.look(later(SECOND_US + 1_000, 0));
    assert_eq!(Some(source.grant().ceiling()), disk.raised().last().copied());
    assert_eq!(disk.raised().len(), 2);
}

#[test]
fn a_source_that_nobody_uses_is_left_alone_after_ten_minutes() {
    let (mut keeper, disk, source, wall) = keeper();
    for second in 1..=2_000 {
        keeper.look(later(second * SECOND_US, 0));
    }
    let raised = disk.raised().len();
    assert!((500..=600).contains(&raised), "{raised} times in 2,000 s");
    // The next to ask says that it met the ceiling.
    assert!(source.grant().want_more());
    let now = later(2_001 * SECOND_US, 0);
    keeper.look(now);
    let window = source.window(wall.believe(now));
    assert!(source.left(&window) > 0);
}

#[test]
fn a_source_joins_under_a_ceiling_that_is_durable_or_not_at_all() {
    let (mut keeper, disk, _, wall) = keeper();
    let now = wall.believe(later(SECOND_US, 0));
    let (refused, _, _) = kept(0);
    let source = Arc::clone(refused.source());
    disk.fail(true);
    assert!(keeper.add(vec![refused], now).is_err());
    assert_eq!(source.grant().ceiling(), Position(0), "what is not durable serves nobody");
    assert_eq!(Arc::strong_count(&source), 1, "it is not kept");
    disk.fail(false);

    let (joins, _, _) = kept(SECOND_US);
    let source = Arc::clone(joins.source());
    assert_eq!(keeper.add(vec![joins], now), Ok(()));
    assert_eq!(Some(source.grant().ceiling()), disk.raised().last().copied());
    assert!(source.left(&source.window(now)) > 0);
    // From then on it is raised and sealed like the others.
    let first = source.grant().ceiling();
    keeper.look(later(2 * SECOND_US, 0));
    assert!(source.grant().ceiling() > first);
    keeper.seal_and_trim().expect("the disk works");
    assert_eq!(source.cursor(), None);
}

#[test]
fn no_source_joins_a_daemon_whose_state_was_taken_over() {
    let (mut keeper, disk, _, wall) = keeper();
    // Since the last look.
    disk.1.store(true, Ordering::Relaxed);
    let (joins, _, _) = kept(0);
    let source = Arc::clone(joins.source());
    assert!(keeper.add(vec![joins], wall.believe(START)).is_err());
    assert_eq!((source.grant().ceiling(), disk.raised().len()), (Position(0), 0));
}

#[test]
fn another_horizon_raises_the_ceiling_and_never_lowers_it() {
    let (mut keeper, _, source, _) = keeper();
    keeper.look(later(SECOND_US, 0));
    let before = source.grant().ceiling();
    keeper.set_horizons([Duration::from_secs(1)]);
    keeper.look(later(2 * SECOND_US, 0));
    assert_eq!(source.grant().ceiling(), before);
    keeper.set_horizons([Duration::from_secs(9)]);
    keeper.look(later(3 * SECOND_US, 0));
    let numbering = source.numbering();
    let reach = numbering.start_of(numbering.tick_of(source.grant().ceiling()));
    assert!(reach.0 >= START.wall.0 + 12 * SECOND_US, "{reach:?}");
}

#[test]
fn a_look_that_nobody_needs_does_not_raise() {
    let (mut keeper, disk, source, _) = keeper();
    keeper.look(later(SECOND_US, 0));
    let raised = disk.raised().len();
    // Probes, for instance, have it look.
    for probe in 1..1_000 {
        let looked = keeper.look(later(SECOND_US + probe * 1_000, 0));
        assert_eq!(
            looked.next_in,
            Duration::from_millis(1_000 - probe.unsigned_abs()),
            "the next raise waits for no probe"
        );
    }
    assert_eq!(disk.raised().len(), raised);
    assert!(source.grant().want_more());
    keeper.look(later(SECOND_US + 999_500, 0));
    assert_eq!(disk.raised().len(), raised + 1, "a claim has met the ceiling");
    keeper.look(later(3 * SECOND_US, 0));
    assert_eq!(disk.raised().len(), raised + 2, "as without probes");
}

#[test]
fn ceilings_rise_together_whoever_needed_it_first() {
    let (mut keeper, disk, source, wall) = keeper();
    let (joins, _, _) = kept(0);
    keeper.add(vec![joins], wall.believe(later(0, 0))).expect("the disk works");
    keeper.look(later(SECOND_US, 0));
    let raised = disk.raised().len();
    assert!(source.grant().want_more());
    let looked = keeper.look(later(SECOND_US + 400_000, 0));
    assert_eq!(disk.raised().len(), raised + 2, "the other goes with it");
    assert_eq!(looked.next_in, Duration::from_secs(1), "and both are next due at one time");
}

#[test]
fn a_look_between_two_tries_says_what_still_fails() {
    let (mut keeper, disk, ..) = keeper();
    disk.fail(true);
    let tried = keeper.look(later(SECOND_US, 0));
    assert!(tried.failure.is_some() && tried.tried);
    let probe = keeper.look(later(SECOND_US + 500_000, 0));
    assert!(
        probe.failure.is_some() && !probe.tried,
        "a probe asks nothing of the disk, and heals it as little"
    );
    disk.fail(false);
    let retried = keeper.look(later(2 * SECOND_US, 0));
    assert!(retried.failure.is_none() && retried.raised);
}
