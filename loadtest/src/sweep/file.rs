//! All figures of a sweep, for programs: `kind` distinguishes it from a run's file. Rates are IDs per second;
//! times are in microseconds unless a name says otherwise.

use serde::{Deserialize, Serialize};

use super::machine::{Machine, Versions};
use super::search::{Bounds, Limit, Phase};
use super::step::Step;
use super::table::summary;
use super::{Sweep, Target};
use crate::judge::Latency;
use crate::report::json::FORMAT;
use crate::schedule::Arrivals;

/// The value of `kind`.
pub(crate) const KIND: &str = "sweep";

/// A sweep.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct File {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// [`KIND`].
    pub(crate) kind: String,
    /// The last line of the table.
    pub(crate) summary: String,
    /// The exit code of the process.
    pub(crate) exit_code: u8,
    /// `searched`, `interrupted`, `broken`, `gone`, or `hindered` by this machine's limits.
    pub(crate) ended: String,
    /// Each has to hold.
    pub(crate) objective: Vec<Objective>,
    /// The highest rate at which the objective held; null where it held at none.
    pub(crate) knee: Option<f64>,
    /// True if a second run at the knee held.
    pub(crate) confirmed: bool,
    /// True if the target may be able to do more: the generator or `--limit` ended the climb.
    pub(crate) at_least: bool,
    /// The lowest rate above the knee that missed.
    pub(crate) missed: Option<f64>,
    /// The reason why the knee is not higher; null where every rate held and the source could do more.
    pub(crate) limit: Option<Limit>,
    /// The protocol: `snowbank`, `resp`, `memcached`, `http` or `noeqd`.
    pub(crate) protocol: String,
    /// True if the daemon was started for the sweep.
    pub(crate) own_daemon: bool,
    #[serde(flatten)]
    pub(crate) target: Target,
    /// The source's name.
    pub(crate) source: Option<String>,
    /// Its layout in text form.
    pub(crate) layout: Option<String>,
    /// IDs per request, as on the command line.
    pub(crate) batch: String,
    /// IDs per request in the long run.
    pub(crate) mean_batch: f64,
    /// Connections.
    pub(crate) connections: usize,
    /// Generator threads.
    pub(crate) threads: usize,
    pub(crate) arrivals: Arrivals,
    pub(crate) search: Searched,
    /// The generator's machine, and the daemon's if that was started for the sweep.
    pub(crate) machine: Machine,
    pub(crate) versions: Versions,
    /// Every run, in order.
    pub(crate) steps: Vec<Step>,
}

/// A response time that a quantile had to keep to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Objective {
    /// `p50` to `p99.99`, or `max`.
    pub(crate) quantile: String,
    pub(crate) limit_us: f64,
}

impl Objective {
    fn of(latency: &Latency) -> Self {
        Self { quantile: latency.name(), limit_us: latency.limit.as_secs_f64() * 1e6 }
    }
}

/// The options of the search.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Searched {
    #[serde(flatten)]
    pub(crate) bounds: Bounds,
    /// The length of a step in seconds.
    pub(crate) step_s: f64,
    /// The length of a confirmation.
    pub(crate) confirm_s: f64,
    /// The warm-up of each.
    pub(crate) warm_up_s: f64,
}

impl File {
    /// Returns the figures of a sweep.
    pub(crate) fn of(sweep: &Sweep) -> Self {
        let (settings, bounds) = (&sweep.settings, sweep.bounds);
        let scenario = &settings.scenario;
        let first = sweep.steps.first().map(|step| &step.run);
        Self {
            format: FORMAT,
            kind: KIND.to_owned(),
            summary: summary(sweep),
            exit_code: sweep.exit_code(),
            ended: sweep.ended.name().to_owned(),
            objective: settings.objectives.latencies.iter().map(Objective::of).collect(),
            knee: sweep.finding.knee,
            confirmed: sweep.finding.confirmed,
            at_least: sweep.is_lower_bound(),
            missed: sweep.finding.missed.map(|(rate, _)| rate),
            limit: sweep.limit(),
            protocol: scenario.protocol.name().to_owned(),
            own_daemon: sweep.own_daemon,
            target: sweep.target.clone(),
            source: first.map(|run| run.source.clone()),
            layout: first.and_then(|run| run.layout.clone()),
            batch: scenario.batch.to_string(),
            mean_batch: scenario.batch.mean(),
            connections: scenario.connections,
            threads: scenario.threads,
            arrivals: settings.arrivals(),
            search: Searched {
                bounds,
                step_s: settings.length(Phase::Climb).as_secs_f64(),
                confirm_s: settings.length(Phase::Confirm).as_secs_f64(),
                warm_up_s: scenario.warm_up.as_secs_f64(),
            },
            machine: settings.origin.machine.clone(),
            versions: Versions::with(sweep.target.version.clone()),
            steps: sweep.steps.clone(),
        }
    }
}
