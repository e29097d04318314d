//! The figures of a sweep that a plan needs, and those that it lacks.

use snowbank_client::layout::{Layout, Numbering, WorkerSet};

use super::{NoPlan, Wanted};
use crate::report::{IDS, LOAD, ORIGIN, PROCESSOR, TARGET};
use crate::sweep::Sweep;
use crate::sweep::search::Limit;
use crate::units::{counted, grouped};
use crate::value::Mix;

/// The figures of a sweep, with what the plan wants otherwise.
#[derive(Debug)]
pub(crate) struct Basis {
    pub(super) knee_requests_per_s: f64,
    /// IDs per request of the plan, and of the sweep.
    pub(super) batch: Mix,
    swept_batch: Mix,
    /// Worker IDs of each daemon in the plan, and in the sweep.
    pub(super) worker_ids: u64,
    swept_worker_ids: u64,
    /// Connections of the sweep.
    pub(super) connections: u64,
    pub(super) threads: u64,
    pub(super) arrivals: String,
    pub(super) source: String,
    /// The objectives of the sweep: quantile and limit in microseconds.
    pub(super) objectives: Vec<(String, f64)>,
    /// `None` of counters, and of a source whose layout is not known.
    pub(super) numbering: Option<Numbering>,
    /// Requests per second of each step that held, with the processor time of each.
    costs: Vec<(f64, f64)>,
    own_daemon: bool,
    /// Its limit, if its knee is only a lower bound; the outer `None` if it is more.
    at_least: Option<Option<Limit>>,
    limit: Option<Limit>,
    cores: f64,
    is_debug: bool,
    version: String,
}

impl Basis {
    /// Reads a sweep.
    ///
    /// # Errors
    /// [`NoPlan`] if it cannot support this plan.
    pub(crate) fn of(sweep: &Sweep, wanted: &Wanted) -> Result<Self, NoPlan> {
        let unsupported = |reason: &str| NoPlan::Unsupported(format!("{reason} ({})", sweep.summary));
        let knee = sweep.knee.ok_or_else(|| unsupported("it found no knee"))?;
        if !sweep.confirmed {
            return Err(unsupported("its knee is not confirmed by a second run"));
        }
        let run = &sweep.at_knee().ok_or_else(|| unsupported("it has no run at its knee"))?.run;
        let (number, words) = (
            |row, name| run.figures.number(row, name).unwrap_or_default(),
            |row, name| run.figures.words(row, name).unwrap_or_default(),
        );
        if words(TARGET, "protocol") != "snowbank" {
            return Err(unsupported(
                "a plan knows the bytes of Snowbank's own protocol, and the sweep used another",
            ));
        }
        let swept_batch: Mix =
            words(LOAD, "IDs per request").parse().map_err(|_| unsupported("it does not say its batch"))?;
        let batch = wanted.batch.clone().unwrap_or_else(|| swept_batch.clone());
        let (asked, allowed) = (batch.max(), number(TARGET, "IDs of a request at most"));
        if f64::from(asked) > allowed {
            return Err(NoPlan::Options(format!(
                "--batch asks for {asked} IDs at once; the daemon of the sweep allows {allowed}"
            )));
        }
        let swept_worker_ids = (number(TARGET, "worker IDs") as u64).max(1);
        let worker_ids = wanted.worker_ids.map_or(swept_worker_ids, u64::from);
        let numbering = numbering(words(TARGET, "layout"), worker_ids)?;
        if numbering.as_ref().is_some_and(Numbering::needs_list) && batch != swept_batch {
            return Err(NoPlan::Unsupported(format!(
                "its layout puts every ID on the wire, so the cost of a request follows its size; sweep with the \
                 planned --batch (it had {swept_batch})"
            )));
        }
        let cost = |step: &crate::sweep::step::Step| {
            let at = step.run.figures.number(IDS, "rate")? / swept_batch.mean();
            Some((at, step.run.figures.number(PROCESSOR, "target's CPU per request")?))
        };
        Ok(Self {
            knee_requests_per_s: knee / swept_batch.mean(),
            costs: sweep.steps.iter().filter(|step| step.holds).filter_map(cost).collect(),
            connections: number(LOAD, "connections") as u64,
            threads: number(LOAD, "threads") as u64,
            arrivals: words(LOAD, "arrivals").to_owned(),
            source: words(TARGET, "source").to_owned(),
            objectives: run.objectives.iter().map(|it| (it.quantile.clone(), it.limit_us)).collect(),
            own_daemon: run.figures.get(TARGET, "started for this run").is_some(),
            at_least: sweep.at_least.then_some(sweep.limit),
            limit: sweep.limit,
            cores: number(ORIGIN, "cores"),
            is_debug: words(ORIGIN, "build") == "debug",
            version: words(ORIGIN, "load test").to_owned(),
            batch,
            swept_batch,
            worker_ids,
            swept_worker_ids,
            numbering,
        })
    }

    /// Returns the processor time of a request at a load. Requests share wake-ups under load and cost less, so the step
    /// next below the load counts, or the lowest step.
    pub(super) fn us_per_request(&self, requests_per_s: f64) -> Option<f64> {
        let mut costs = self.costs.clone();
        costs.sort_by(|one, other| one.0.total_cmp(&other.0));
        let below = costs.iter().rev().find(|(at, _)| *at <= requests_per_s * 1.001);
        below.or(costs.first()).map(|(_, us)| *us)
    }

    /// Returns what a plan from this sweep assumes.
    pub(super) fn assumptions(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.is_debug {
            all.push("The sweep was made with a debug build: its figures are not a release's.".to_owned());
        }
        let own = env!("CARGO_PKG_VERSION");
        if self.version != own {
            all.push(format!(
                "The sweep was made by version {}, this plan by {own}: sweep again.",
                self.version
            ));
        }
        all.push(match (self.own_daemon, self.costs.is_empty()) {
            (true, _) => format!(
                "Each daemon has a machine like the one of the sweep. There it shared {} cores with the generator: alone it \
                 does more.",
                self.cores
            ),
            (false, false) => "Each daemon has a machine like that of the sweep's daemon.".to_owned(),
            (false, true) => "Each daemon has a machine like that of the sweep's daemon, whose processor time is not known: \
                              sweep with --metrics to know how many cores it needs."
                .to_owned(),
        });
        if let Some(limit) = self.at_least {
            let reason = match limit {
                Some(Limit::Machine) => "the machine of the sweep gave no verdict above it",
                _ => "the sweep went no further",
            };
            all.push(format!("The knee is at least the figure used here: {reason}."));
        }
        if self.limit == Some(Limit::Layout) {
            all.push(
                "The layout ended the sweep: a daemon with more worker IDs may carry more requests."
                    .to_owned(),
            );
        }
        if self.batch != self.swept_batch {
            all.push(format!(
                "The sweep asked for {} IDs a request, the plan for {}: the cost of a request is carried over, not that of an \
                 ID. Sweep with --batch {} to know.",
                grouped(self.swept_batch.mean()),
                grouped(self.batch.mean()),
                self.batch
            ));
        }
        if self.worker_ids != self.swept_worker_ids {
            let held = counted(self.swept_worker_ids, "worker ID");
            all.push(format!("The sweep's daemon held {held}, the plan's hold {} each.", self.worker_ids));
        }
        all
    }
}

fn numbering(layout: &str, workers: u64) -> Result<Option<Numbering>, NoPlan> {
    // A counter, or a source of which nothing is known.
    let Ok(layout) = Layout::resolve(layout) else { return Ok(None) };
    let numbering = WorkerSet::from_list(0..workers).and_then(|workers| Numbering::new(layout, workers));
    numbering.map(Some).map_err(|error| NoPlan::Options(error.to_string()))
}
