//! All figures of a sweep, for programs: `kind` tells it from a run's file. Rates are IDs per second; times are in
//! microseconds unless a name says otherwise.

use serde::Serialize;

use super::machine::{Machine, Versions};
use super::search::{Answer, Limit, Phase};
use super::step::{Said, Step};
use super::table::summary;
use super::{Ended, Sweep};
use crate::report::json::{FORMAT, Run};

/// What `kind` says.
pub const KIND: &str = "sweep";

/// A sweep.
#[derive(Debug, Serialize)]
pub struct File<'a> {
    format: u32,
    kind: &'static str,
    /// The last line of the table.
    summary: String,
    exit_code: u8,
    /// `searched`, `interrupted`, `broken` or `gone`.
    ended: &'static str,
    /// Each has to hold.
    objective: Vec<Objective>,
    /// The highest rate at which the objective held; null where it held at none.
    knee: Option<f64>,
    /// Whether a second run at the knee held.
    confirmed: bool,
    /// Whether the target may be able to do more: the generator or `--limit` ended the climb.
    at_least: bool,
    /// The lowest rate above the knee that missed.
    missed: Option<f64>,
    /// What stood in its way.
    limit: Option<Limit>,
    /// Whether the target was a Redis.
    resp: bool,
    /// Whether the daemon was started for the sweep.
    own_daemon: bool,
    address: String,
    source: Option<String>,
    layout: Option<String>,
    source_per_second: Option<u64>,
    /// How many worker IDs the source held.
    worker_ids: Option<usize>,
    max_count: Option<u32>,
    batch: String,
    mean_batch: f64,
    connections: usize,
    threads: usize,
    search: Searched,
    machine: &'a Machine,
    versions: Versions,
    steps: Vec<StepFigures<'a>>,
}

#[derive(Debug, Serialize)]
struct Objective {
    quantile: String,
    limit_us: f64,
}

#[derive(Debug, Serialize)]
struct Searched {
    start: f64,
    limit: f64,
    factor: f64,
    resolution: f64,
    tries: u32,
    step_s: f64,
    confirm_s: f64,
    warm_up_s: f64,
}

/// A run's figures, and what it was for.
#[derive(Debug, Serialize)]
struct StepFigures<'a> {
    phase: Phase,
    holds: bool,
    /// What stood in the way; null where it held or the sweep ended with it.
    limit: Option<Limit>,
    #[serde(flatten)]
    run: &'a Run,
}

impl<'a> File<'a> {
    /// The figures of a sweep made on a machine.
    #[must_use]
    pub fn of(sweep: &'a Sweep, machine: &'a Machine) -> Self {
        let (settings, bounds) = (&sweep.settings, sweep.bounds);
        let scenario = &settings.scenario;
        let first = sweep.steps.first().map(|step| &step.figures);
        let objective = |latency: &crate::verdict::Latency| Objective {
            quantile: latency.name(),
            limit_us: latency.limit.as_secs_f64() * 1e6,
        };
        Self {
            format: FORMAT,
            kind: KIND,
            summary: summary(sweep),
            exit_code: sweep.exit_code(),
            ended: match sweep.ended {
                Ended::Searched => "searched",
                Ended::Interrupted => "interrupted",
                Ended::Broken(_) => "broken",
                Ended::Gone(_) => "gone",
            },
            objective: settings.objectives.latencies.iter().map(objective).collect(),
            knee: sweep.finding.knee,
            confirmed: sweep.finding.confirmed,
            at_least: sweep.is_lower_bound(),
            missed: sweep.finding.missed.map(|(rate, _)| rate),
            limit: sweep.finding.missed.map(|(_, limit)| limit),
            resp: scenario.resp,
            own_daemon: sweep.own_daemon,
            address: scenario.address.as_ref().map(ToString::to_string).unwrap_or_default(),
            source: first.map(|run| run.source.clone()),
            layout: first.and_then(|run| run.layout.clone()),
            source_per_second: sweep.target.per_second,
            worker_ids: sweep.target.worker_ids,
            max_count: sweep.target.max_count,
            batch: scenario.batch.to_string(),
            mean_batch: scenario.batch.mean(),
            connections: scenario.connections,
            threads: scenario.threads,
            search: Searched {
                start: bounds.start,
                limit: bounds.limit,
                factor: bounds.factor,
                resolution: bounds.resolution,
                tries: bounds.tries,
                step_s: settings.length(Phase::Climb).as_secs_f64(),
                confirm_s: settings.length(Phase::Confirm).as_secs_f64(),
                warm_up_s: scenario.warm_up.as_secs_f64(),
            },
            machine,
            versions: Versions::with(sweep.target.version.clone()),
            steps: sweep.steps.iter().map(StepFigures::of).collect(),
        }
    }

    /// The file's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers, strings and lists: there is nothing that could not be written.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

impl<'a> StepFigures<'a> {
    fn of(step: &'a Step) -> Self {
        let limit = match step.said {
            Said::Answer(Answer::Misses(limit)) => Some(limit),
            _ => None,
        };
        Self { phase: step.phase, holds: step.said == Said::Answer(Answer::Holds), limit, run: &step.figures }
    }
}
