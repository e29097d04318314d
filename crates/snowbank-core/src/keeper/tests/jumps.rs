//! Jumps of the clocks and far steps: when grants are taken away, when the grants return, and with
//! which ceiling.

use super::*;

#[test]
fn only_ceilings_written_since_a_jump_are_granted() {
    let mut world = World::new();
    let before = only(&world.poll(later(SECOND_US, 0)));
    let jumped = later(SECOND_US, 5 * SECOND_US);
    assert!(world.wall.believe(jumped).jumped);
    assert!(!world.poll(jumped).is_renewed);
    assert!(!world.wall.believe(jumped).jumped);
    world.end(&before, Ok(()), jumped);
    assert_eq!(world.granted(), Position(0), "the write was handed out before the jump");
    let after = only(&world.poll(jumped));
    world.end(&after, failed(), jumped);
    assert_eq!((world.granted(), world.source.grant().generation()), (Position(0), 1));
    assert!(world.poll(jumped).writes.is_empty(), "no write before the pause is over");
    let retried = only(&world.poll(later(2 * SECOND_US, 5 * SECOND_US)));
    world.end(&retried, Ok(()), jumped);
    assert_eq!((world.granted(), world.source.grant().generation()), (retried.ceilings[0].1.ceiling, 1));
    assert!(world.poll(later(2 * SECOND_US, 5 * SECOND_US)).is_renewed);
    assert!(!world.poll(later(2 * SECOND_US, 5 * SECOND_US)).is_renewed, "reported once");
}

/// After kill -9, a start with another worker ID begins above the stored bound of ID time. Here the
/// source starts at the wall clock, or ahead of it as after a crash. Then the wall clock steps
/// back, and runs fast until it is right again.
#[test]
fn id_time_never_exceeds_its_stored_bound() {
    for ahead_us in [0, 2 * SECOND_US] {
        let mut world = World::of(vec![managed(ahead_us)], &[Reach::Local]);
        let now = world.wall.believe(START);
        let mut stored_us = id_minus_boot_us(&[managed(ahead_us)], world.wall.carried_us(), now);
        let stored_ahead_us = stored_us - START.offset_us();
        assert!((ahead_us..=ahead_us.max(100_000)).contains(&stored_ahead_us), "{stored_ahead_us}");
        for ms in (0..25_000).step_by(10) {
            let step_us = if ms < 6_000 { 0 } else { (-1_500_000 + (ms - 6_000) * 90).min(0) };
            let reading = later(ms * 1_000, step_us);
            for write in &world.poll(reading).writes {
                world.end(write, Ok(()), reading).expect("the write is in flight");
                stored_us = write.id_minus_boot_us;
            }
            let window = world.source.window(world.wall.believe(reading));
            if world.source.claim(&window, 1, &mut fastrand::Rng::with_seed(1)).is_some() {
                let reached_us = window.id_time.0 - reading.boot.0;
                assert!(reached_us <= stored_us, "{ahead_us}, {ms} ms: {reached_us} of {stored_us}");
            }
        }
        assert_eq!(stored_us - START.offset_us(), 100_000, "the wall clock has caught up");
    }
}

#[test]
fn a_ceiling_written_after_a_jump_is_no_lower_than_before() {
    let mut world = World::new();
    let durable = world.granted();
    world.settle(later(SECOND_US, -HOUR_US));
    assert_eq!(world.handed_out, [durable]);
    assert_eq!(world.granted(), durable);
}
