mod fleet;
mod jumps;
mod tickets;

use super::*;
use crate::clock::{Remembered, StepRule};
use crate::grant::{CeilingRule, Grant};
use crate::source::{OnStepBack, Rules, SequenceStart};
use snowbank_id::layout::{Layout, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;

const SECOND_US: i64 = 1_000_000;
const START: Reading =
    Reading { wall: UnixMicros(1_800_000_000 * SECOND_US), boot: BootMicros(500 * SECOND_US) };
const HOUR_US: i64 = 3_600 * SECOND_US;

/// A keeper of one source whose first ceiling is granted, and its writers, which end a write when
/// the test says so.
struct World {
    keeper: Keeper,
    source: Arc<Source>,
    wall: Arc<Wall>,
    /// Every ceiling of the first source that was handed out.
    handed_out: Vec<Position>,
    /// Every mark: the source's index and its IDs' bound.
    marked: Vec<(usize, u64)>,
}

impl World {
    fn new(writers: usize) -> World {
        World::of(vec![managed(0)], &vec![Reach::Local; writers])
    }

    /// Returns a world of these sources, whose first ceilings it grants.
    fn of(mut sources: Vec<ManagedSource>, writers: &[Reach]) -> World {
        let wall = wall();
        for managed in &mut sources {
            let first = managed.first_ceiling(wall.believe(START));
            managed.grant(first);
        }
        let source = Arc::clone(sources[0].source());
        let keeper = Keeper::new(sources, writers, Arc::clone(&wall), START);
        World { keeper, source, wall, handed_out: Vec::new(), marked: Vec::new() }
    }

    fn look(&mut self, reading: Reading) -> Looked {
        let looked = self.keeper.look(reading);
        let of_first =
            |write: &Write| write.ceilings.iter().find(|(index, _)| *index == 0).map(|&(_, ceiling)| ceiling);
        self.handed_out.extend(looked.writes.iter().filter_map(of_first));
        looked
    }

    fn end(&mut self, write: &Write, result: Result<(), String>, reading: Reading) -> Option<Written> {
        let outcome = Outcome { writer: write.writer, number: write.number, result };
        let now = self.wall.believe(reading);
        self.keeper.written(outcome, now, |index, id_bound| self.marked.push((index, id_bound)))
    }

    /// Looks, and ends at once what is written, until there is nothing more to write.
    fn settle(&mut self, reading: Reading) -> Looked {
        loop {
            let looked = self.look(reading);
            if looked.writes.is_empty() {
                return looked;
            }
            for write in &looked.writes {
                self.end(write, Ok(()), reading).expect("it is in flight");
            }
        }
    }

    fn granted(&self) -> Position {
        self.source.grant().ceiling()
    }

    fn claim(&self, reading: Reading, count: u64) -> Option<Position> {
        let window = self.source.window(self.wall.believe(reading));
        self.source.claim(&window, count, &mut fastrand::Rng::with_seed(1))
    }
}

fn failed() -> Result<(), String> {
    Err(String::from("the disk failed"))
}

/// The only write of a look.
fn only(looked: &Looked) -> Write {
    assert_eq!(looked.writes.len(), 1, "{looked:?}");
    looked.writes[0].clone()
}

/// The clocks `after_us` later, with the wall clock off by `step_us`.
fn later(after_us: i64, step_us: i64) -> Reading {
    Reading { wall: UnixMicros(START.wall.0 + after_us + step_us), boot: BootMicros(START.boot.0 + after_us) }
}

fn wall() -> Arc<Wall> {
    let step_rule = StepRule { max_step: Duration::from_secs(60), step_hold: Duration::from_secs(60) };
    Arc::new(Wall::new(step_rule, START, Remembered::Nothing))
}

/// A source that starts `ahead_us` from the wall clock, before its first ceiling.
fn managed(ahead_us: i64) -> ManagedSource {
    let now = wall().believe(START);
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
    ManagedSource::new(Arc::new(source), rule, start, now)
}

/// With a reserve above it, each crash while the clock stands would move the next start up.
#[test]
fn a_start_far_ahead_has_its_ceiling_at_the_start_until_a_claim() {
    let mut world = World::of(vec![managed(HOUR_US)], &[Reach::Local]);
    let start = world.source.cursor().expect("not sealed");
    for second in 0..60 {
        world.settle(later(second * SECOND_US, 0));
        assert_eq!(world.granted(), start, "{second}");
    }
}

#[test]
fn a_ceiling_is_granted_when_its_write_has_ended_and_marked_before() {
    let mut world = World::new(1);
    let before = world.granted();
    let at = later(SECOND_US, 0);
    let write = only(&world.look(at));
    assert_eq!((world.granted(), world.marked.len()), (before, 0), "it is not durable yet");
    let look = world.look(later(9 * SECOND_US, 0));
    assert!(look.writes.is_empty(), "one write at a time, however long it takes");
    assert_eq!(look.in_flight_since, Some(at.boot));
    let written = world.end(&write, Ok(()), later(9 * SECOND_US, 0)).expect("it is in flight");
    assert_eq!((written.began, written.is_durable), (at.boot, true));
    assert_eq!((world.granted(), world.marked.len()), (write.ceilings[0].1, 1));
    assert!(world.end(&write, Ok(()), at).is_none(), "an outcome counts once");
}

#[test]
fn an_outcome_of_an_older_write_is_not_taken_for_that_of_the_newer() {
    let mut world = World::new(1);
    let before = world.granted();
    let abandoned = only(&world.look(later(SECOND_US, 0)));
    world.end(&abandoned, failed(), later(SECOND_US, 0)).expect("it is in flight");
    let newer = only(&world.look(later(2 * SECOND_US, 0)));
    assert!(world.end(&abandoned, Ok(()), later(2 * SECOND_US, 0)).is_none());
    assert_eq!(world.granted(), before);
    world.end(&newer, Ok(()), later(2 * SECOND_US, 0)).expect("it is in flight");
    assert_eq!(world.granted(), newer.ceilings[0].1);
}

#[test]
fn the_grant_rises_to_what_all_writers_have_durable() {
    let mut world = World::new(2);
    let before = world.granted();
    let looked = world.look(later(SECOND_US, 0));
    let [fast, slow] = &looked.writes[..] else { panic!("{looked:?}") };
    world.end(fast, Ok(()), later(SECOND_US, 0));
    assert_eq!(world.granted(), before);
    assert_eq!(world.marked, [], "a grant that does not rise needs no mark");
    // The fast one continues meanwhile, about once a second, even while a claim waits for the slow
    // one.
    assert!(world.source.grant().want_more());
    for _ in 0..10 {
        assert!(world.look(later(SECOND_US + 1_000, 0)).writes.is_empty(), "it does not hold the grant down");
    }
    let ahead = only(&world.look(later(2 * SECOND_US, 0)));
    assert_eq!(ahead.writer, fast.writer);
    world.end(&ahead, Ok(()), later(2 * SECOND_US, 0));
    assert_eq!(world.granted(), before);
    world.end(slow, Ok(()), later(3 * SECOND_US, 0));
    assert_eq!(world.granted(), slow.ceilings[0].1);
}

#[test]
fn a_source_that_nobody_uses_is_left_alone_after_ten_minutes() {
    let mut world = World::new(1);
    for second in 1..=2_000 {
        world.settle(later(second * SECOND_US, 0));
    }
    let raised = world.handed_out.len();
    assert!((500..=600).contains(&raised), "{raised} times in 2,000 s");
    // The next request notes that it met the ceiling.
    assert!(world.source.grant().want_more());
    let now = later(2_001 * SECOND_US, 0);
    world.settle(now);
    let window = world.source.window(world.wall.believe(now));
    assert!(world.source.left(&window) > 0);
}

/// A start must not hold a step that was believed before it, however long no request came.
#[test]
fn a_belief_is_stored_though_nobody_asks() {
    const STEP_US: i64 = 300 * SECOND_US;
    let mut world = World::new(1);
    let ceilings = |world: &mut World, seconds: std::ops::Range<i64>, step_us| {
        let before = world.handed_out.len();
        let mut stored_us = None;
        for second in seconds {
            let reading = later(second * SECOND_US, step_us);
            for write in &world.look(reading).writes {
                stored_us = Some(write.wall_minus_boot_us - START.offset_us());
                world.end(write, Ok(()), reading).expect("it is in flight");
            }
        }
        (world.handed_out[before..].to_vec(), stored_us)
    };
    ceilings(&mut world, 1..700, 0);
    // The jump takes the grant away, so a ceiling is written.
    let (held, stored_us) = ceilings(&mut world, 700..760, STEP_US);
    assert_eq!((held.len(), stored_us), (1, Some(0)), "it is held");
    assert_eq!(ceilings(&mut world, 760..900, STEP_US), (held, Some(STEP_US)), "it is believed");
}

#[test]
fn a_source_that_never_claimed_leaves_the_bound_that_led_to_its_start() {
    for (is_used, follows_a_stop) in [(false, false), (false, true), (true, false), (true, true)] {
        let managed = managed(0);
        let start = managed.first(Reach::Local).ceiling;
        let numbering = managed.source().numbering().clone();
        let led_here = numbering.id_bound(start) - 1;
        let mut world = World::of(vec![managed.following(led_here, follows_a_stop)], &[Reach::Local]);
        if is_used {
            world.claim(START, 1).expect("there is room");
        }
        let id_bound = if is_used { numbering.id_bound(Position(start.0 + 1)) } else { led_here };
        let is_untouched = !is_used && !follows_a_stop;
        assert_eq!(world.keeper.seal(), [Left { source: 0, id_bound, is_untouched }]);
    }
}

#[test]
fn nothing_is_written_or_granted_after_a_loss() {
    let mut world = World::new(1);
    let write = only(&world.look(later(SECOND_US, 0)));
    world.keeper.lose(TakenOver(String::from("another daemon has it")));
    world.end(&write, Ok(()), later(SECOND_US, 0));
    assert_eq!((world.granted(), world.marked.len()), (Position(0), 0));
    let looked = world.look(later(9 * SECOND_US, 0));
    assert!(looked.writes.is_empty() && looked.taken_over.is_some());
    assert_eq!(looked.next_in, PERIOD);
}

#[test]
fn a_write_that_ends_after_the_seal_marks_nothing() {
    let mut world = World::new(1);
    let write = only(&world.look(later(SECOND_US, 0)));
    world.keeper.seal();
    world.end(&write, Ok(()), later(SECOND_US, 0)).expect("it is in flight");
    assert_eq!(world.marked, [], "the stop stores less");
}

#[test]
fn a_look_that_nobody_needs_does_not_raise() {
    let mut world = World::new(1);
    world.settle(later(SECOND_US, 0));
    let raised = world.handed_out.len();
    // Probes, for instance, have it look.
    for probe in 1..1_000 {
        let looked = world.settle(later(SECOND_US + probe * 1_000, 0));
        let left = Duration::from_millis(1_000 - probe.unsigned_abs());
        assert_eq!(looked.next_in, left, "the next raise waits for no probe");
    }
    assert_eq!(world.handed_out.len(), raised);
    assert!(world.source.grant().want_more());
    world.settle(later(SECOND_US + 999_500, 0));
    assert_eq!(world.handed_out.len(), raised + 1, "a claim has met the ceiling");
    world.settle(later(3 * SECOND_US, 0));
    assert_eq!(world.handed_out.len(), raised + 2, "as without probes");
}

#[test]
fn ceilings_rise_together_whichever_needs_it_first() {
    let mut world = World::of(vec![managed(0), managed(0)], &[Reach::Local]);
    world.settle(later(SECOND_US, 0));
    assert!(world.source.grant().want_more());
    let at = later(SECOND_US + 400_000, 0);
    let write = only(&world.look(at));
    assert_eq!(write.ceilings.len(), 2, "the other goes with it");
    world.end(&write, Ok(()), at);
    assert_eq!(world.look(at).next_in, PERIOD, "and both are next due at one time");
}

#[test]
fn a_failure_stands_until_the_next_try() {
    let mut world = World::new(1);
    let write = only(&world.look(later(SECOND_US, 0)));
    world.end(&write, failed(), later(SECOND_US, 0));
    let probe = world.look(later(SECOND_US + 500_000, 0));
    assert!(probe.failure.is_some() && probe.writes.is_empty(), "a probe neither writes nor heals");
    let retried = world.settle(later(2 * SECOND_US, 0));
    assert!(retried.failure.is_none());
    assert_eq!(world.handed_out.len(), 2);
}

/// A source whose ID clock is as far ahead as it may be: an early raise gains nothing.
#[test]
fn a_ceiling_that_cannot_be_kept_ahead_is_raised_when_a_claim_meets_it_and_once_a_second() {
    let mut world = World::new(1);
    world.settle(later(SECOND_US, 0));
    let before = world.handed_out.len();
    for ms in 1_000..11_000 {
        let reading = later(ms * 1_000, -30 * SECOND_US);
        world.source.window(world.wall.believe(reading));
        world.settle(reading);
    }
    let raised = world.handed_out.len() - before;
    assert!((1..=20).contains(&raised), "{raised} times in 10 s");
}
