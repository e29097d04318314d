use proptest::prelude::*;

use super::*;

pub(crate) const SECOND_US: i64 = 1_000_000;
pub(crate) const RULE: StepRule =
    StepRule { max_step: Duration::from_secs(60), step_hold: Duration::from_secs(60) };
pub(crate) const START: Reading =
    Reading { wall: UnixMicros(1_800_000_000 * SECOND_US), boot: BootMicros(500 * SECOND_US) };
const MAX_AHEAD: Duration = Duration::from_secs(10);

/// Returns the reading `after_us` after the start, with the wall clock off by `step_us`.
pub(crate) fn later(after_us: i64, step_us: i64) -> Reading {
    Reading { wall: UnixMicros(START.wall.0 + after_us + step_us), boot: BootMicros(START.boot.0 + after_us) }
}

/// Returns the reading of [`later`] as one that is believed.
fn now(after_us: i64, step_us: i64) -> Now {
    let Reading { wall, boot } = later(after_us, step_us);
    Now { wall, boot, jumped: false }
}

fn watched() -> (Wall, StepWatch) {
    watched_from(START, Remembered::Nothing)
}

fn watched_from(first: Reading, remembered: Remembered) -> (Wall, StepWatch) {
    let wall = Wall::new(RULE, first, remembered);
    let watch = StepWatch::new(&wall, first);
    (wall, watch)
}

/// Returns a catch-up that begins at the wall clock of the start.
fn catch_up() -> CatchUp {
    let catch_up = CatchUp::none();
    catch_up.raise_to(START.wall, START.boot);
    catch_up
}

#[test]
fn a_large_step_forward_is_held_until_it_has_lasted() {
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
fn a_step_that_was_undone_is_held_again_in_full() {
    let hour_us = 3_600 * SECOND_US;
    for (then_us, expected) in
        [(0, Observed::Steady), (-hour_us, Observed::Behind(Duration::from_secs(3_599)))]
    {
        let (wall, mut watch) = watched();
        for second in 1..=59 {
            watch.observe(&wall, later(second * SECOND_US, hour_us));
        }
        assert_eq!(watch.observe(&wall, later(60 * SECOND_US, then_us)), expected);
        for second in [61, 120] {
            let held = watch.observe(&wall, later(second * SECOND_US, hour_us));
            assert!(matches!(held, Observed::Held(_)), "{second}: {held:?}");
        }
        assert!(matches!(watch.observe(&wall, later(121 * SECOND_US, hour_us)), Observed::Believed(_)));
    }
}

#[test]
fn a_remembered_offset_holds_a_step_made_before_the_start() {
    let hour_us = 3_600 * SECOND_US;
    let stepped = later(SECOND_US, hour_us);
    let wall = Wall::new(RULE, stepped, Remembered::Offset(START.offset_us()));
    assert_eq!(wall.believe(stepped).wall, later(SECOND_US, 0).wall);
    let wall = Wall::new(RULE, stepped, Remembered::Nothing);
    assert_eq!(wall.believe(stepped).wall, stepped.wall, "without a record, the first reading is believed");
}

#[test]
fn a_catch_up_runs_at_half_speed_until_the_wall_clock_meets_it() {
    assert_eq!(id_time(now(0, 0), &CatchUp::none(), MAX_AHEAD), START.wall, "there is no catch-up");
    let catch_up = catch_up();
    let back_us = -5 * SECOND_US;
    for (after, expected) in [(0, 0), (2, 1), (8, 4), (10, 5), (12, 7), (20, 15)] {
        let id_time = id_time(now(after * SECOND_US, back_us), &catch_up, MAX_AHEAD);
        assert_eq!(id_time.0 - START.wall.0, expected * SECOND_US, "{after} s after a step back by 5 s");
    }
}

proptest! {
    /// `until` returns, to within 2 µs, the time after which `id_time` reaches the target.
    #[test]
    fn until_agrees_with_the_id_clock(
        back_us in -20 * SECOND_US..20 * SECOND_US,
        target_us in -20 * SECOND_US..20 * SECOND_US,
        is_catching_up: bool,
    ) {
        let catch_up = if is_catching_up { catch_up() } else { CatchUp::none() };
        let now = now(0, -back_us);
        let target = UnixMicros(START.wall.0 + target_us);
        let wait = until(now, &catch_up, MAX_AHEAD, target);
        prop_assert!(id_time(now.after(wait), &catch_up, MAX_AHEAD) >= target);
        // Half of an odd number of microseconds is rounded.
        if wait > Duration::from_micros(2) {
            let before = now.after(wait - Duration::from_micros(2));
            prop_assert!(id_time(before, &catch_up, MAX_AHEAD) < target);
        }
    }

    /// With any readings, nothing overflows, and the ID clock is at most `max_ahead` ahead.
    #[test]
    fn any_reading_keeps_the_id_clock_within_max_ahead(walls: Vec<i64>, boots: Vec<i64>, base: i64) {
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
fn a_jump_of_the_clocks_is_reported_until_the_keepers_poll() {
    let (wall, _) = watched();
    for (step_us, jumped) in
        [(2 * SECOND_US, false), (-2 * SECOND_US, false), (2 * SECOND_US + 1, true), (-3 * SECOND_US, true)]
    {
        assert_eq!(wall.believe(later(SECOND_US, step_us)).jumped, jumped, "by {step_us} us");
    }
    let restored = later(SECOND_US, 3 * SECOND_US);
    wall.record_seen(restored);
    assert!(!wall.believe(restored).jumped);
}

/// There are three cases: the clock goes back, it stands still, or it went back before a restart.
#[test]
fn a_wall_clock_that_returns_from_behind_is_believed_at_once() {
    let hour_us = 3_600 * SECOND_US;
    let back = later(0, -hour_us);
    for (first, remembered, step_us, runs) in [
        (START, Remembered::Nothing, -hour_us, true),
        (START, Remembered::Nothing, 0, false),
        (back, Remembered::Offset(START.offset_us()), -hour_us, true),
    ] {
        let (wall, mut watch) = watched_from(first, remembered);
        for second in 1..=600 {
            let stood_us = if runs { 0 } else { second * SECOND_US };
            let behind = later(second * SECOND_US, step_us - stood_us);
            assert_eq!(wall.believe(behind).wall, behind.wall, "a step back is believed at once");
            let observed = watch.observe(&wall, behind);
            assert!(matches!(observed, Observed::Behind(_)), "{observed:?}");
            if !runs {
                assert_eq!(observed, Observed::Behind(Duration::from_secs(second as u64)));
                assert_eq!(wall.carried_us(), START.offset_us(), "the believed offset does not change");
            }
        }
        let returned = later(601 * SECOND_US, 0);
        assert_eq!(wall.believe(returned).wall, returned.wall);
        assert_eq!(watch.observe(&wall, returned), Observed::Steady);
    }
}

#[test]
fn a_clock_slow_after_a_boot_is_believed_up_to_the_granted_time() {
    let hour_us = 3_600 * SECOND_US;
    let slow = |after_us| later(after_us, -hour_us);
    let started = || watched_from(slow(0), Remembered::GrantedUntil(START.wall));
    let (wall, mut watch) = started();
    for second in 1..=600 {
        let slow = slow(second * SECOND_US);
        assert_eq!(wall.believe(slow).wall, slow.wall, "the slow clock's time is believed");
        let behind = Observed::Behind(Duration::from_micros((hour_us - second * SECOND_US) as u64));
        assert_eq!(watch.observe(&wall, slow), behind);
    }
    let right = later(601 * SECOND_US, 0);
    assert_eq!(wall.believe(right).wall, right.wall);
    assert_eq!(watch.observe(&wall, right), Observed::Steady);
    assert!(matches!(watch.observe(&wall, later(602 * SECOND_US, hour_us)), Observed::Held(_)));

    // A grant proves only that the time of its ceiling has come. So a step far beyond that time is
    // held, and the believed time runs on from there at normal speed.
    let (wall, mut watch) = started();
    let beyond = later(SECOND_US, hour_us);
    assert!(matches!(watch.observe(&wall, beyond), Observed::Held(step) if micros(step) == hour_us));
    assert_eq!(wall.believe(beyond).wall, later(SECOND_US, 0).wall);
    // Now the grant ended before the first reading, so it proves no later time.
    let wall = Wall::new(RULE, slow(0), Remembered::GrantedUntil(slow(-61 * SECOND_US).wall));
    assert_eq!(wall.believe(slow(0)).wall, slow(0).wall);
    assert_eq!(wall.believe(later(SECOND_US, 0)).wall, slow(SECOND_US).wall, "a step is held as usual");
}

#[test]
fn max_ahead_lowers_a_catch_up_and_the_wall_clock_ends_it() {
    let catch_up = catch_up();
    let back_us = -25 * SECOND_US;
    let found = |after: i64, step_us: i64| {
        (id_time(now(after * SECOND_US, step_us), &catch_up, MAX_AHEAD).0 - START.wall.0) / SECOND_US
    };
    catch_up.bound(now(0, back_us), MAX_AHEAD);
    assert_eq!(found(4, back_us), -13, "15 s below the start, plus half of 4 s");
    catch_up.bound(now(4 * SECOND_US, back_us), MAX_AHEAD);
    assert_eq!(found(4, back_us), -13, "the wall clock is still behind");
    catch_up.bound(now(40 * SECOND_US, back_us), MAX_AHEAD);
    assert_eq!(found(40, 2 * back_us), -10, "a second step back resumes no old catch-up");
}
