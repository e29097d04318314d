//! A step of a sweep: a run at one rate, and the limit that it hit.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use snowbank_wire::ErrorCode;

use super::search::{Attempt, Limit, Phase};
use super::{CONFIRM_LENGTH, Ended, Settings};
use crate::failure::Failure;
use crate::judge::{Verdict, judge};
use crate::measure::{Counts, Fault};
use crate::outcome::Outcome;
use crate::report::LOAD;
use crate::report::json::Run;
use crate::run::{Loaded, trial};
use crate::scenario::Drive;
use crate::value::Rate;

/// If a run misses at this share of the source's full rate or above, the layout is the limit. At
/// such a rate, requests wait for the next tick or are refused.
const AT_FULL_RATE: f64 = 0.99;

/// With a local target, the generator is the limit on two conditions. Target and generator together
/// use more than this share of the cores, and the generator uses the larger part. With a remote
/// target, the threads of the generator decide. It is the limit if one of them needs a core for
/// more than this share of the time.
const MAX_SHARED: f64 = 0.9;

/// A step of a sweep, with the keys of its JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) phase: Phase,
    pub(crate) holds: bool,
    /// The limit that the step hit; null if the rate held, or if the step broke off the sweep.
    pub(crate) limit: Option<Limit>,
    /// The run, in the form of a plain run's file.
    pub(crate) run: Run,
}

impl Step {
    /// Returns the IDs per second that the step asked for.
    pub(crate) fn rate(&self) -> f64 {
        self.run.figures.number(LOAD, "offered").unwrap_or_default()
    }
}

/// Runs one step against the target, whose source can hand out `full_rate` IDs in a second. Returns
/// the step, and the reason why the sweep ends, if the step ends it.
///
/// # Errors
/// [`Failure`] if the load cannot begin.
pub(super) fn run(
    settings: &Settings,
    attempt: Attempt,
    full_rate: Option<u64>,
    target: &mut Loaded<'_>,
) -> Result<(Step, Option<Ended>), Failure> {
    let phase = attempt.phase;
    let mut scenario = settings.scenario.clone();
    if phase == Phase::Confirm {
        scenario.length *= CONFIRM_LENGTH;
    }
    if let Drive::Open { rate, .. } = &mut scenario.drive {
        // Every rate of a search lies between the search's bounds, which are valid rates.
        *rate = Rate::new(attempt.rate).unwrap_or(Rate::STANDARD);
    }
    let objectives = &settings.objectives;
    let outcome = trial::rounds(&scenario, objectives, settings.search.runs, target)?;
    let verdict = judge(&outcome, objectives);
    let run = Run::of(&scenario, objectives, &outcome, &verdict, &settings.origin);
    let (limit, ends) = match answer(&verdict, &outcome, attempt.rate, full_rate) {
        Ok(limit) => (limit, None),
        Err(reason) => (None, Some(reason)),
    };
    Ok((Step { phase, holds: limit.is_none() && ends.is_none(), limit, run }, ends))
}

/// Returns the limit that a run hit, if any, or the reason why the sweep ends.
fn answer(
    verdict: &Verdict,
    outcome: &Outcome,
    rate: f64,
    full_rate: Option<u64>,
) -> Result<Option<Limit>, Ended> {
    let is_broken =
        outcome.faults.iter().any(|fault| matches!(fault, Fault::Violation(_) | Fault::Unreadable(_)));
    match verdict {
        Verdict::Pass => Ok(None),
        Verdict::Unknown(_) if outcome.interrupted => Err(Ended::Interrupted),
        Verdict::Unknown(_) => Ok(Some(Limit::Machine)),
        Verdict::Fail(reasons) if is_broken => Err(Ended::Broken(reasons.join("; "))),
        Verdict::Fail(_) => Ok(Some(limit(outcome, rate, full_rate))),
    }
}

fn limit(outcome: &Outcome, rate: f64, full_rate: Option<u64>) -> Limit {
    let only_fell_behind = outcome.faults.iter().all(|fault| *fault == Fault::TooManyInFlight);
    let refused = refused(&outcome.counts);
    if !only_fell_behind || refused.iter().any(|&code| code != ErrorCode::Exhausted.to_u16()) {
        return Limit::Target;
    }
    let at_full_rate = full_rate.is_some_and(|full_rate| rate >= full_rate as f64 * AT_FULL_RATE);
    if at_full_rate || !refused.is_empty() {
        return Limit::Layout;
    }
    let generator = outcome.share(outcome.counts.cpu);
    let target = outcome.target_cpu.map(|used| outcome.share(used));
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    if has_room(generator, target, outcome.counts.busiest_thread, cores) {
        Limit::Latency
    } else {
        Limit::Machine
    }
}

/// Returns the codes of all refusals. Refusals of the warm-up count, too, because the warm-up has
/// the same rate.
fn refused(counts: &Counts) -> BTreeSet<u16> {
    counts.refused.keys().chain(counts.warm_up_refused.keys()).copied().collect()
}

/// Returns true if the generator was not the limit. A local target shares the cores with the
/// generator.
fn has_room(generator: f64, target: Option<f64>, busiest_thread: f64, cores: f64) -> bool {
    match target {
        Some(target) => generator + target <= cores * MAX_SHARED || target >= generator,
        None => busiest_thread <= MAX_SHARED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_the_warm_up_count() {
        let mut counts = Counts::default();
        assert!(refused(&counts).is_empty());
        counts.warm_up_refused.entry(6).or_default().count = 70;
        assert_eq!(refused(&counts), BTreeSet::from([6]));
        counts.refused.entry(9).or_default().count = 1;
        assert_eq!(refused(&counts), BTreeSet::from([6, 9]));
    }

    #[test]
    fn a_generator_that_uses_the_cores_up_has_no_room() {
        let here = |generator, target| has_room(generator, Some(target), 0.7, 2.0);
        assert!(!here(1.39, 0.59), "the cores are full, and the generator uses most of them");
        assert!(here(0.59, 1.39) && here(0.9, 0.6), "the target uses most of the cores, or some are free");
        assert!(
            has_room(1.9, None, 0.9, 2.0) && !has_room(1.9, None, 0.95, 2.0),
            "with a remote target, the busiest thread decides"
        );
    }
}
