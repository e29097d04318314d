mod fleet;
mod jumps;
mod tickets;

use super::*;
use crate::clock::Remembered;
use crate::clock::tests::{RULE as STEP_RULE, SECOND_US, START, later};
use crate::grant::Grant;
use crate::grant::tests::RULE as CEILING_RULE;
use crate::source::tests::{RULES, TWITTER, numbering};
use snowbank_id::layout::UnixMicros;

const HOUR_US: i64 = 3_600 * SECOND_US;

/// A keeper of sources whose first ceilings are granted. A write ends when the test calls
/// [`World::end`].
struct World {
    keeper: Keeper,
    source: Arc<Source>,
    wall: Arc<Wall>,
    /// Every ceiling of the first source that the keeper gave to a writer.
    handed_out: Vec<Position>,
    /// Every mark: the source's index and its ID bound.
    marked: Vec<(usize, u64)>,
}

impl World {
    fn new() -> World {
        World::of(vec![managed(0)], &[Reach::Local])
    }

    /// Grants these sources their first ceilings, and returns a world with them.
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

    fn poll(&mut self, reading: Reading) -> Polled {
        let polled = self.keeper.poll(reading);
        let first_write = |write: &Write| {
            write.ceilings.iter().find(|(index, _)| *index == 0).map(|(_, durable)| durable.ceiling)
        };
        self.handed_out.extend(polled.writes.iter().filter_map(first_write));
        polled
    }

    fn end(&mut self, write: &Write, result: Result<(), String>, reading: Reading) -> Option<Written> {
        let outcome = Outcome { writer: write.writer, number: write.number, failure: result.err() };
        let now = self.wall.believe(reading);
        self.keeper.written(outcome, now, |index, id_bound| self.marked.push((index, id_bound)))
    }

    /// Polls the keeper, and ends each of its writes with success. Repeats this until a poll
    /// writes nothing.
    fn settle(&mut self, reading: Reading) -> Polled {
        loop {
            let polled = self.poll(reading);
            if polled.writes.is_empty() {
                return polled;
            }
            for write in &polled.writes {
                self.end(write, Ok(()), reading).expect("the write is in flight");
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

/// Returns the only write of a poll.
fn only(polled: &Polled) -> Write {
    assert_eq!(polled.writes.len(), 1, "{polled:?}");
    polled.writes[0].clone()
}

fn wall() -> Arc<Wall> {
    Arc::new(Wall::new(STEP_RULE, START, Remembered::Nothing))
}

/// Returns a source that starts `ahead_us` ahead of the wall clock and has no ceiling yet.
fn managed(ahead_us: i64) -> ManagedSource {
    let now = wall().believe(START);
    let numbering = numbering(TWITTER);
    let start = numbering.first_of(numbering.tick_at(UnixMicros(START.wall.0 + ahead_us)));
    let source = Source::new(String::from("test"), numbering, RULES, Grant::new(Position(0)), start, now);
    ManagedSource::new(Arc::new(source), CEILING_RULE, start, now)
}

#[test]
fn ceilings_of_an_unused_source_rise_for_ten_minutes() {
    let mut world = World::new();
    for second in 1..=2_000 {
        world.settle(later(second * SECOND_US, 0));
    }
    let raised = world.handed_out.len();
    assert!((590..=600).contains(&raised), "{raised} times in 2,000 s");
    // The next request meets the ceiling.
    assert!(world.source.grant().want_more());
    let now = later(2_001 * SECOND_US, 0);
    world.settle(now);
    let window = world.source.window(world.wall.believe(now));
    assert!(world.source.left(&window) > 0);
}

#[test]
fn sealing_an_unused_source_returns_the_bound_it_started_from() {
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
fn nothing_is_written_or_claimed_after_a_loss() {
    let mut world = World::new();
    assert_eq!(world.keeper.lost(), None);
    let taken_over = TakenOver(String::from("another process has the state"));
    world.keeper.lose(taken_over.clone());
    assert_eq!(world.keeper.lost(), Some(&taken_over));
    assert!(world.poll(later(SECOND_US, 0)).writes.is_empty());
    assert_eq!(world.claim(later(SECOND_US, 0), 1), None);
    assert_eq!(world.keeper.restored(), [], "the lock may be another process's by now");
}

#[test]
fn all_ceilings_rise_when_one_source_needs_it() {
    let mut world = World::of(vec![managed(0), managed(0)], &[Reach::Local]);
    world.settle(later(SECOND_US, 0));
    assert!(world.source.grant().want_more());
    let at = later(SECOND_US + 400_000, 0);
    let write = only(&world.poll(at));
    assert_eq!(write.ceilings.len(), 2, "the other source's ceiling rises too");
    world.end(&write, Ok(()), at);
    assert_eq!(world.poll(at).next_in, PERIOD, "both are due again at the same time");
}

/// The ID clock stands still, so an early raise gains nothing.
#[test]
fn beyond_max_ahead_ceilings_rise_twice_a_second_at_most() {
    let mut world = World::new();
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

#[test]
fn a_write_that_ends_after_the_seal_marks_nothing() {
    let mut world = World::new();
    let write = only(&world.poll(later(SECOND_US, 0)));
    world.keeper.seal();
    world.end(&write, Ok(()), later(SECOND_US, 0)).expect("the write is in flight");
    assert_eq!(world.marked, [], "the stop stores a bound that is lower than this write's");
}
