//! Simulated machines under the shipped judge: sound targets and bad ones, with stalls of each kind.
//!
//! A machine has two cores, and a generator thread on each. The target, or the echo, runs on one of them. A
//! seed decides everything, so a test that fails names it.

use std::time::Duration;

use super::{MAX_ROUNDS, Rounds, until_sure};
use crate::machine::stalls::{MIN_STALL_NS, StallSum, Stalls};
use crate::machine::stop_of_core;
use crate::machine::threads::{OwnWaits, Threads};
use crate::measure::disturbed::Slow;
use crate::promise::Promise;
use crate::run::{CannotRun, Collected, Outcome};
use crate::scenario::{Drive, Length, Scenario};
use crate::schedule::Arrivals;
use crate::target::NoTarget;
use crate::value::Rate;
use crate::verdict::{Latency, Objectives, Verdict};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;

/// Requests of all connections are due at this distance.
const STEP_NS: u64 = 200 * US;

const ROUND_NS: u64 = 2_000 * MS;

/// The interval at which the watch looks at the threads.
const LOOK_NS: u64 = 4 * MS;

/// The work of the generator for a request, and of the target.
const GENERATOR_NS: u64 = 10 * US;

/// The noise of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Noise {
    Quiet,
    /// The host stops both cores at once, and they resume at different instants.
    BothStopped,
    OneStopped,
    /// Another program takes a core.
    OneTaken,
    /// A core stops, and the watch does not notice.
    Hidden,
    /// The same in the first round alone, as if programs were built then.
    HiddenAtFirst,
}

#[derive(Debug, Clone, Copy)]
struct Target {
    work_ns: u64,
    /// The number of requests from one stall to the next.
    stalls_once_in: Option<u64>,
    /// The length of a stall.
    stall_ns: u64,
    /// True if it stalls in the first round alone.
    is_sound_then: bool,
    /// Threads of it run on both cores all the time.
    burns: bool,
}

const SOUND: Target =
    Target { work_ns: 20 * US, stalls_once_in: None, stall_ns: 5 * MS, is_sound_then: false, burns: false };
const STALLING: Target = Target { stalls_once_in: Some(1_000), ..SOUND };
const FREEZING_ONCE: Target =
    Target { stalls_once_in: Some(10_000), stall_ns: 300 * MS, is_sound_then: true, ..SOUND };
const BURNING: Target = Target { burns: true, ..SOUND };
const ECHO: Target = Target { work_ns: 5 * US, ..SOUND };

/// Times in which a core does not run the threads of the run: from, until.
type Gaps = Vec<(u64, u64)>;

struct Machine {
    cores: [Gaps; 2],
    /// True if something else ran on the core meanwhile.
    is_taken: bool,
    is_hidden: bool,
}

impl Machine {
    fn new(noise: Noise, target: Target, random: &mut fastrand::Rng) -> Self {
        let (is_taken, is_hidden) = (noise == Noise::OneTaken, noise == Noise::Hidden);
        let mut machine = Self { cores: [Vec::new(), Vec::new()], is_taken, is_hidden };
        let mut at = random.u64(0..20 * MS);
        while noise != Noise::Quiet && !target.burns && at < ROUND_NS {
            let until = at + random.u64(MS..20 * MS);
            let taken = random.usize(0..2);
            match noise {
                Noise::BothStopped => {
                    let until = at + random.u64(4 * MS..20 * MS);
                    machine.cores[taken].push((at, until));
                    machine.cores[1 - taken].push((at, until + random.u64(0..3 * MS)));
                }
                _ => machine.cores[taken].push((at, until)),
            }
            at = until + random.u64(8 * MS..60 * MS);
        }
        if target.burns {
            machine.is_taken = true;
            for core in &mut machine.cores {
                // The slices of a fair scheduler.
                core.extend((0..ROUND_NS / (8 * MS)).map(|turn| {
                    let from = turn * 8 * MS + random.u64(0..MS);
                    (from, from + random.u64(3 * MS..6 * MS))
                }));
            }
        }
        machine
    }

    /// Returns the first instant from `at` on at which a core runs.
    fn runs(&self, core: usize, at: u64) -> u64 {
        let gaps = &self.cores[core];
        let next = gaps.partition_point(|gap| gap.1 <= at);
        gaps.get(next).filter(|gap| gap.0 <= at).map_or(at, |gap| gap.1)
    }

    /// Notes what the sleepers and the threads' waits show.
    fn watch(&self, target: Target, on: usize, stalls: &Stalls) -> OwnWaits {
        if self.is_hidden {
            return Default::default();
        }
        if !self.is_taken {
            for core in 0..2 {
                let mut before = 0;
                while before < ROUND_NS {
                    let now = self.runs(core, before + MS);
                    stop_of_core(before, now, 0).into_iter().for_each(|stall| stalls.add(stall));
                    before = now.max(before + MS);
                }
            }
            return Default::default();
        }
        let mut threads = Threads::simulated();
        // The last look is after the last wait.
        for look in 1..=ROUND_NS / LOOK_NS + 6 {
            let (since, now) = ((look - 1) * LOOK_NS, look * LOOK_NS);
            let ended = |core: usize| {
                let waits = self.cores[core].iter().filter(move |gap| (since..now).contains(&gap.1));
                waits.map(|gap| gap.1 - gap.0).sum::<u64>()
            };
            let requests = now / STEP_NS;
            let target_ns = if target.burns { 2 * now } else { requests * target.work_ns };
            threads.simulate(
                (now, requests * GENERATOR_NS, target_ns),
                [(false, ended(0)), (false, ended(1)), (true, ended(on))],
                stalls,
            );
        }
        threads.own_waits()
    }
}

/// Runs one round, as a real one would be measured.
fn round(noise: Noise, target: Target, random: &mut fastrand::Rng) -> Outcome {
    let machine = Machine::new(noise, target, random);
    let (stalls, on) = (Stalls::default(), random.usize(0..2));
    let own_waits = machine.watch(target, on, &stalls);
    let mut collected = Collected::default();
    let counts = &mut collected.counts;
    let (mut free, mut stall_in) = (0, random.u64(1..1_000));
    for number in 0..ROUND_NS / STEP_NS {
        let intended_ns = number * STEP_NS;
        let own = (number % 2) as usize;
        // Another thread sends what is overdue.
        let (mine, other) = (machine.runs(own, intended_ns), machine.runs(1 - own, intended_ns + 100 * US));
        let (sender, sent_ns) = if mine <= other { (own, mine) } else { (1 - own, other) };
        stall_in -= 1;
        let stalled = if target.stalls_once_in.is_some() && stall_in == 0 { target.stall_ns } else { 0 };
        stall_in = if stall_in == 0 { target.stalls_once_in.unwrap_or(u64::MAX) } else { stall_in };
        let begun = machine.runs(on, sent_ns.max(free));
        free = machine.runs(on, begun + stalled + target.work_ns);
        let received_ns = machine.runs(sender, free) + random.u64(20 * US..60 * US);
        // Its own next request should have woken the thread.
        let unread_ns = machine.runs(sender, free).saturating_sub(free + STEP_NS);
        let times = Slow { intended_ns, sent_ns, received_ns, target_ns: received_ns - sent_ns - unread_ns };
        counts.requests += 1;
        counts.answered += 1;
        counts.ids += 1;
        counts.response.saturating_record(received_ns - intended_ns);
        counts.service.saturating_record(received_ns - sent_ns);
        counts.target.saturating_record(times.target_ns);
        counts.slip.saturating_record(sent_ns - intended_ns);
        counts.disturbed.note(times);
    }
    counts.disturbed.settle(u64::MAX, &stalls);
    outcome(collected, stalls.sum(), own_waits)
}

fn outcome(collected: Collected, stalls: StallSum, own_waits: OwnWaits) -> Outcome {
    Outcome {
        address: "simulated".to_owned(),
        version: None,
        own_daemon: true,
        same_clock: true,
        is_owner_known: true,
        lost_targets: Vec::new(),
        per_second: None,
        promise: Promise::of_counter(),
        rounds: 1,
        elapsed: Duration::from_nanos(ROUND_NS),
        stalls,
        own_waits,
        target_busiest: None,
        collected,
    }
}

/// A target on a machine, and the echo.
struct Simulated {
    noise: Noise,
    target: Target,
    random: fastrand::Rng,
    rounds: u32,
    end: Option<End>,
}

/// The reason why a simulation ends early.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    /// The user interrupts the echo.
    InEcho,
    /// The user interrupts the second round before it has begun.
    BeforeSecond,
    /// The target is gone when the second round begins.
    Gone,
}

impl Simulated {
    fn noise_now(&self) -> Noise {
        match self.noise {
            Noise::HiddenAtFirst if self.rounds == 0 => Noise::Hidden,
            Noise::HiddenAtFirst => Noise::Quiet,
            other => other,
        }
    }
}

impl Rounds for Simulated {
    fn target(&mut self) -> Result<Outcome, CannotRun> {
        let noise = self.noise_now();
        let target = if self.target.is_sound_then && self.rounds > 0 { SOUND } else { self.target };
        self.rounds += 1;
        match self.end {
            Some(End::BeforeSecond) if self.rounds > 1 => return Err(CannotRun::Interrupted),
            Some(End::Gone) if self.rounds > 1 => {
                return Err(CannotRun::NoTarget(NoTarget::Closed { address: "simulated".to_owned() }));
            }
            _ => {}
        }
        Ok(round(noise, target, &mut self.random))
    }

    fn echo(&mut self) -> Option<Outcome> {
        (self.end != Some(End::InEcho)).then(|| round(self.noise_now(), ECHO, &mut self.random))
    }

    fn is_interrupted(&self) -> bool {
        // After the first round, so in its echo.
        self.end == Some(End::InEcho) && self.rounds > 0
    }
}

fn scenario() -> Scenario {
    Scenario {
        drive: Drive::Open { rate: Rate::STANDARD, ramp: Duration::ZERO, arrivals: Arrivals::Even },
        length: Length::For(Duration::from_nanos(ROUND_NS)),
        ..crate::cli::sweep_settings(&[]).scenario
    }
}

/// Judges eight machines of a kind, or as many as `SNOWBANK_JUDGE_SEEDS` says. Each must get this verdict.
fn judge_all(noise: Noise, target: Target, wanted: u8) {
    let seeds = std::env::var("SNOWBANK_JUDGE_SEEDS").map_or(8, |seeds| seeds.parse().expect("a number"));
    let (scenario, latency) = (scenario(), Latency { quantile: 0.999, limit: Duration::from_millis(2) });
    let objectives = Objectives { rate: Some(Rate::STANDARD), latencies: vec![latency], errors: 0.0 };
    for seed in 0..seeds {
        let mut simulated =
            Simulated { noise, target, random: fastrand::Rng::with_seed(seed), rounds: 0, end: None };
        let trial = until_sure(&scenario, &objectives, &mut simulated).expect("it runs");
        let report = trial.report(&scenario, &objectives);
        let (verdict, rounds) = (&report.verdict, trial.outcome.rounds);
        assert_eq!(verdict.exit_code(), wanted, "seed {seed}, {noise:?}: {}", report.summary());
        assert!(rounds <= MAX_ROUNDS && (*verdict == Verdict::Pass) == (wanted == 0), "seed {seed}");
    }
}

const ALL: [Noise; 5] =
    [Noise::Quiet, Noise::BothStopped, Noise::OneStopped, Noise::OneTaken, Noise::HiddenAtFirst];

#[test]
fn a_sound_target_passes_on_every_machine() {
    ALL.into_iter().for_each(|noise| judge_all(noise, SOUND, 0));
}

#[test]
fn a_target_that_stalls_once_in_a_thousand_requests_fails_on_every_machine() {
    ALL.into_iter().for_each(|noise| judge_all(noise, STALLING, 1));
}

#[test]
fn a_target_that_freezes_once_for_long_fails() {
    // Where the machine stalls every few milliseconds, nothing shows how long the target stalled.
    [Noise::Quiet, Noise::HiddenAtFirst].into_iter().for_each(|noise| judge_all(noise, FREEZING_ONCE, 1));
}

#[test]
fn a_target_that_takes_the_cores_fails() {
    judge_all(Noise::Quiet, BURNING, 1);
}

/// A noisy machine makes the first round of a sound target late, and further rounds would tell. Without them there is no
/// verdict, unless the target is gone. What was measured is shown.
#[test]
fn a_trial_that_ends_early_blames_nobody_for_the_machine() {
    let (scenario, latency) = (scenario(), Latency { quantile: 0.999, limit: Duration::from_millis(2) });
    let objectives = Objectives { rate: Some(Rate::STANDARD), latencies: vec![latency], errors: 0.0 };
    let mut ended = 0;
    for seed in 0..8 {
        for (end, wanted) in [(End::InEcho, 2), (End::BeforeSecond, 2), (End::Gone, 1)] {
            let random = fastrand::Rng::with_seed(seed);
            let noise = Noise::HiddenAtFirst;
            let mut simulated = Simulated { noise, target: SOUND, random, rounds: 0, end: Some(end) };
            let trial = until_sure(&scenario, &objectives, &mut simulated).expect("it was measured");
            let report = trial.report(&scenario, &objectives);
            if end == End::InEcho || simulated.rounds > 1 {
                assert_eq!(report.verdict.exit_code(), wanted, "seed {seed}, {end:?}: {}", report.summary());
                ended += 1;
            }
        }
    }
    assert!(ended > 10, "{ended} ended early");
}

#[test]
fn stalls_of_the_simulated_machines_are_long_enough_to_count() {
    let mut random = fastrand::Rng::with_seed(1);
    for noise in [Noise::BothStopped, Noise::OneStopped, Noise::OneTaken] {
        let outcome = round(noise, SOUND, &mut random);
        let late = outcome.collected.counts.response.share_above(2 * MS);
        assert!(
            outcome.stalls.longest > Duration::from_nanos(MIN_STALL_NS) && late > 0.001,
            "{noise:?}: {late}"
        );
    }
}
