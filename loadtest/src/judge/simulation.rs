//! Simulated runs of bad targets and of a sound target, on machines whose stalls are known.
//!
//! A machine has two cores. Each core has a generator thread and a sleeper ([`crate::machine`]).
//! The target serves its requests one after the other, on the second core. The seed of a run
//! determines all that happens in the run, and a test that fails names the seed.

use std::time::Duration;

use super::{Latency, Objectives, Verdict, judge};
use crate::machine::processor::Since;
use crate::machine::stalls::{MIN_STALL_NS, Stalls};
use crate::machine::waits::{Idle, LOOK_PERIOD, Look, Waits};
use crate::machine::{NAP_NS, stall_of_nap};
use crate::measure::settling::Slow;
use crate::measure::{Counts, Fault, Refusals};
use crate::outcome::Outcome;
use crate::value::Rate;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const RUN_NS: u64 = 4_000 * MS;

/// The time from one request to the next, over all connections.
const STEP_NS: u64 = 200 * US;

/// The processor time that the target needs for a request.
const WORK_NS: u64 = 20 * US;

/// What disturbs the machine during a run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Noise {
    Quiet,
    /// Three busy loops at normal priority. Now and then, a thread that wakes has to wait for up to
    /// 4 ms, until a loop has had its slice.
    BusyLoops,
    /// Two programs of real-time priority that take a core for 1 to 20 ms.
    Bursts,
    /// The host stops each core for 4 to 20 ms now and then.
    Host,
}

const NOISES: [Noise; 4] = [Noise::Quiet, Noise::BusyLoops, Noise::Bursts, Noise::Host];

/// The ways in which a target behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    /// It makes no mistake.
    Sound,
    /// It stops for `length_ms` once in every `each_ms`.
    Stops { length_ms: u64, each_ms: u64 },
    /// It stops for 5 ms once in 1,000 requests.
    StopsByCount,
    /// Its work for a request grows until it cannot keep up.
    Ramp,
    /// It stops for 8 ms after each stall of the machine.
    StopsAfterStalls,
    /// It stops for 20 ms twice a second, while its new threads burn both cores.
    PausesThatBurn,
    /// Its threads or children burn both cores all the time.
    Burns,
    /// One of its threads burns one core.
    BurnsOneCore,
    /// Its children take both cores for 20 ms with real-time priority, five times a second.
    BurnsInRealTime,
    /// One connection of eight gets its answers 5 ms late.
    OneSlowConnection,
    /// It refuses one request in 200.
    Refuses,
    /// It closes a connection.
    Closes,
    /// It answers only the requests of the warm-up.
    FallsSilent,
}

const BAD: [Target; 14] = [
    Target::Stops { length_ms: 300, each_ms: RUN_NS / MS },
    Target::Stops { length_ms: 60, each_ms: 3_000 },
    Target::Stops { length_ms: 20, each_ms: 1_000 },
    Target::StopsByCount,
    Target::Ramp,
    Target::StopsAfterStalls,
    Target::PausesThatBurn,
    Target::Burns,
    Target::BurnsOneCore,
    Target::BurnsInRealTime,
    Target::OneSlowConnection,
    Target::Refuses,
    Target::Closes,
    Target::FallsSilent,
];

/// Spans of time, each with its start and its end.
type Spans = Vec<(u64, u64)>;

/// The times in which a core runs neither the target's serving thread, nor the generator, nor a
/// sleeper.
struct Core {
    all: Spans,
    /// The times in which other programs have the core.
    others: Spans,
    /// The times in which the target's other threads or its children have the core.
    own: Spans,
}

impl Core {
    /// Returns the first instant, at or after `at`, that is in none of the spans in `all`.
    fn runs(&self, mut at: u64) -> u64 {
        let next = self.all.partition_point(|gap| gap.1 <= at);
        for gap in &self.all[next..] {
            if gap.0 > at {
                break;
            }
            at = gap.1;
        }
        at
    }

    /// Returns how long a thread that is due at `from` and runs at `until` waits for a core.
    /// Another program, or another thread of the target, has the core meanwhile.
    fn waited_ns(&self, from: u64, until: u64) -> u64 {
        (shared_ns(&self.others, from, until) + shared_ns(&self.own, from, until)).min(until - from)
    }
}

fn shared_ns(spans: &Spans, from: u64, until: u64) -> u64 {
    let first = spans.partition_point(|gap| gap.1 <= from);
    let shared = spans[first..].iter().take_while(|gap| gap.0 < until);
    shared.map(|gap| gap.1.min(until).saturating_sub(gap.0.max(from))).sum()
}

fn noise_on(noise: Noise, random: &mut fastrand::Rng) -> Spans {
    let mut gaps = Spans::new();
    let mut at = random.u64(0..20 * MS);
    while at < RUN_NS {
        let (pause, length) = match noise {
            Noise::Quiet => break,
            Noise::BusyLoops => (random.u64(100 * US..10 * MS), random.u64(500 * US..4 * MS)),
            Noise::Bursts => (random.u64(MS..80 * MS), random.u64(MS..20 * MS)),
            Noise::Host => (random.u64(50 * MS..500 * MS), random.u64(4 * MS..20 * MS)),
        };
        at += pause;
        gaps.push((at, at + length));
        at += length;
    }
    gaps
}

fn burning(target: Target, random: &mut fastrand::Rng) -> Spans {
    match target {
        Target::PausesThatBurn => (1..8).map(|turn| (turn * 500 * MS, (turn * 500 + 20) * MS)).collect(),
        Target::BurnsInRealTime => (1..20).map(|turn| (turn * 200 * MS, (turn * 200 + 20) * MS)).collect(),
        Target::Burns | Target::BurnsOneCore => {
            // A fair scheduler gives slices to the burning threads.
            let begins = (0..RUN_NS / (8 * MS)).map(|turn| turn * 8 * MS);
            begins.map(|from| (from, from + random.u64(4 * MS..7 * MS))).collect()
        }
        _ => Spans::new(),
    }
}

/// Returns the times at which the target itself stops.
fn own_stops(target: Target, cores: &[Core; 2], random: &mut fastrand::Rng) -> Spans {
    match target {
        Target::Stops { length_ms, each_ms } => {
            let turns = 0..(RUN_NS / MS).div_ceil(each_ms);
            let begins = turns.map(|turn| (turn * each_ms + random.u64(0..each_ms - length_ms)) * MS);
            begins.map(|from| (from, from + length_ms * MS)).collect()
        }
        Target::StopsAfterStalls => {
            let mut ends: Vec<u64> = cores.iter().flat_map(|core| core.all.iter().map(|gap| gap.1)).collect();
            ends.sort_unstable();
            ends.into_iter().map(|end| (end, end + 8 * MS)).collect()
        }
        _ => Spans::new(),
    }
}

fn machine(target: Target, noise: Noise, random: &mut fastrand::Rng) -> [Core; 2] {
    let burnt = burning(target, random);
    [0, 1].map(|core| {
        let own = if core == 0 && target == Target::BurnsOneCore { Spans::new() } else { burnt.clone() };
        let noisy = noise_on(noise, random);
        let all = joined(&[noisy.clone(), own.clone()]);
        Core { all, others: if noise == Noise::Host { Spans::new() } else { noisy }, own }
    })
}

/// Joins times that overlap.
fn joined(spans: &[Spans]) -> Spans {
    let mut sorted = spans.concat();
    sorted.sort_unstable();
    let mut all = Spans::new();
    for (from, until) in sorted {
        match all.last_mut().filter(|last| last.1 >= from) {
            Some(last) => last.1 = last.1.max(until),
            None => all.push((from, until)),
        }
    }
    all
}

/// Returns the stalls that the sleepers find.
fn watched(cores: &[Core; 2]) -> Stalls {
    let stalls = Stalls::from_measurement(0);
    for core in cores {
        let mut slept_ns = 0;
        while slept_ns < RUN_NS {
            let woke_ns = core.runs(slept_ns + NAP_NS);
            let waited_ns = core.waited_ns(slept_ns + NAP_NS, woke_ns);
            stall_of_nap(slept_ns, woke_ns, waited_ns).into_iter().for_each(|stall| stalls.add(stall));
            slept_ns = woke_ns;
        }
    }
    stalls
}

/// Adds to `stalls` the stalls that made the target wait, and the bunches of requests that the
/// generator sent late. `waited` has the end and the length of each wait of the target, and
/// `worked` the spans in which the target works. `late` has the due time and the sending time of
/// each late request. The thread that looks at the waits needs a core, too, so its looks may be
/// late.
fn look_at_waits(waited: &[(u64, u64)], worked: &Spans, late: &Spans, cores: &[Core; 2], stalls: &Stalls) {
    let mut waits = Waits::default();
    let mut idle = Idle::default();
    let mut before = 0;
    let mut looked_ns = 0;
    let mut at_ns = 0;
    let mut target_ns = 0;
    while at_ns < RUN_NS + 100 * MS {
        let ran_ns = shared_ns(worked, looked_ns, at_ns);
        let burnt_ns: u64 = cores.iter().map(|core| shared_ns(&core.own, looked_ns, at_ns)).sum();
        target_ns += ran_ns + burnt_ns;
        waits.add(Look { at_ns, target_ns, own_ns: target_ns });
        let until_now = waited.partition_point(|wait| wait.0 <= at_ns);
        let waited_ns = waited[before..until_now].iter().map(|wait| wait.1).sum();
        let since = Since { ran_ns, waited_ns };
        idle.stall(&waits.looks, since, 2).into_iter().for_each(|stall| stalls.add(stall));
        for &(due_ns, sent_ns) in late.iter().filter(|late| (looked_ns + 1..=at_ns).contains(&late.1)) {
            stalls.add_bunch(sent_ns, waits.not_of_target_ns(due_ns, sent_ns));
        }
        before = until_now;
        looked_ns = at_ns;
        let due_ns = at_ns + LOOK_PERIOD.as_nanos() as u64;
        at_ns = cores.iter().map(|core| core.runs(due_ns)).min().unwrap_or(due_ns);
    }
}

/// Returns the outcome of a run, measured as in a real run.
fn run(target: Target, noise: Noise, random: &mut fastrand::Rng) -> Outcome {
    let cores = machine(target, noise, random);
    let stalls = watched(&cores);
    let stops = Core { all: own_stops(target, &cores, random), others: Spans::new(), own: Spans::new() };
    let mut waited = Vec::new();
    let mut worked = Spans::new();
    let mut late = Spans::new();
    let length = Duration::from_nanos(RUN_NS);
    let mut run = Outcome {
        planned: Some(length),
        elapsed: length,
        undisturbed: length,
        rounds: 1,
        ..Outcome::default()
    };
    let mut free = 0;
    for number in 0..RUN_NS / STEP_NS {
        let intended_ns = number * STEP_NS;
        let own = (number % 2) as usize;
        // If a request is overdue, the other thread sends it.
        let mine = cores[own].runs(intended_ns);
        let other = cores[1 - own].runs(intended_ns + 100 * US);
        let (sender, sent_ns) = if mine <= other { (own, mine) } else { (1 - own, other) };
        if sent_ns >= intended_ns + MIN_STALL_NS {
            late.push((intended_ns, sent_ns));
        }
        let by_count = if target == Target::StopsByCount && number % 1_000 == 999 { 5 * MS } else { 0 };
        let work_ns = if target == Target::Ramp { number * 300 * US / (RUN_NS / STEP_NS) } else { WORK_NS };
        let due = sent_ns.max(free);
        let runs = cores[1].runs(due);
        let begun = stops.runs(runs + by_count);
        free = cores[1].runs(begun + work_ns);
        waited.push((runs, cores[1].waited_ns(due, runs)));
        waited.push((free, cores[1].waited_ns(begun + work_ns, free)));
        worked.push((begun, begun + work_ns));
        let late_ns = if target == Target::OneSlowConnection && number % 8 == 0 { 5 * MS } else { 0 };
        // The generator reads the answer as soon as its core runs, because its thread wakes for the
        // next request anyway.
        let ready_ns = free + late_ns;
        let received_ns = cores[sender].runs(ready_ns) + random.u64(20 * US..60 * US);
        let target_ns = ready_ns.max(sent_ns) - sent_ns;
        answered(&mut run.counts, target, intended_ns, Slow { sent_ns, received_ns, target_ns });
    }
    match target {
        Target::Closes => run.faults.push(Fault::Closed { unanswered: 1, reason: None }),
        Target::FallsSilent => run.faults.push(Fault::Silent { unanswered: 9 }),
        _ => {}
    }
    look_at_waits(&waited, &worked, &late, &cores, &stalls);
    run.stalls = stalls.sum(RUN_NS);
    run.counts.settling.settle(u64::MAX, &stalls);
    run
}

fn answered(counts: &mut Counts, target: Target, intended_ns: u64, times: Slow) {
    counts.requests += 1;
    if target == Target::Refuses && counts.requests.is_multiple_of(200) {
        let refused = Refusals { count: 0, first_message: String::new() };
        counts.refused.entry(6).or_insert(refused).count += 1;
        return;
    }
    counts.answered += 1;
    counts.response.saturating_record(times.received_ns - intended_ns);
    counts.slip.saturating_record(times.sent_ns - intended_ns);
    counts.target.saturating_record(times.target_ns);
    if times.target_ns >= MIN_STALL_NS {
        counts.settling.slow.push_back(times);
    } else {
        counts.settling.certain.saturating_record(times.target_ns);
    }
}

fn judged(run: &Outcome) -> Verdict {
    let latency = Latency { quantile: 0.999, limit: Duration::from_millis(2) };
    judge(run, &Objectives { rate: Some(Rate::STANDARD), latencies: vec![latency], errors: 0.0 })
}

/// Returns the verdict of one run, or of two runs together if the first has none.
fn verdict(target: Target, noise: Noise, seed: u64) -> Verdict {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut all = run(target, noise, &mut random);
    let first = judged(&all);
    if !matches!(first, Verdict::Unknown(_)) {
        return first;
    }
    all.prolong(run(target, noise, &mut random));
    judged(&all)
}

/// Returns the seeds to simulate: four, or as many as `SNOWBANK_JUDGE_SEEDS` says.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("SNOWBANK_JUDGE_SEEDS").map_or(4, |seeds| seeds.parse().expect("a number"))
}

/// Returns the verdict for each seed. Prints how often each verdict came, for a cell of the table
/// in docs/capacity.md.
fn verdicts(target: Target, noise: Noise) -> Vec<Verdict> {
    let all: Vec<Verdict> = seeds().map(|seed| verdict(target, noise, seed)).collect();
    let [pass, fail, none] = [0, 1, 2].map(|code| all.iter().filter(|one| one.exit_code() == code).count());
    eprintln!("{target:?} beside {noise:?}: pass {pass}, fail {fail}, no verdict {none}");
    all
}

#[test]
fn no_bad_target_passes_on_any_machine() {
    for target in BAD {
        // A target that burns both cores delays the generator more than its own answers, so the run
        // may have no verdict.
        let burns_both = matches!(target, Target::PausesThatBurn | Target::Burns | Target::BurnsInRealTime);
        for noise in NOISES {
            // If there is no stall, this target never stops.
            if (target, noise) == (Target::StopsAfterStalls, Noise::Quiet) {
                continue;
            }
            let must_fail = noise == Noise::Quiet && !burns_both;
            for (seed, verdict) in verdicts(target, noise).into_iter().enumerate() {
                let code = verdict.exit_code();
                assert!(code == 1 || (code == 2 && !must_fail), "{target:?}, {noise:?}, {seed}: {verdict:?}");
            }
        }
    }
}

#[test]
fn a_sound_target_never_fails() {
    for noise in NOISES {
        for (seed, verdict) in verdicts(Target::Sound, noise).into_iter().enumerate() {
            let code = verdict.exit_code();
            assert!(code == 0 || (code == 2 && noise != Noise::Quiet), "{noise:?}, {seed}: {verdict:?}");
        }
    }
}

#[test]
fn at_least_four_fifths_of_the_stalls_are_found() {
    for noise in [Noise::Bursts, Noise::Host] {
        let found = run(Target::Sound, noise, &mut fastrand::Rng::with_seed(1)).stalls.total;
        let found_ns = found.as_nanos() as u64;
        let cores = machine(Target::Sound, noise, &mut fastrand::Rng::with_seed(1));
        // Stalls by other programs are found only on the target's core.
        let first = if noise == Noise::Host { 0 } else { 1 };
        let gaps = joined(&cores.map(|core| core.all)[first..]);
        let true_ns: u64 = gaps.iter().map(|gap| gap.1 - gap.0).sum();
        assert!(found_ns <= true_ns && found_ns * 10 >= true_ns * 8, "{noise:?}: {found_ns} of {true_ns}");
    }
}
