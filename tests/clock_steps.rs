//! The shipped daemon under a wall clock that is set back, set forward, or stands still. Connections ask
//! all the while and keep every ID; afterwards each ID is held against what the clock showed when it was asked for and
//! when it came, which is exact however busy the machine is.

mod support;

use std::time::{Duration, Instant};

use support::faketime::{FakeClock, Step, ms_between, true_unix_ms};
use support::ids::twitter_unix_ms;
use support::machine::Machine;
use support::wire::CLOCK_BEHIND;
use support::witness::{FLOOD, Load, MIXED, SPARSE, Sample, Testimony, Witness};
use support::{Ask, Daemon, records};

/// The most that IDs may lag behind the ID clock: `burst_window`'s default.
const BURST_WINDOW_MS: f64 = 10.0;
/// The most that IDs may be ahead of the wall clock: `max_ahead`'s default.
const MAX_AHEAD_MS: f64 = 10_000.0;
/// Clocks are read at some µs' distance here and in the daemon, shards there know of each other's readings to within a
/// millisecond, and ticks are whole milliseconds.
const TOLERANCE_MS: f64 = 2.0;
const HOUR_MS: i64 = 3_600_000;

/// A clock with an offset, in Unix ms.
fn wall(offset_ms: i64, moment: Instant) -> f64 {
    true_unix_ms(moment) + offset_ms as f64
}

fn tick(id: u64) -> f64 {
    twitter_unix_ms(id) as f64
}

/// Checks of each reply with IDs that their ticks lie between `low` when they were asked for, less the burst window, and
/// `high` when they came. Some there must be.
#[track_caller]
fn assert_ticks<'a>(
    what: &str,
    samples: impl Iterator<Item = &'a Sample>,
    low: impl Fn(Instant) -> f64,
    high: impl Fn(Instant) -> f64,
) {
    let mut count = 0;
    for sample in samples {
        let Some((first, last)) = sample.ids() else { continue };
        let (low, high) =
            (low(sample.asked) - BURST_WINDOW_MS - TOLERANCE_MS, high(sample.answered) + TOLERANCE_MS);
        let (first, last) = (tick(first), tick(last));
        assert!(first >= low, "{what}: tick {first} is {:.1} ms too old: {sample:?}", low - first);
        assert!(last <= high, "{what}: tick {last} is {:.1} ms too far ahead: {sample:?}", last - high);
        count += 1;
    }
    assert!(count > 0, "{what}: no IDs came");
}

/// Checks that IDs follow a clock with this offset.
#[track_caller]
fn assert_follows<'a>(what: &str, samples: impl Iterator<Item = &'a Sample>, offset_ms: i64) {
    assert_ticks(what, samples, |asked| wall(offset_ms, asked), |answered| wall(offset_ms, answered));
}

/// The bounds of the ID clock when the wall clock fell behind it: between the highest ID received before and the time that
/// the clock showed until then.
#[derive(Clone, Copy, Debug)]
struct Base {
    low_ms: f64,
    high_ms: f64,
    /// Between these two moments the ride began.
    earliest: Instant,
    latest: Instant,
}

impl Base {
    fn of_step(testimony: &Testimony, step: Step, offset_before_ms: i64) -> Base {
        let before = testimony.samples().filter(|sample| sample.answered <= step.before);
        let highest = before.filter_map(Sample::ids).map(|(_, last)| tick(last)).fold(0.0, f64::max);
        let after = testimony.samples().filter(|sample| sample.asked >= step.after);
        let latest = after.filter(|sample| sample.ids().is_some()).map(|sample| sample.answered).min();
        Base {
            low_ms: highest,
            high_ms: wall(offset_before_ms, step.after),
            earliest: step.before,
            latest: latest.unwrap_or(step.after),
        }
    }

    /// The least that the ID clock shows while it rides.
    fn low(&self, moment: Instant) -> f64 {
        self.low_ms + ms_between(self.latest, moment).max(0.0) / 2.0
    }

    /// The most.
    fn high(&self, moment: Instant) -> f64 {
        self.high_ms + ms_between(self.earliest, moment) / 2.0
    }

    /// Checks that IDs ride at half speed until a clock with this offset has caught up.
    #[track_caller]
    fn assert_catches_up<'a>(&self, what: &str, samples: impl Iterator<Item = &'a Sample>, offset_ms: i64) {
        assert_ticks(
            what,
            samples,
            |asked| self.low(asked).max(wall(offset_ms, asked)),
            |answered| self.high(answered).max(wall(offset_ms, answered)),
        );
    }

    /// Returns whether a refusal is one that a clock with this offset gives because IDs would be further ahead than `max_ahead`,
    /// with a time to wait that is enough and not more.
    fn allows(
        &self,
        sample: &Sample,
        code: u16,
        retry_after_ms: u32,
        offset_ms: i64,
        max_ahead_ms: f64,
    ) -> bool {
        let least = self.low_ms - max_ahead_ms - wall(offset_ms, sample.answered) - TOLERANCE_MS;
        let most = self.high_ms - max_ahead_ms - wall(offset_ms, sample.asked) + TOLERANCE_MS;
        let retry_after_ms = f64::from(retry_after_ms);
        code == CLOCK_BEHIND
            && sample.answered >= self.earliest
            && least <= retry_after_ms
            && retry_after_ms <= most + 1.0
    }
}

/// Waits until IDs are no longer ahead of the clock.
fn await_caught_up(witness: &Witness, clock: &FakeClock, since: Instant) {
    let offset_ms = clock.offset_ms();
    witness.await_each("the clock to catch up", since, |sample| {
        sample.ids().is_some_and(|(_, last)| tick(last) <= wall(offset_ms, sample.asked))
    });
    // IDs lag behind the ID clock, which may itself be ahead yet by as much.
    witness.await_time(Duration::from_millis(50));
}

fn watch(machine: &Machine, toml: &str, loads: &[Load]) -> (Daemon, Witness) {
    let daemon = machine.start(toml);
    let witness = Witness::of(&daemon, loads);
    witness.await_ids();
    witness.await_time(Duration::from_millis(100));
    (daemon, witness)
}

/// A daemon on a machine whose clock can be set, and connections that ask it.
struct Scene {
    machine: Machine,
    daemon: Daemon,
    witness: Witness,
}

impl Scene {
    /// `None` if no clock can be set here: the test was skipped.
    fn begin(toml: &str, loads: &[Load]) -> Option<Scene> {
        let machine = Machine::with_clock()?;
        let (daemon, witness) = watch(&machine, toml, loads);
        Some(Scene { machine, daemon, witness })
    }

    fn clock(&self) -> &FakeClock {
        self.machine.clock()
    }

    /// Ends the asking, and stops the daemon: what came, none of it twice and all of it in order, and until when.
    fn end(self) -> (Testimony, Instant) {
        let testimony = self.witness.stop();
        let end = Instant::now();
        self.daemon.stop();
        testimony.assert_unique_and_ordered();
        (testimony, end)
    }
}

/// The clock goes back by little, by much, and by as much as IDs may be ahead; then it comes back.
fn steps_back_are_ridden_out(toml: &str, loads: &[Load]) -> Option<Testimony> {
    let scene = Scene::begin(toml, loads)?;
    let (clock, witness) = (scene.clock(), &scene.witness);
    // Long enough that the ride of the start lies far behind: nothing but the step's own is to serve.
    witness.await_time(Duration::from_millis(1_500));
    let most = clock.step(-10_000);
    witness.await_time(Duration::from_millis(1_500));
    let back = clock.step(10_000);
    witness.await_ids();
    witness.await_time(Duration::from_millis(100));
    let little = clock.step(-5);
    await_caught_up(witness, clock, little.after);
    let second = clock.step(-1_000);
    await_caught_up(witness, clock, second.after);
    let (testimony, end) = scene.end();

    testimony.assert_no_refusal();
    let rides = [
        ("10 s", most, 0, -10_000, back.before),
        ("5 ms", little, 0, -5, second.before),
        ("1 s", second, -5, -1_005, end),
    ];
    for (what, step, before_ms, offset_ms, until) in rides {
        let base = Base::of_step(&testimony, step, before_ms);
        base.assert_catches_up(what, testimony.between(step.after, until), offset_ms);
        let at_most = |answered| wall(offset_ms, answered) + MAX_AHEAD_MS;
        assert_ticks(what, testimony.between(step.after, until), |_| 0.0, at_most);
    }
    assert_follows("the clock is back", testimony.between(back.after, little.before), 0);
    Some(testimony)
}

#[test]
fn steps_back_are_ridden_out_at_half_speed() {
    steps_back_are_ridden_out("shards = 2", &[MIXED, MIXED, SPARSE]);
}

#[test]
fn steps_back_keep_strict_order() {
    let toml = "shards = 2\norder = \"strict\"";
    if let Some(testimony) = steps_back_are_ridden_out(toml, &[MIXED, MIXED, MIXED, SPARSE]) {
        testimony.assert_strictly_ordered();
    }
}

#[test]
fn beyond_max_ahead_the_clock_is_waited_for() {
    let Some(scene) = Scene::begin("max_ahead = \"1s\"", &[MIXED, SPARSE]) else {
        return;
    };
    let (clock, witness) = (scene.clock(), &scene.witness);
    let step = clock.step(-1_600);
    witness.await_each("a refusal", step.after, |sample| sample.refusal().is_some());
    witness.await_ids();
    witness.await_time(Duration::from_millis(300));
    let (testimony, end) = scene.end();

    let base = Base::of_step(&testimony, step, 0);
    testimony.assert_refusals(|sample, code, wait_ms| base.allows(sample, code, wait_ms, -1_600, 1_000.0));
    let samples = testimony.between(step.after, end);
    // From when IDs flow again, the lead shrinks at half speed.
    let with_ids = testimony.between(step.after, end).filter(|sample| sample.ids().is_some());
    let flows_since = with_ids.map(|sample| sample.answered).min().expect("IDs flow again");
    let most_ahead = |answered| 1_000.0 - ms_between(flows_since, answered).max(0.0) / 2.0;
    assert_ticks("ahead", samples, |_| 0.0, |answered| wall(-1_600, answered) + most_ahead(answered));
    base.assert_catches_up("then", testimony.between(step.after, end), -1_600);
}

#[test]
fn an_hour_back_is_refused_until_the_clock_returns() {
    let Some(scene) = Scene::begin("", &[MIXED, SPARSE]) else { return };
    let (clock, witness) = (scene.clock(), &scene.witness);
    let away = clock.step(-HOUR_MS);
    witness.await_each("a refusal", away.after, |sample| sample.refusal().is_some());
    witness.await_time(Duration::from_millis(1_200));
    let back = clock.step(HOUR_MS);
    witness.await_each("IDs", back.after, |sample| sample.ids().is_some());
    witness.await_time(Duration::from_millis(100));
    let (testimony, end) = scene.end();

    let base = Base::of_step(&testimony, away, 0);
    testimony.assert_refusals(|sample, code, wait_ms| {
        sample.asked < back.after && base.allows(sample, code, wait_ms, -HOUR_MS, MAX_AHEAD_MS)
    });
    let served = testimony.between(away.after, back.before).find(|sample| sample.ids().is_some());
    assert!(served.is_none(), "an hour ahead of the clock: {served:?}");
    assert_follows("the clock is back", testimony.between(back.after, end), 0);
}

#[test]
fn a_far_step_forward_that_is_taken_back_is_never_followed() {
    let Some(scene) = Scene::begin("", &[MIXED, SPARSE]) else { return };
    let (clock, witness) = (scene.clock(), &scene.witness);
    let start = Instant::now();
    for by_ms in [HOUR_MS, 61_000] {
        clock.step(by_ms);
        witness.await_time(Duration::from_millis(1_500));
        clock.step(-by_ms);
        witness.await_time(Duration::from_millis(300));
    }
    let (testimony, end) = scene.end();

    testimony.assert_no_refusal();
    assert_follows("the old time", testimony.between(start, end), 0);
}

const QUICK_HOLD: &str = "[clock]\nstep_hold = \"2s\"";
const HOLD: Duration = Duration::from_secs(2);

#[test]
fn a_far_step_forward_that_lasts_is_followed() {
    let Some(scene) = Scene::begin(QUICK_HOLD, &[MIXED, SPARSE]) else { return };
    let (clock, witness) = (scene.clock(), &scene.witness);
    let away = clock.step(HOUR_MS);
    let is_followed = |sample: &Sample| {
        sample.ids().is_some_and(|(first, _)| tick(first) > wall(HOUR_MS / 2, sample.answered))
    };
    witness.await_each("the step to be followed", away.after, is_followed);
    let followed = Instant::now();
    witness.await_time(Duration::from_millis(100));
    let back = clock.step(-HOUR_MS);
    witness.await_each("a refusal", back.after, |sample| sample.refusal().is_some());
    let again = clock.step(HOUR_MS);
    witness.await_each("IDs", again.after, |sample| sample.ids().is_some());
    let (testimony, end) = scene.end();

    assert_follows("held", testimony.between(away.after, away.before + HOLD), 0);
    assert_follows("followed", testimony.between(followed, back.before), HOUR_MS);
    let base = Base::of_step(&testimony, back, HOUR_MS);
    testimony.assert_refusals(|sample, code, wait_ms| {
        sample.asked < again.after && base.allows(sample, code, wait_ms, 0, MAX_AHEAD_MS)
    });
    assert_follows("back again", testimony.between(again.after, end), HOUR_MS);
}

/// A jump of wall − boottime may be a restored snapshot: what was claimed ahead is dropped and the ceiling made durable again.
/// Requests wait for that, and none is refused.
#[test]
fn steps_forward_are_followed_at_once() {
    let Some(scene) = Scene::begin("", &[MIXED, MIXED, SPARSE]) else { return };
    let (clock, witness) = (scene.clock(), &scene.witness);
    let mut steps = Vec::new();
    for by_ms in [5, 1_900, 2_500, 30_000, 59_000] {
        steps.push((clock.step(by_ms), clock.offset_ms()));
        witness.await_ids();
        witness.await_time(Duration::from_millis(400));
    }
    let (testimony, end) = scene.end();

    testimony.assert_no_refusal();
    let ends = steps.iter().skip(1).map(|(step, _)| step.before).chain([end]);
    for ((step, offset_ms), end) in steps.iter().zip(ends) {
        assert_follows(&format!("{offset_ms} ms"), testimony.between(step.after, end), *offset_ms);
    }
}

#[test]
fn a_frozen_clock_does_not_stop_the_ids() {
    let Some(machine) = Machine::with_clock() else { return };
    let clock = machine.clock();
    let (daemon, few) = watch(&machine, "", &[SPARSE]);
    // Long enough that the ride of the start lies too far behind to serve in time.
    few.await_time(Duration::from_millis(2_500));
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

    testimony.assert_unique_and_ordered();
    testimony.assert_no_refusal();
    let base = Base::of_step(&testimony, stop, 0);
    // The reserve for bursts is used up first.
    let latest = base.latest + Duration::from_millis(100);
    let base = Base { high_ms: base.high_ms.max(stands_at), latest, ..base };
    let samples = testimony.between(stop.after, goes_on.before);
    assert_ticks("it stands", samples, |asked| base.low(asked), |answered| base.high(answered));
    assert_follows("it goes on", testimony.between(goes_on.after, end), 0);
}

#[test]
fn on_step_back_wait_refuses_until_the_clock_has_caught_up() {
    const BACK_MS: i64 = 2_500;
    let Some(scene) = Scene::begin("on_step_back = \"wait\"", &[MIXED, SPARSE]) else { return };
    let (clock, witness) = (scene.clock(), &scene.witness);
    // A start may ride. The keeper has seen that this is over; the line that it left would reach the IDs before the clock.
    witness.await_time(Duration::from_millis(1_200));
    let step = clock.step(-BACK_MS);
    witness.await_each("a refusal", step.after, |sample| sample.refusal().is_some());
    witness.await_ids();
    witness.await_time(Duration::from_millis(200));
    let (testimony, end) = scene.end();

    let base = Base::of_step(&testimony, step, 0);
    testimony.assert_refusals(|sample, code, wait_ms| base.allows(sample, code, wait_ms, -BACK_MS, 0.0));
    assert_follows("never ahead", testimony.between(step.after, end), -BACK_MS);
}

/// After a clean stop the clock must reach the last ID. A kill leaves a ceiling that may be the horizon ahead, as without a
/// step.
#[test]
fn on_step_back_wait_also_waits_for_a_clock_set_back_between_two_lives() {
    for (clean, back_ms, most_ahead_ms) in [(true, 3_000, 0.0), (false, 5_000, 3_003.0)] {
        let Some(machine) = Machine::with_clock() else { return };
        let toml = "on_step_back = \"wait\"";
        let (daemon, mut testimony, gap) =
            restart(&machine, toml, |machine| _ = machine.clock().step(-back_ms), clean);
        let witness = Witness::of(&daemon, &[MIXED, SPARSE]);
        witness.await_each("a refusal", gap.after, |sample| sample.refusal().is_some());
        witness.await_ids();
        witness.await_time(Duration::from_millis(200));
        let second = witness.stop();
        daemon.stop();

        second.assert_refusals(|_, code, wait_ms| code == CLOCK_BEHIND && i64::from(wait_ms) <= back_ms + 2);
        let high = |answered| wall(-back_ms, answered) + most_ahead_ms;
        assert_ticks(&format!("clean: {clean}"), second.samples(), |_| 0.0, high);
        testimony.connections.extend(second.connections);
        testimony.assert_unique_and_ordered();
    }
}

/// A crash leaves a ceiling that is ahead of a clock that never stepped. A start and a stop without a request change nothing
/// about that.
#[test]
fn on_step_back_wait_answers_at_once_after_a_crash_and_a_stop_in_which_nothing_was_used() {
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

#[test]
fn steps_at_the_ceiling_of_the_layout_refuse_nothing() {
    let toml = "shards = 2";
    let Some(scene) = Scene::begin(toml, &[FLOOD, FLOOD, FLOOD, FLOOD, MIXED, SPARSE]) else { return };
    let (clock, witness) = (scene.clock(), &scene.witness);
    let mut steps = Vec::new();
    for by_ms in [-5, 5, -300, 300, 3_000, -3_000, -5_000, 5_000, -50, -50, -50, -50] {
        let offset_ms = clock.offset_ms();
        steps.push((clock.step(by_ms), offset_ms.max(clock.offset_ms())));
        witness.await_ids();
        witness.await_time(Duration::from_millis(200));
    }
    let (testimony, end) = scene.end();

    testimony.assert_no_refusal();
    let highest_offset_ms = steps.iter().map(|(_, offset_ms)| *offset_ms).max().unwrap_or(0);
    let start = steps[0].0.before;
    assert_ticks(
        "at most max_ahead ahead, and never behind",
        testimony.between(start, end),
        |asked| wall(-5_000, asked),
        |answered| wall(highest_offset_ms, answered) + MAX_AHEAD_MS,
    );
}

/// One daemon after another on one machine, to which something happens between them. Gives what came of the first one, and
/// the moments between which it ended and the second one began.
fn restart(
    machine: &Machine,
    toml: &str,
    between: impl Fn(&Machine),
    clean: bool,
) -> (Daemon, Testimony, Step) {
    let (mut daemon, witness) = watch(machine, toml, &[MIXED, SPARSE]);
    // A clean stop refuses what comes later, which is not the matter here.
    let (testimony, ended) = if clean {
        let testimony = witness.stop();
        daemon.stop();
        (testimony, Instant::now())
    } else {
        daemon.kill();
        let ended = Instant::now();
        (witness.after_death(), ended)
    };
    testimony.assert_no_refusal();
    between(machine);
    let daemon = machine.start(toml);
    (daemon, testimony, Step { before: ended, after: Instant::now() })
}

#[test]
fn a_clock_set_back_between_two_lives_is_ridden_out_from_the_ceiling() {
    const HORIZON_MS: f64 = 3_000.0;
    for (clean, by_ms) in [(true, -1_500), (false, -1_500), (false, -6_000)] {
        let Some(machine) = Machine::with_clock() else { return };
        let (daemon, mut testimony, gap) =
            restart(&machine, "", |machine| _ = machine.clock().step(by_ms), clean);
        // The first one at once, where catching up would take longer: it may wait for its ceiling to be raised, no more.
        let first = daemon.connect().next(Ask::of(1).wait_ms(300)).ids()[0];
        let answered = Instant::now();
        let highest = testimony.samples().filter_map(Sample::ids).map(|(_, last)| last).max().unwrap_or(0);
        assert!(first > highest, "{first} after {highest} of the life before");
        let witness = Witness::of(&daemon, &[MIXED, MIXED]);
        witness.await_time(Duration::from_millis(1_200));
        let second = witness.stop();
        let end = Instant::now();
        second.assert_no_refusal();
        let base = Base {
            low_ms: tick(first),
            // A ceiling is raised each second, from what the clock shows then.
            high_ms: wall(0, gap.before) + if clean { 0.0 } else { HORIZON_MS + 1.0 },
            earliest: gap.before,
            latest: answered,
        };
        base.assert_catches_up(&format!("clean: {clean}"), second.between(gap.after, end), by_ms);
        testimony.connections.extend(second.connections);
        testimony.assert_unique_and_ordered();
        daemon.stop();
    }
}

/// Between two lives the clock is set back by an hour, and comes back while the second one runs: it is believed at once, for
/// so far time had come before. After a boot of the machine, too, whose own clock was slow until its time server set it right.
fn an_hour_back_between_two_lives_is_waited_for(is_booted: bool) {
    let Some(machine) = Machine::with_clock() else { return };
    let between = |machine: &Machine| {
        machine.clock().step(-HOUR_MS);
        if is_booted {
            records::edit(&machine.path("state"), |record| record["boot"] = "an earlier boot".into());
        }
    };
    let (daemon, mut testimony, gap) = restart(&machine, "", between, true);
    let witness = Witness::of(&daemon, &[MIXED, SPARSE]);
    witness.await_each("a refusal", gap.after, |sample| sample.refusal().is_some());
    witness.await_time(Duration::from_millis(500));
    let back = machine.clock().step(HOUR_MS);
    witness.await_each("IDs", back.after, |sample| sample.ids().is_some());
    let second = witness.stop();
    let end = Instant::now();
    daemon.stop();

    let highest = testimony.samples().filter_map(Sample::ids).map(|(_, last)| tick(last)).fold(0.0, f64::max);
    let base =
        Base { low_ms: highest, high_ms: wall(0, gap.before), earliest: gap.before, latest: gap.after };
    second.assert_refusals(|sample, code, wait_ms| {
        sample.asked < back.after && base.allows(sample, code, wait_ms, -HOUR_MS, MAX_AHEAD_MS)
    });
    assert_follows("the clock is back", second.between(back.after, end), 0);
    testimony.connections.extend(second.connections);
    testimony.assert_unique_and_ordered();
}

#[test]
fn a_clock_set_back_by_an_hour_between_two_lives_is_waited_for() {
    an_hour_back_between_two_lives_is_waited_for(false);
}

#[test]
fn a_clock_that_was_slow_after_a_boot_is_believed_at_once_when_it_is_set_right() {
    an_hour_back_between_two_lives_is_waited_for(true);
}

#[test]
fn a_clock_set_forward_between_two_lives_is_held() {
    for clean in [true, false] {
        let Some(machine) = Machine::with_clock() else { return };
        let (daemon, mut testimony, gap) =
            restart(&machine, QUICK_HOLD, |machine| _ = machine.clock().step(HOUR_MS), clean);
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

        second.assert_no_refusal();
        // After a kill the ceiling is ahead of the old time, and IDs ride on from there.
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
    }
}
