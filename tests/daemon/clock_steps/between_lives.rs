//! Clocks that are set while no daemon runs.

use super::*;

/// After a clean stop the clock must reach the last ID. A kill leaves a ceiling that may be a
/// horizon ahead, with or without a step.
#[test]
fn on_step_back_wait_waits_after_a_step_between_two_lives() {
    // Far enough back to see a refusal on busy machines.
    const BACK_MS: i64 = 8_000;
    each_case(&[(true, 0.0), (false, 3_003.0)], |&(clean, most_ahead_ms)| {
        play_until_fed(|| {
            let Some(machine) = Machine::with_clock() else { return Some(()) };
            let toml = "on_step_back = \"wait\"";
            let (daemon, mut testimony, gap) =
                restart(&machine, toml, |machine| _ = machine.clock().step(-BACK_MS), clean)?;
            let witness = Witness::of(&daemon, &[MIXED, SPARSE]);
            witness.await_each("a refusal", gap.after, |sample| sample.refusal().is_some());
            witness.await_ids();
            witness.await_time(Duration::from_millis(200));
            let second = witness.stop();
            daemon.stop();

            let second = second.if_fed()?;
            second.assert_refusals(|_, code, wait_ms| {
                code == CLOCK_BEHIND && i64::from(wait_ms) <= BACK_MS + 2
            });
            let high = |answered| wall(-BACK_MS, answered) + most_ahead_ms;
            assert_ticks(&format!("clean: {clean}"), second.samples(), |_| 0.0, high);
            testimony.connections.extend(second.connections);
            testimony.assert_unique_and_ordered();
            Some(())
        });
    });
}

/// A crash leaves a ceiling ahead of a clock that never stepped. A start and a stop without a
/// request do not change that.
#[test]
fn on_step_back_wait_answers_at_once_after_an_unused_life() {
    let machine = Machine::new();
    let start = || machine.setup("on_step_back = \"wait\"").start();
    let mut daemon = start();
    let first = daemon.connect().next(Ask::of(1)).ids()[0];
    daemon.kill();
    for _ in 0..2 {
        start().stop();
    }
    assert!(start().connect().next(Ask::of(1)).ids()[0] > first);
}

/// Runs a daemon, then `between`, and starts another daemon on the same machine. Returns the
/// replies of the first one, and the moments of its end and of the start; `None` if a request
/// waited in vain.
fn restart(
    machine: &Machine,
    toml: &str,
    between: impl Fn(&Machine),
    clean: bool,
) -> Option<(Daemon, Testimony, Step)> {
    let (mut daemon, witness) = watch(machine, toml, &[MIXED, SPARSE]);
    // A clean stop refuses requests, so they end before it.
    let (testimony, ended) = if clean {
        let testimony = witness.stop();
        daemon.stop();
        (testimony, Instant::now())
    } else {
        daemon.kill();
        let ended = Instant::now();
        (witness.after_death(), ended)
    };
    let testimony = testimony.if_fed()?;
    testimony.assert_no_refusal();
    between(machine);
    let daemon = machine.start(toml);
    Some((daemon, testimony, Step { before: ended, after: Instant::now() }))
}

#[test]
fn ids_catch_up_after_a_clock_set_back_between_two_lives() {
    const HORIZON_MS: f64 = 3_000.0;
    each_case(&[(true, -1_500), (false, -1_500), (false, -6_000)], |&(clean, by_ms)| {
        play_until_fed(|| {
            let Some(machine) = Machine::with_clock() else { return Some(()) };
            let (daemon, mut testimony, gap) =
                restart(&machine, "", |machine| _ = machine.clock().step(by_ms), clean)?;
            // The first ID comes at once, although the wall clock needs longer to catch up. It may
            // wait for its ceiling to be raised, and for nothing else.
            let first = daemon.connect().next_once_granted(Ask::of(1).wait_ms(1_000)).ids()[0];
            let answered = Instant::now();
            let highest =
                testimony.samples().filter_map(Sample::ids).map(|(_, last)| last).max().unwrap_or(0);
            assert!(first > highest, "{first} after {highest} of the life before");
            let witness = Witness::of(&daemon, &[MIXED, MIXED]);
            witness.await_time(Duration::from_millis(1_200));
            let second = witness.stop();
            let end = Instant::now();
            let second = second.if_fed()?;
            second.assert_no_refusal();
            let base = Base {
                low_ms: tick(first),
                // A ceiling is raised each second, from the clock's time then.
                high_ms: wall(0, gap.before) + if clean { 0.0 } else { HORIZON_MS + 1.0 },
                earliest: gap.before,
                latest: answered,
            };
            base.assert_catches_up(&format!("clean: {clean}"), second.between(gap.after, end), by_ms);
            testimony.connections.extend(second.connections);
            testimony.assert_unique_and_ordered();
            daemon.stop();
            Some(())
        });
    });
}

/// Between two lives the clock is set back by an hour, and it returns while the second life runs.
/// It is believed at once, because time had come that far before. The same holds after a boot whose
/// clock was slow until its time server corrected it.
fn an_hour_back_between_two_lives_is_waited_for(is_booted: bool) {
    play_until_fed(|| {
        let Some(machine) = Machine::with_clock() else { return Some(()) };
        let between = |machine: &Machine| {
            machine.clock().step(-HOUR_MS);
            if is_booted {
                records::edit(&machine.path("state"), |record| record["boot"] = "an earlier boot".into());
            }
        };
        let (daemon, mut testimony, gap) = restart(&machine, "", between, true)?;
        let witness = Witness::of(&daemon, &[MIXED, SPARSE]);
        witness.await_each("a refusal", gap.after, |sample| sample.refusal().is_some());
        witness.await_time(Duration::from_millis(500));
        let back = machine.clock().step(HOUR_MS);
        witness.await_each("IDs", back.after, |sample| sample.ids().is_some());
        let second = witness.stop();
        let end = Instant::now();
        daemon.stop();

        let highest =
            testimony.samples().filter_map(Sample::ids).map(|(_, last)| tick(last)).fold(0.0, f64::max);
        let base =
            Base { low_ms: highest, high_ms: wall(0, gap.before), earliest: gap.before, latest: gap.after };
        let second = second.if_fed()?;
        second.assert_refusals(|sample, code, wait_ms| {
            sample.asked < back.after && base.allows(sample, code, wait_ms, -HOUR_MS, MAX_AHEAD_MS)
        });
        assert_follows("the clock is back", second.between(back.after, end), 0);
        testimony.connections.extend(second.connections);
        testimony.assert_unique_and_ordered();
        Some(())
    });
}

#[test]
fn a_clock_set_back_by_an_hour_between_two_lives_is_waited_for() {
    each_case(&[false, true], |&is_booted| an_hour_back_between_two_lives_is_waited_for(is_booted));
}

#[test]
fn a_clock_set_forward_between_two_lives_is_held() {
    each_case(&[true, false], |&clean| {
        play_until_fed(|| {
            let Some(machine) = Machine::with_clock() else { return Some(()) };
            let (daemon, mut testimony, gap) =
                restart(&machine, QUICK_HOLD, |machine| _ = machine.clock().step(HOUR_MS), clean)?;
            let witness = Witness::of(&daemon, &[MIXED, SPARSE]);
            let is_followed = |sample: &Sample| {
                sample.ids().is_some_and(|(first, _)| tick(first) > wall(HOUR_MS / 2, sample.answered))
            };
            witness.await_each("the step to be followed", gap.after, is_followed);
            let followed = Instant::now();
            witness.await_time(Duration::from_millis(50));
            let second = witness.stop();
            let end = Instant::now();
            daemon.stop();

            let second = second.if_fed()?;
            second.assert_no_refusal();
            // After a kill the ceiling is ahead of the old time, and IDs catch up from there.
            let ahead_ms = if clean { 0.0 } else { 3_000.0 };
            assert_ticks(
                "held",
                second.between(gap.after, gap.before + HOLD),
                |asked| wall(0, asked),
                |answered| wall(0, answered) + ahead_ms,
            );
            assert_follows("followed", second.between(followed, end), HOUR_MS);
            testimony.connections.extend(second.connections);
            testimony.assert_unique_and_ordered();
            Some(())
        });
    });
}
