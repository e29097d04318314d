//! The daemon under a wall clock that is set back, set forward, or stands still. Connections
//! request IDs all the time. Afterwards a test compares each ID with the clock at its request and
//! at its reply. So the comparison is exact even on a busy machine.

pub(crate) mod evidence;

use std::time::{Duration, Instant};

use crate::support::Daemon;
use crate::support::faketime::{FakeClock, Step, ms_between, true_unix_ms};
use crate::support::ids::twitter_unix_ms;
use crate::support::machine::Machine;
use crate::support::poll;
use crate::support::wire::{Ask, CLOCK_BEHIND, NO_CEILING};
use crate::support::witness::{FLOOD, Load, MIXED, SPARSE, Sample, Testimony, Witness, play_until_fed};
use evidence::{Base, assert_follows, assert_ticks, await_caught_up, tick, wall};

/// The longest time by which IDs may lag behind the ID clock: the default of `burst_window`.
const BURST_WINDOW_MS: f64 = 10.0;
/// The longest time by which IDs may be ahead of the wall clock: the default of `max_ahead`.
const MAX_AHEAD_MS: f64 = 10_000.0;
/// The tolerance of each comparison. This process and the daemon read the clock some µs apart. Two
/// shards may use readings that are up to a millisecond apart, and ticks are whole milliseconds.
const TOLERANCE_MS: f64 = 2.0;

fn watch(machine: &Machine, toml: &str, loads: &[Load]) -> (Daemon, Witness) {
    let daemon = machine.start(toml);
    let witness = Witness::of(&daemon, loads);
    witness.await_ids();
    witness.await_time(Duration::from_millis(100));
    (daemon, witness)
}

/// A daemon on a machine whose clock can be set, and connections that request IDs from it.
struct Scene {
    machine: Machine,
    daemon: Daemon,
    witness: Witness,
}

impl Scene {
    /// Returns `None` and skips the test if no clock can be set on this machine.
    fn begin(toml: &str, loads: &[Load]) -> Option<Scene> {
        let machine = Machine::with_clock()?;
        let (daemon, witness) = watch(&machine, toml, loads);
        Some(Scene { machine, daemon, witness })
    }

    /// Plays the scene up to five times, until the machine serves every request in time. Skips the
    /// test if no clock can be set.
    fn play(toml: &str, loads: &[Load], act: impl Fn(Scene) -> Option<()>) {
        play_until_fed(|| Scene::begin(toml, loads).map_or(Some(()), &act));
    }

    /// Stops the requests and the daemon. Checks the replies for uniqueness and order, and returns
    /// them with the time at which the requests ended. Returns `None` if the machine was too busy
    /// to serve every request.
    fn end(self) -> Option<(Testimony, Instant)> {
        let testimony = self.witness.stop();
        let end = Instant::now();
        self.daemon.stop();
        Some((testimony.if_fed()?, end))
    }
}

/// The wall clock goes back by `max_ahead`, and is then set right again. After that it goes back by
/// 5 ms, and later by a second.
#[test]
fn ids_catch_up_at_half_speed_after_a_step_back() {
    Scene::play("shards = 2", &[MIXED, MIXED, SPARSE], |scene| {
        let clock = scene.machine.clock();
        let witness = &scene.witness;
        // After 4 s the catch-up of the start has ended. So the only catch-up below is the one that
        // the step begins.
        witness.await_time(Duration::from_millis(4_000));
        let most = clock.step(-10_000);
        witness.await_time(Duration::from_millis(1_500));
        let back = clock.step(10_000);
        witness.await_ids();
        witness.await_time(Duration::from_millis(100));
        let little = clock.step(-5);
        await_caught_up(witness, clock, little.after);
        let second = clock.step(-1_000);
        await_caught_up(witness, clock, second.after);
        let (testimony, end) = scene.end()?;

        testimony.assert_no_refusal();
        let rides = [
            ("10 s", most, 0, -10_000, back.before),
            ("5 ms", little, 0, -5, second.before),
            ("1 s", second, -5, -1_005, end),
        ];
        for (what, step, before_ms, offset_ms, until) in rides {
            let base = Base::from_step(&testimony, step, before_ms);
            base.assert_catches_up(what, testimony.between(step.after, until), offset_ms);
            let at_most = |answered| wall(offset_ms, answered) + MAX_AHEAD_MS;
            assert_ticks(what, testimony.between(step.after, until), |_| 0.0, at_most);
        }
        assert_follows("the clock is back", testimony.between(back.after, little.before), 0);
        Some(())
    });
}

#[test]
fn ids_stop_after_a_step_back_beyond_max_ahead() {
    /// The step back. It is long enough for a refusal even on a busy machine.
    const BACK_MS: i64 = 8_000;
    for (toml, max_ahead_ms) in [("max_ahead = \"1s\"", 1_000.0), ("on_step_back = \"wait\"", 0.0)] {
        Scene::play(toml, &[MIXED, SPARSE], |scene| {
            let clock = scene.machine.clock();
            let witness = &scene.witness;
            // A start may begin a catch-up, even with "wait". As long as the catch-up lasts, the
            // daemon hands out IDs ahead of the wall clock. After 4 s the keeper has ended the
            // catch-up.
            witness.await_time(Duration::from_millis(4_000));
            let step = clock.step(-BACK_MS);
            witness.await_each("a refusal", step.after, |sample| sample.refusal().is_some());
            witness.await_ids();
            witness.await_time(Duration::from_millis(300));
            let (testimony, end) = scene.end()?;

            let base = Base::from_step(&testimony, step, 0);
            testimony.assert_refusals(|sample, code, wait_ms| {
                base.allows(sample, code, wait_ms, -BACK_MS, max_ahead_ms)
            });
            // Once the daemon hands out IDs again, their lead over the wall clock shrinks at half
            // speed.
            let with_ids = testimony.between(step.after, end).filter(|sample| sample.ids().is_some());
            let flows_since = with_ids.map(|sample| sample.answered).min().expect("IDs flow again");
            let high = |answered| {
                let shrunk_ms = ms_between(flows_since, answered).max(0.0) / 2.0;
                wall(-BACK_MS, answered) + (max_ahead_ms - shrunk_ms).max(0.0)
            };
            assert_ticks(toml, testimony.between(step.after, end), |_| 0.0, high);
            base.assert_catches_up(toml, testimony.between(step.after, end), -BACK_MS);
            Some(())
        });
    }
}

/// If the wall clock jumps against the boot clock, the machine may have been restored from a
/// snapshot. So the daemon drops its blocks and makes its ceilings durable again. While it does so,
/// requests wait, and none is refused.
#[test]
fn steps_forward_are_followed_at_once() {
    Scene::play("", &[MIXED, MIXED, SPARSE], |scene| {
        let clock = scene.machine.clock();
        let witness = &scene.witness;
        let mut steps = Vec::new();
        for by_ms in [5, 1_900, 2_500, 30_000, 59_000] {
            steps.push((clock.step(by_ms), clock.offset_ms()));
            witness.await_ids();
            witness.await_time(Duration::from_millis(400));
        }
        let (testimony, end) = scene.end()?;

        testimony.assert_no_refusal();
        let ends = steps.iter().skip(1).map(|(step, _)| step.before).chain([end]);
        for ((step, offset_ms), end) in steps.iter().zip(ends) {
            assert_follows(&format!("{offset_ms} ms"), testimony.between(step.after, end), *offset_ms);
        }
        Some(())
    });
}

#[test]
fn a_frozen_clock_does_not_stop_the_ids() {
    play_until_fed(|| {
        let Some(machine) = Machine::with_clock() else { return Some(()) };
        let clock = machine.clock();
        let (daemon, few) = watch(&machine, "", &[SPARSE]);
        // After 5 s the catch-up of the start has ended. So the only catch-up below is the one that
        // begins because the clock stands still.
        few.await_time(Duration::from_millis(5_000));
        let (stop, stands_at) = clock.stop();
        let many = Witness::of(&daemon, &[FLOOD, MIXED, MIXED]);
        many.await_time(Duration::from_millis(1_500));
        let goes_on = clock.set(0);
        many.await_ids();
        many.await_time(Duration::from_millis(100));
        let mut testimony = many.stop();
        testimony.connections.extend(few.stop().connections);
        let end = Instant::now();
        daemon.stop();

        let testimony = testimony.if_fed()?;
        testimony.assert_no_refusal();
        let base = Base::from_step(&testimony, stop, 0);
        // The catch-up may begin later, because the daemon first hands out the burst window's
        // unused ticks.
        let latest = base.latest + Duration::from_millis(100);
        let base = Base { high_ms: base.high_ms.max(stands_at), latest, ..base };
        let samples = testimony.between(stop.after, goes_on.before);
        assert_ticks("the clock stands", samples, |asked| base.low(asked), |answered| base.high(answered));
        assert_follows("the clock runs again", testimony.between(goes_on.after, end), 0);
        Some(())
    });
}

#[test]
fn a_forward_step_after_a_kill_is_held_for_step_hold() {
    /// The hold is long enough that even a busy machine hands out IDs of the old time.
    const HOLD: Duration = Duration::from_secs(6);
    const TOML: &str = "[clock]\nstep_hold = \"6s\"";
    const HOUR_MS: i64 = 3_600_000;
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
        // After a kill the ceiling is ahead of the old time, and the catch-up starts at the
        // ceiling.
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

/// Another machine may have had the worker ID until the new time, if that is right. If it is wrong, what is
/// written by it would last.
#[test]
fn a_worker_id_that_the_last_run_had_not_waits_until_a_step_is_judged() {
    const DAY_MS: i64 = 86_400_000;
    for (hold, is_right) in [("3s", true), ("1h", false)] {
        let toml = |worker_ids| format!("worker_ids = {worker_ids}\n[clock]\nstep_hold = {hold:?}");
        let Some(machine) = Machine::with_clock() else { return };
        let daemon = machine.start(&toml(1));
        daemon.connect().next(Ask::of(1)).runs();
        daemon.stop();
        machine.clock().step(DAY_MS);
        let daemon = machine.start(&toml(2));
        daemon.assert_logs("hands out nothing: source \"default\": the clock jumped ahead to ");
        let (code, _, text) = daemon.connect().next(Ask::of(1).wait_ms(0)).error();
        assert!(code == NO_CEILING && text.contains("the clock jumped ahead"), "{text}");
        if !is_right {
            machine.clock().step(-DAY_MS);
        }
        let id = poll("an ID", || {
            let reply = daemon.connect().next(Ask::of(1).wait_ms(0));
            reply.id_count().map(|_| reply.runs()[0].first)
        });
        let ahead_ms = twitter_unix_ms(id) as i64 - true_unix_ms(Instant::now()) as i64;
        assert_eq!(ahead_ms > DAY_MS / 2, is_right, "{ahead_ms}");
        daemon.stop();
    }
}
