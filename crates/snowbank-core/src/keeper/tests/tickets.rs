//! A ticket source under the keeper: reservations instead of a clock.

use super::*;
use crate::source::tests::counter;
use crate::source::wait_queue::WaitRequest;

/// Returns a keeper of one ticket source at position 0.
fn world(source: Source) -> World {
    let now = wall().believe(START);
    let managed = ManagedSource::new(Arc::new(source), CEILING_RULE, Position(0), now);
    World::of(vec![managed.reserving(1_000)], &[Reach::Local])
}

/// The ranges of a shared counter raise its grant, so the counter never waits for a ceiling.
#[test]
fn a_shared_counter_never_counts_as_revoked() {
    let mut world = world(counter(0).with_shared_counter());
    world.source.record_restored();
    world.settle(START);
    assert!(!world.keeper.was_revoked);
}

/// At one request a second, the reservation is more than half full for minutes, so no raise is
/// near.
#[test]
fn a_trickle_of_numbers_seldom_wakes_the_keeper() {
    let mut world = world(counter(0));
    for second in 1..1_000 {
        assert!(world.claim(START, 1).is_some(), "{second}");
        let polled = world.poll(later(second * SECOND_US, 0));
        assert!(polled.next_in >= Duration::from_millis(500), "second {second}: {:?}", polled.next_in);
        for write in polled.writes {
            world.end(&write, Ok(()), later(second * SECOND_US, 0));
        }
        let polled = world.poll(later(second * SECOND_US + 1_000, 0));
        assert!(polled.next_in >= Duration::from_millis(400), "second {second}: {:?}", polled.next_in);
    }
}

/// Polls the keeper of a shared counter. Returns the count of numbers that the keeper asks for, and
/// the time for which the counter's numbers last. Also returns the time until the next poll.
fn demand(world: &mut World, reading: Reading) -> (Option<u64>, Duration, Duration) {
    let polled = world.poll(reading);
    let asked = polled.ranges.first().map(|wanted| wanted.count);
    (asked, polled.ranges_last[0].expect("a shared counter"), polled.next_in)
}

/// Answers the keeper's only request for a range.
fn give(world: &mut World, count: u64, range: Option<NumberRange>, reading: Reading) {
    let generation = world.source.grant().generation();
    let now = world.wall.believe(reading);
    world.keeper.ranged(WantedRange { source: 0, count, generation }, range, now);
}

/// Makes a request wait, and advances the wait queue. Returns whether the request got its numbers.
fn wait_for(world: &World, count: u64, reading: Reading) -> bool {
    let now = world.wall.believe(reading);
    let request = WaitRequest { count, due: now.boot.after(PERIOD), wait: PERIOD, partial: false, shard: 0 };
    world.source.admit(&world.source.window(now), request).expect("admitted");
    world.source.advance(now, &mut fastrand::Rng::with_seed(1));
    !world.source.collect(0).is_empty()
}

#[test]
fn a_poll_tells_whether_requests_wait() {
    let mut world = world(counter(0));
    assert!(!world.poll(START).some_wait);
    assert!(!wait_for(&world, 1_000_000, START), "more than the reservation");
    assert!(world.poll(START).some_wait);
}

#[test]
fn a_shared_counter_asks_for_a_range_as_demand_needs() {
    const LASTS: Duration = Duration::from_secs(4);
    let second = |seconds: i64| later(seconds * SECOND_US, 0);
    let range = |from, to| Some(NumberRange { from, to });
    let mut world = world(counter(0).with_shared_counter());
    assert_eq!(demand(&mut world, second(0)), (Some(1_000), Duration::ZERO, PERIOD), "nothing is left");
    assert_eq!(demand(&mut world, second(1)).0, None, "one range at a time");

    give(&mut world, 1_000, None, second(1));
    let soon = later(SECOND_US + 400_000, 0);
    assert_eq!(demand(&mut world, soon), (None, Duration::ZERO, Duration::from_millis(600)));
    assert_eq!(demand(&mut world, second(2)).0, Some(1_000), "a period after the failure");

    give(&mut world, 1_000, range(1, 1_001), second(2));
    assert_eq!(demand(&mut world, second(3)), (None, LASTS, PERIOD), "an unused range is enough");
    world.claim(second(3), 374).expect("in the range");
    assert_eq!(demand(&mut world, second(3)).0, None, "626 are left");
    world.claim(second(3), 1).expect("in the range");
    assert_eq!(demand(&mut world, second(3)).0, Some(1_000), "625 are left");

    // Another daemon has the numbers between the two ranges. These numbers do not count as demand.
    give(&mut world, 1_000, range(1_000_001, 1_001_001), second(3));
    assert_eq!(demand(&mut world, second(4)), (None, LASTS, PERIOD), "1,625 numbers last for over 4 s");
    assert!(wait_for(&world, 900, second(4)), "in the second range");
    assert_eq!(world.source.cursor(), Some(Position(1_000_900)), "the rest of the first range is skipped");
    assert_eq!(demand(&mut world, second(5)).0, Some(3_600), "four seconds at 900 a second");

    // Requests for more than any range has: one that was refused, and one that waits.
    give(&mut world, 3_600, range(2_000_001, 2_003_601), second(5));
    assert_eq!(world.claim(second(5), 5_000), None);
    assert!(world.source.grant().want_more());
    assert_eq!(demand(&mut world, second(5)).0, Some(2 * 3_600), "more than the last range had");
    give(&mut world, 7_200, range(3_000_001, 3_007_201), second(5));
    assert!(!wait_for(&world, 20_000, second(5)));
    assert_eq!(demand(&mut world, second(5)).0, Some(20_000), "what the request needs");

    // The coordinator has no numbers left.
    give(&mut world, 20_000, range(5, 5), second(5));
    assert_eq!(
        demand(&mut world, second(5)),
        (None, LASTS, PERIOD),
        "a counter that has ended asks for nothing"
    );
    assert!(demand(&mut world, second(15)).0.is_some(), "another daemon may have given numbers back");
    give(&mut world, 20_000, range(5, 5), second(15));
    assert_eq!(demand(&mut world, second(24)).0, None);
}

/// Each number is durable before it is handed out, and none is reserved beyond it. A request that
/// does not wait is refused, and the next one is not.
#[test]
fn with_a_reserve_of_one_a_crash_skips_nothing() {
    let now = wall().believe(START);
    let managed = ManagedSource::new(Arc::new(counter(0)), CEILING_RULE, Position(0), now).reserving(1);
    assert_eq!(managed.first_ceiling(now), Position(0));
    let mut world = World::of(vec![managed], &[Reach::Local]);
    for (at, count) in [1, 1, 700, 1, 40_000, 3].into_iter().enumerate() {
        let reading = later(at as i64 * 1_000, 0);
        assert!(!wait_for(&world, count, reading));
        assert!(world.source.grant().is_wanted(), "the keeper is woken");
        let polled = world.poll(reading);
        let [write] = &polled.writes[..] else { panic!("{polled:?}") };
        world.end(write, Ok(()), reading);
        assert!(world.poll(reading).writes.is_empty(), "the request has its numbers already");
        world.source.advance(world.wall.believe(reading), &mut fastrand::Rng::with_seed(1));
        assert_eq!(world.source.collect(0).len(), 1, "{count}");
        assert_eq!(world.source.cursor(), Some(world.source.grant().ceiling()), "{count}");
        assert_eq!(world.poll(reading).next_in, PERIOD);
    }
    let last = world.source.last_number().expect("a counter").number;
    assert_eq!(world.claim(START, 1), None);
    assert!(world.source.grant().want_more());
    world.settle(START);
    assert!(world.claim(START, 1).is_some());
    assert_eq!(world.source.last_number().expect("a counter").number, last + 1);
}
