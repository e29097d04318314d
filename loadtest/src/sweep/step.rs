//! A run at one rate, and its answer to the search.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snowbank_client::protocol::ErrorCode;

use super::search::{Answer, Limit, Phase};
use super::{Ended, Loaded, Settings};
use crate::judge::{Objectives, Verdict, trial};
use crate::measure::{Counts, Fault};
use crate::report::json::Run;
use crate::report::{LOAD, Report};
use crate::run::{self, CannotRun, Progress};
use crate::scenario::{Drive, Scenario};
use crate::value::Rate;

/// A rate this close to all that the source can hand out is the layout's limit, whether requests wait for the
/// next tick or are refused.
const AT_FULL_RATE: f64 = 0.99;

/// Above this share of the cores, the generator is the limit if it uses more than the target.
const MAX_SHARED: f64 = 0.9;

/// A step of a sweep, with the keys of its JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) phase: Phase,
    /// True if the objective held.
    pub(crate) holds: bool,
    /// The reason why it did not hold; null also where the sweep ended with this step.
    pub(crate) limit: Option<Limit>,
    /// As in the file of a plain run.
    pub(crate) run: Run,
}

impl Step {
    /// IDs per second asked for.
    pub(crate) fn rate(&self) -> f64 {
        self.run.figures.number(LOAD, "offered").unwrap_or_default()
    }
}

/// A rate that is tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) rate: f64,
    pub(super) phase: Phase,
    /// All that the source can hand out in a second.
    pub(super) full_rate: Option<u64>,
}

/// Runs one step. Returns it with its answer to the search, or with the reason why it ends the sweep.
///
/// # Errors
/// [`CannotRun`] if the target takes no load.
pub(super) fn run(
    settings: &Settings,
    attempt: Attempt,
    target: &mut Loaded,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(Step, Result<Answer, Ended>), CannotRun> {
    let scenario = Scenario {
        // Every rate of a search lies between its bounds, which are rates.
        drive: Drive::Open {
            rate: Rate::new(attempt.rate).unwrap_or(Rate::STANDARD),
            arrivals: settings.arrivals(),
        },
        length: settings.length(attempt.phase),
        ..settings.scenario.clone()
    };
    // The rate is the load here and no objective.
    let objectives = Objectives { rate: None, ..settings.objectives.clone() };
    let outcome = trial::rounds(&scenario, &objectives, settings.search.runs, &mut || {
        run::run_against(&scenario, target.daemon.as_mut(), &mut target.seen, interrupt, progress)
    })?;
    let report = Report::new(&scenario, &objectives, &outcome, None);
    let answer = answer(&report, attempt);
    let limit = match answer {
        Ok(Answer::Misses(limit)) => Some(limit),
        Ok(Answer::Holds) | Err(_) => None,
    };
    let holds = answer == Ok(Answer::Holds);
    Ok((Step { phase: attempt.phase, holds, limit, run: Run::of(&report, &settings.origin) }, answer))
}

fn answer(report: &Report<'_>, attempt: Attempt) -> Result<Answer, Ended> {
    let collected = &report.outcome.collected;
    let is_broken = |fault: &Fault| matches!(fault, Fault::Violation(_) | Fault::Unreadable(_));
    match &report.verdict {
        Verdict::Pass => Ok(Answer::Holds),
        Verdict::Unknown(_) if collected.interrupted => Err(Ended::Interrupted),
        Verdict::Unknown(_) => Ok(Answer::Misses(Limit::Machine)),
        Verdict::Fail(reasons) if collected.faults.iter().any(is_broken) => {
            Err(Ended::Broken(reasons.join("; ")))
        }
        Verdict::Fail(_) => Ok(Answer::Misses(limit(report, attempt))),
    }
}

fn limit(report: &Report<'_>, Attempt { rate, full_rate, .. }: Attempt) -> Limit {
    let collected = &report.outcome.collected;
    let fell_behind = |fault: &Fault| matches!(fault, Fault::TooManyInFlight { .. });
    let refused = refused(&collected.counts);
    let is_other = |code: &u16| *code != ErrorCode::Exhausted.to_u16();
    if !collected.faults.iter().all(fell_behind) || refused.iter().any(is_other) {
        return Limit::Target;
    }
    let at_full_rate = full_rate.is_some_and(|full_rate| rate >= full_rate as f64 * AT_FULL_RATE);
    if at_full_rate || !refused.is_empty() {
        return Limit::Layout;
    }
    let share = |time: Duration| time.as_secs_f64() / report.outcome.elapsed.as_secs_f64().max(1e-9);
    // The cores of a target that is known by its metrics are not these.
    let target = collected.target_cpu.filter(|_| report.scenario.metrics.is_empty()).map(share);
    let has_room = has_room(share(collected.counts.cpu), target, collected.counts.busiest_thread, cores());
    if has_room { Limit::Latency } else { Limit::Machine }
}

/// Returns the codes of all refusals, also of the warm-up, which has the same rate.
fn refused(counts: &Counts) -> BTreeSet<u16> {
    counts.refused.keys().chain(counts.warm_up_refused.keys()).copied().collect()
}

fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1, usize::from) as f64
}

/// Returns true if the generator could have done more. It shares the cores with a target on this machine.
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
    fn a_refusal_of_the_warm_up_is_one_too() {
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
        assert!(!here(1.39, 0.59), "the machine is full, mostly of the generator");
        assert!(here(0.59, 1.39) && here(0.9, 0.6), "it is full of the target, or not full");
        assert!(
            has_room(1.9, None, 0.9, 2.0) && !has_room(1.9, None, 0.95, 2.0),
            "of a remote one its threads say it"
        );
    }
}
