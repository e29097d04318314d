//! Jumps of the clocks and far steps: when grants go, when they come back, and how high.

use super::*;

#[test]
fn a_jump_takes_the_grants_away_until_ceilings_written_after_it_are_durable() {
    let mut world = World::new(1);
    let before = only(&world.look(later(SECOND_US, 0)));
    let jumped = later(SECOND_US, 5 * SECOND_US);
    assert!(world.wall.believe(jumped).jumped);
    assert!(!world.look(jumped).is_renewed);
    assert!(!world.wall.believe(jumped).jumped);
    world.end(&before, Ok(()), jumped);
    assert_eq!(world.granted(), Position(0), "it was handed out before the jump");
    let after = only(&world.look(jumped));
    world.end(&after, failed(), jumped);
    assert_eq!((world.granted(), world.source.grant().generation()), (Position(0), 1));
    assert!(world.look(jumped).writes.is_empty(), "not before the pause is over");
    let retried = only(&world.look(later(2 * SECOND_US, 5 * SECOND_US)));
    world.end(&retried, Ok(()), jumped);
    assert_eq!((world.granted(), world.source.grant().generation()), (retried.ceilings[0].1, 1));
    assert!(world.look(later(2 * SECOND_US, 5 * SECOND_US)).is_renewed);
    assert!(!world.look(later(2 * SECOND_US, 5 * SECOND_US)).is_renewed, "once");
}

#[test]
fn a_grant_that_a_jump_took_comes_back_once_each_writer_has_written_after_it() {
    let mut world = World::new(2);
    world.settle(later(SECOND_US, 0));
    let jumped = later(SECOND_US, 5 * SECOND_US);
    let mut written = world.look(jumped).writes;
    written.extend(world.look(jumped).writes);
    let [one, other] = &written[..] else { panic!("{written:?}") };
    world.end(one, Ok(()), jumped).expect("it is in flight");
    assert_eq!(world.granted(), Position(0), "the other writer's ceiling is from before the jump");
    world.end(other, Ok(()), jumped).expect("it is in flight");
    assert_eq!((world.granted(), world.source.grant().generation()), (one.ceilings[0].1, 1));
}

#[test]
fn after_a_jump_no_ceiling_is_lower_than_one_that_was_durable() {
    let mut world = World::new(1);
    let durable = world.granted();
    world.settle(later(SECOND_US, -HOUR_US));
    assert_eq!(world.handed_out, [durable]);
    assert_eq!(world.granted(), durable);
}

/// Half a minute back: IDs stop, and flow again when the wall clock is `max_ahead` behind them.
#[test]
fn after_a_far_step_back_the_lead_shrinks_at_half_speed_and_no_sync_refuses_anybody() {
    const BACK_US: i64 = -30 * SECOND_US;
    for (takes_ms, is_idle) in [(0, false), (6, false), (6, true), (1_400, false), (1_400, true)] {
        let mut world = World::new(1);
        let mut thread = Thread::new(takes_ms);
        let mut rng = fastrand::Rng::with_seed(1);
        let mut flows_since = None;
        let mut raises = 0;
        for ms in 0..75_000 {
            let is_back = ms >= 15_000;
            let reading = later(ms * 1_000, if is_back { BACK_US } else { 0 });
            thread.run(&mut world, reading);
            let now = world.wall.believe(reading);
            let is_asked = !is_back || !is_idle || ms > 35_000;
            let window = world.source.window(now);
            let left = world.source.left(&window);
            if is_asked && left > 0 {
                world.source.claim(&window, left, &mut rng).expect("nobody else claims");
            }
            if !is_back || !is_asked || matches!(window.bound, Bound::Standing(_)) {
                assert_eq!(flows_since, None, "{takes_ms} ms a write: refused at {ms}");
                continue;
            }
            // A jump takes the grant away until a ceiling is written. The clock stands for longer
            // than that.
            assert_eq!(window.bound, Bound::Clock, "{takes_ms} ms a write: IDs wait for a ceiling at {ms}");
            let &mut (since_ms, before) = flows_since.get_or_insert((ms, world.handed_out.len()));
            raises = world.handed_out.len() - before;
            let lead_ms = (window.id_time.0 - now.wall.0) / 1_000;
            let expected_ms = (10_000 - (ms - since_ms) / 2).max(0);
            assert!((lead_ms - expected_ms).abs() <= 2, "{takes_ms} ms a write: {lead_ms} ms ahead at {ms}");
        }
        let (since_ms, _) = flows_since.expect("IDs flow again");
        assert!((34_990..35_010).contains(&since_ms), "IDs flow from {since_ms} on");
        assert!((15..=45).contains(&raises), "{takes_ms} ms a write: {raises} raises in 40 s");
    }
}

/// After kill -9 another worker ID starts above what is stored of the ID clock. The source starts
/// at the clock, or above it as after a crash. Then the wall clock goes back, and is slewed until
/// it is right again.
#[test]
fn the_id_clock_stays_below_what_is_stored_of_it() {
    for ahead_us in [0, 2 * SECOND_US] {
        let mut world = World::of(vec![managed(ahead_us)], &[Reach::Local]);
        let now = world.wall.believe(START);
        let mut stored_us = id_minus_boot_us(&[managed(ahead_us)], world.wall.carried_us(), now);
        assert!(stored_us - START.offset_us() <= ahead_us.max(100_000), "no more than it needs");
        for ms in (0..25_000).step_by(10) {
            let step_us = if ms < 6_000 { 0 } else { (-1_500_000 + (ms - 6_000) * 90).min(0) };
            let reading = later(ms * 1_000, step_us);
            for write in &world.look(reading).writes {
                world.end(write, Ok(()), reading).expect("it is in flight");
                stored_us = write.id_minus_boot_us;
            }
            let window = world.source.window(world.wall.believe(reading));
            if world.source.claim(&window, 1, &mut fastrand::Rng::with_seed(1)).is_some() {
                let reached_us = window.id_time.0 - reading.boot.0;
                assert!(reached_us <= stored_us, "{ahead_us}, {ms} ms: {reached_us} of {stored_us}");
            }
        }
        assert_eq!(stored_us - START.offset_us(), 100_000, "the wall clock is right, and has caught up");
    }
}
