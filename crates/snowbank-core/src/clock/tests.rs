use proptest::prelude::*;

use super::*;

const SECOND_US: i64 = 1_000_000;
const RULE: StepRule = StepRule { max_step: Duration::from_secs(60), step_hold: Duration::from_secs(60) };
const START: Reading =
    Reading { wall: UnixMicros(1_800_000_000 * SECOND_US), boot: BootMicros(500 * SECOND_US) };
const MAX_AHEAD: Duration = Duration::from_secs(10);

/// A reading `after_us` later, with the wall clock off by `step_us`.
fn later(after_us: i64, step_us: i64) -> Reading {
    Reading { wall: UnixMicros(START.wall.0 + after_us + step_us), boot: BootMicros(START.boot.0 + after_us) }
}

fn watched() -> (Wall, StepWatch) {
    let wall = Wall::new(RULE, START, Remembered::Nothing);
    let watch = StepWatch::new(&wall, START);
    (wall, watch)
}

#[test]
fn a_small_step_forward_is_believed_at_once() {
    let (wall, mut watch) = watched();
    let stepped = later(SECOND_US, 60 * SECOND_US);
    assert_eq!(wall.believe(stepped).wall, stepped.wall);
    assert_eq!(watch.observe(&wall, stepped), Observed::Steady);
}

#[test]
fn a_large_step_forward_is_followed_at_the_boot_clocks_pace_until_it_has_lasted() {
    let (wall, mut watch) = watched();
    let hour_us = 3_600 * SECOND_US;
    for second in 1..=60 {
        let reading = later(second * SECOND_US, hour_us);
        assert_eq!(wall.believe(reading).wall, later(second * SECOND_US, 0).wall, "after {second} s");
        let observed = watch.observe(&wall, reading);
        assert!(matches!(observed, Observed::Held(step) if micros(step) == hour_us), "{observed:?}");
    }
    let reading = later(61 * SECOND_US, hour_us);
    assert!(matches!(watch.observe(&wall, reading), Observed::Believed(_)));
    assert_eq!(wall.believe(reading).wall, reading.wall);
    assert_eq!(watch.observe(&wall, later(62 * SECOND_US, hour_us)), Observed::Steady);
}

#[test]
fn a_step_that_goes_away_starts_its_hold_anew() {
    let (wall, mut watch) = watched();
    let hour_us = 3_600 * SECOND_US;
    for second in 1..=59 {
        watch.observe(&wall, later(second * SECOND_US, hour_us));
    }
    assert_eq!(watch.observe(&wall, later(60 * SECOND_US, 0)), Observed::Steady);
    assert!(matches!(watch.observe(&wall, later(61 * SECOND_US, hour_us)), Observed::Held(_)));
    assert!(matches!(watch.observe(&wall, later(120 * SECOND_US, hour_us)), Observed::Held(_)));
    assert!(matches!(watch.observe(&wall, later(121 * SECOND_US, hour_us)), Observed::Believed(_)));
}

#[test]
fn a_wall_clock_that_went_back_and_comes_back_is_believed_at_once() {
    let (wall, mut watch) = watched();
    for second in 1..=600 {
        let back = later(second * SECOND_US, -3_600 * SECOND_US);
        assert_eq!(wall.believe(back).wall, back.wall, "a step back is believed at once");
        assert!(matches!(watch.observe(&wall, back), Observed::Behind(_)));
    }
    let returned = later(601 * SECOND_US, 0);
    assert_eq!(wall.believe(returned).wall, returned.wall);
    assert_eq!(watch.observe(&wall, returned), Observed::Steady);
}

#[test]
fn a_wall_clock_that_stood_and_comes_back_is_believed_at_once() {
    let (wall, mut watch) = watched();
    for second in 1..=600 {
        let standing = later(second * SECOND_US, -second * SECOND_US);
        assert_eq!(watch.observe(&wall, standing), Observed::Behind(Duration::from_secs(second as u64)));
        assert_eq!(wall.carried_us(), START.offset_us(), "a clock that stands changes no belief");
    }
    let returned = later(601 * SECOND_US, 0);
    assert_eq!(wall.believe(returned).wall, returned.wall);
    assert_eq!(watch.observe(&wall, returned), Observed::Steady);
}

#[test]
fn a_wall_clock_that_went_back_over_a_restart_and_comes_back_is_believed_at_once() {
    let back = |after_us| later(after_us, -3_600 * SECOND_US);
    let wall = Wall::new(RULE, back(0), Remembered::Offset(START.offset_us()));
    let mut watch = StepWatch::new(&wall, back(0));
    for second in 1..=600 {
        assert!(matches!(watch.observe(&wall, back(second * SECOND_US)), Observed::Behind(_)));
    }
    let returned = later(601 * SECOND_US, 0);
    assert_eq!(wall.believe(returned).wall, returned.wall);
    assert_eq!(watch.observe(&wall, returned), Observed::Steady);
}

#[test]
fn a_wall_clock_that_was_slow_after_a_boot_is_believed_once_it_shows_what_was_granted() {
    let hour_us = 3_600 * SECOND_US;
    let slow = |after_us| later(after_us, -hour_us);
    let started = || {
        let wall = Wall::new(RULE, slow(0), Remembered::GrantedUntil(START.wall));
        let watch = StepWatch::new(&wall, slow(0));
        (wall, watch)
    };
    let (wall, mut watch) = started();
    for second in 1..=600 {
        let slow = slow(second * SECOND_US);
        assert_eq!(wall.believe(slow).wall, slow.wall, "what it shows is believed");
        let behind = Observed::Behind(Duration::from_micros((hour_us - second * SECOND_US) as u64));
        assert_eq!(watch.observe(&wall, slow), behind);
    }
    let right = later(601 * SECOND_US, 0);
    assert_eq!(wall.believe(right).wall, right.wall);
    assert_eq!(watch.observe(&wall, right), Observed::Steady);
    assert!(matches!(watch.observe(&wall, later(602 * SECOND_US, hour_us)), Observed::Held(_)));

    // A grant proves no more than its own time, so a step far beyond it is held there.
    let (wall, mut watch) = started();
    let beyond = later(SECOND_US, hour_us);
    assert!(matches!(watch.observe(&wall, beyond), Observed::Held(step) if micros(step) == hour_us));
    assert_eq!(wall.believe(beyond).wall, later(SECOND_US, 0).wall);
    // The machine was also off for longer than `max_step`: nothing proves the time.
    let wall = Wall::new(RULE, slow(0), Remembered::GrantedUntil(slow(-61 * SECOND_US).wall));
    assert_eq!(wall.believe(slow(0)).wall, slow(0).wall);
    assert_eq!(wall.believe(later(SECOND_US, 0)).wall, slow(SECOND_US).wall, "held as ever");
}

#[test]
fn after_a_boot_the_first_reading_is_believed_if_it_is_above_what_was_granted() {
    let long_ago = UnixMicros(START.wall.0 - 86_400 * SECOND_US);
    let wall = Wall::new(RULE, START, Remembered::GrantedUntil(long_ago));
    assert_eq!(wall.believe(START).wall, START.wall);
    assert_eq!(StepWatch::new(&wall, START).observe(&wall, later(SECOND_US, 0)), Observed::Steady);
}

#[test]
fn a_ride_ends_when_the_wall_clock_has_caught_up() {
    let at = |after_s: i64| {
        let reading = later(after_s * SECOND_US, 0);
        Now { wall: reading.wall, boot: reading.boot, jumped: false }
    };
    let catch_up = CatchUp::none();
    catch_up.raise_to(UnixMicros(START.wall.0 + 5 * SECOND_US), START.boot);
    catch_up.bound(at(9), MAX_AHEAD);
    assert!(id_time(at(9), &catch_up, MAX_AHEAD) > at(9).wall, "not caught up yet");
    catch_up.bound(at(10), MAX_AHEAD);
    let back = Now { wall: UnixMicros(START.wall.0), ..at(11) };
    assert_eq!(id_time(back, &catch_up, MAX_AHEAD), back.wall);
}

#[test]
fn a_frozen_wall_clock_is_behind() {
    let (wall, mut watch) = watched();
    let frozen = |after_us| later(after_us, -after_us);
    assert_eq!(watch.observe(&wall, frozen(SECOND_US)), Observed::Behind(Duration::from_secs(1)));
    watch.observe(&wall, later(2 * SECOND_US, 0));
    assert!(matches!(watch.observe(&wall, frozen(3 * SECOND_US)), Observed::Behind(_)));
}

#[test]
fn an_offset_remembered_from_before_a_restart_holds_a_step_over_it() {
    let hour_us = 3_600 * SECOND_US;
    let stepped = later(SECOND_US, hour_us);
    let wall = Wall::new(RULE, stepped, Remembered::Offset(START.offset_us()));
    assert_eq!(wall.believe(stepped).wall, later(SECOND_US, 0).wall);
    let wall = Wall::new(RULE, stepped, Remembered::Nothing);
    assert_eq!(wall.believe(stepped).wall, stepped.wall, "without a record the first reading is believed");
}

#[test]
fn the_ride_goes_on_at_half_speed_until_the_wall_clock_has_caught_up() {
    let catch_up = CatchUp::none();
    let now = |after_us, step_us| {
        let reading = later(after_us, step_us);
        Now { wall: reading.wall, boot: reading.boot, jumped: false }
    };
    assert_eq!(id_time(now(0, 0), &catch_up, MAX_AHEAD), START.wall, "nothing to ride");
    catch_up.raise_to(START.wall, START.boot);
    let back_us = -5 * SECOND_US;
    for (after, expected) in [(0, 0), (2, 1), (8, 4), (10, 5), (12, 7), (20, 15)] {
        let id_time = id_time(now(after * SECOND_US, back_us), &catch_up, MAX_AHEAD);
        assert_eq!(id_time.0 - START.wall.0, expected * SECOND_US, "{after} s after a step back by 5 s");
    }
}

#[test]
fn the_ride_stands_at_max_ahead() {
    let catch_up = CatchUp::none();
    catch_up.raise_to(START.wall, START.boot);
    let reading = later(0, -15 * SECOND_US);
    let now = Now { wall: reading.wall, boot: reading.boot, jumped: false };
    assert_eq!(id_time(now, &catch_up, MAX_AHEAD).0, START.wall.0 - 5 * SECOND_US);
    // It comes back at the speed of the wall clock, because the cap moves with it.
    assert_eq!(until(now, &catch_up, MAX_AHEAD, START.wall), Duration::from_secs(5));
}

/// The catch-up is lowered to `max_ahead`. From there on the ID clock runs at half speed, so its
/// lead shrinks.
#[test]
fn a_ride_that_a_step_back_has_left_too_far_ahead_is_lowered() {
    let catch_up = CatchUp::none();
    catch_up.raise_to(START.wall, START.boot);
    let now = |after_us| {
        let reading = later(after_us, -15 * SECOND_US);
        Now { wall: reading.wall, boot: reading.boot, jumped: false }
    };
    catch_up.bound(now(0), MAX_AHEAD);
    for (after, ahead) in [(0, 10), (2, 9), (10, 5), (20, 0)] {
        let now = now(after * SECOND_US);
        assert_eq!(id_time(now, &catch_up, MAX_AHEAD).0 - now.wall.0, ahead * SECOND_US, "after {after} s");
    }
}

#[test]
fn a_lower_base_does_not_lower_the_ride() {
    let catch_up = CatchUp::none();
    catch_up.raise_to(START.wall, START.boot);
    catch_up.raise_to(UnixMicros(0), START.boot);
    let reading = later(0, -SECOND_US);
    assert_eq!(
        id_time(Now { wall: reading.wall, boot: reading.boot, jumped: false }, &catch_up, MAX_AHEAD),
        START.wall
    );
}

proptest! {
    /// `until` returns exactly the time at which `id_time` gets there.
    #[test]
    fn until_agrees_with_the_id_clock(
        back_us in -20 * SECOND_US..20 * SECOND_US,
        target_us in -20 * SECOND_US..20 * SECOND_US,
        rides: bool,
    ) {
        let catch_up = CatchUp::none();
        if rides {
            catch_up.raise_to(START.wall, START.boot);
        }
        let reading = later(0, -back_us);
        let now = Now { wall: reading.wall, boot: reading.boot, jumped: false };
        let target = UnixMicros(START.wall.0 + target_us);
        let wait = until(now, &catch_up, MAX_AHEAD, target);
        prop_assert!(id_time(now.after(wait), &catch_up, MAX_AHEAD) >= target);
        // Half speed rounds to a microsecond.
        if wait > Duration::from_micros(2) {
            let before = now.after(wait - Duration::from_micros(2));
            prop_assert!(id_time(before, &catch_up, MAX_AHEAD) < target);
        }
    }

    /// With any readings, nothing overflows, and the ID clock is at most `max_ahead` ahead.
    #[test]
    fn any_reading_is_survived(walls: Vec<i64>, boots: Vec<i64>, base: i64) {
        let (wall, mut watch) = watched();
        let catch_up = CatchUp::none();
        for (&reading_wall, &boot) in walls.iter().zip(&boots) {
            let reading = Reading { wall: UnixMicros(reading_wall), boot: BootMicros(boot) };
            watch.observe(&wall, reading);
            let now = wall.believe(reading);
            catch_up.raise_to(UnixMicros(base), reading.boot);
            let id_time = id_time(now, &catch_up, MAX_AHEAD);
            prop_assert!(id_time.0.saturating_sub(now.wall.0) <= micros(MAX_AHEAD));
            prop_assert!(id_time >= now.wall);
            let _ = until(now, &catch_up, MAX_AHEAD, UnixMicros(base));
        }
    }
}

#[test]
fn clocks_that_jump_against_each_other_are_noticed_until_the_keeper_has_looked() {
    let (wall, _) = watched();
    for (step_us, jumped) in
        [(2 * SECOND_US, false), (-2 * SECOND_US, false), (2 * SECOND_US + 1, true), (-3 * SECOND_US, true)]
    {
        assert_eq!(wall.believe(later(SECOND_US, step_us)).jumped, jumped, "by {step_us} us");
    }
    let restored = later(SECOND_US, 3 * SECOND_US);
    wall.note_seen(restored);
    assert!(!wall.believe(restored).jumped);
}

#[test]
fn a_step_that_turns_into_a_step_back_starts_its_hold_anew() {
    let (wall, mut watch) = watched();
    let hour_us = 3_600 * SECOND_US;
    for second in 1..=30 {
        watch.observe(&wall, later(second * SECOND_US, hour_us));
    }
    assert!(matches!(watch.observe(&wall, later(31 * SECOND_US, -hour_us)), Observed::Behind(_)));
    assert!(matches!(watch.observe(&wall, later(32 * SECOND_US, hour_us)), Observed::Held(_)));
    assert!(matches!(watch.observe(&wall, later(91 * SECOND_US, hour_us)), Observed::Held(_)));
    assert!(matches!(watch.observe(&wall, later(92 * SECOND_US, hour_us)), Observed::Believed(_)));
}
