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
