//! A clock that is set while no daemon runs.

use super::*;

/// Long enough to see IDs of the old time on busy machines.
const HOLD: Duration = Duration::from_secs(6);
const TOML: &str = "[clock]\nstep_hold = \"6s\"";
const HOUR_MS: i64 = 3_600_000;

#[test]
fn a_clock_set_forward_after_a_kill_is_held() {
    play_until_fed(|| {
        let Some(machine) = Machine::with_clock() else { return Some(()) };
        let (mut daemon, witness) = watch(&machine, TOML, &[MIXED, SPARSE]);
        daemon.kill();
        let killed = Instant::now();
        let mut testimony = witness.after_death().if_fed()?;
        testimony.assert_no_refusal();
        machine.clock().step(HOUR_MS);
        let daemon = machine.start(TOML);
        let started = Instant::now();
        let witness = Witness::of(&daemon, &[MIXED, SPARSE]);
        let is_followed = |sample: &Sample| {
            sample.ids().is_some_and(|(first, _)| tick(first) > wall(HOUR_MS / 2, sample.answered))
        };
        witness.await_each("the step to be followed", started, is_followed);
        let followed = Instant::now();
        witness.await_time(Duration::from_millis(50));
        let second = witness.stop();
        let end = Instant::now();
        daemon.stop();

        let second = second.if_fed()?;
        second.assert_no_refusal();
        // After a kill the ceiling is ahead of the old time, and IDs catch up from there.
        assert_ticks(
            "held",
            second.between(started, killed + HOLD),
            |asked| wall(0, asked),
            |answered| wall(0, answered) + 3_000.0,
        );
        assert_follows("followed", second.between(followed, end), HOUR_MS);
        testimony.connections.extend(second.connections);
        testimony.assert_unique_and_ordered();
        Some(())
    });
}
