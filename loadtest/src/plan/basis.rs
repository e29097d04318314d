//! The figures of a sweep that a plan needs, and those that it lacks.

use snowbank_client::layout::{Layout, Numbering, WorkerSet};

use super::{NoPlan, Wanted};
use crate::report::json::Run;
use crate::report::{IDS, LOAD, ORIGIN, PROCESSOR, TARGET};
use crate::sweep::Sweep;
use crate::sweep::search::Limit;
use crate::units::grouped;
use crate::value::Mix;

/// The figures of a sweep, with what the plan wants otherwise.
#[derive(Debug)]
pub(crate) struct Basis {
    pub(super) saturation_requests_per_s: f64,
    /// IDs per request.
    pub(super) batch: Mix,
    /// Worker IDs of each daemon.
    pub(super) worker_ids: u64,
    /// The run at the saturation point.
    pub(super) run: Run,
    /// `None` of counters, and of a source whose layout is not known.
    pub(super) numbering: Option<Numbering>,
    /// Each step that held, by its rate.
    costs: Vec<Cost>,
    /// The assumptions of a plan from this sweep.
    pub(super) assumptions: Vec<String>,
}

/// The cost of a request at a load.
#[derive(Debug)]
struct Cost {
    requests_per_s: f64,
    us_per_request: f64,
}

impl Basis {
    /// Reads a sweep.
    ///
    /// # Errors
    /// [`NoPlan`] if it cannot support this plan.
    pub(crate) fn of(sweep: &Sweep, wanted: &Wanted) -> Result<Self, NoPlan> {
        let unsupported = |reason: &str| {
            NoPlan::Unsupported(format!("the sweep cannot support a plan: {reason} ({})", sweep.summary))
        };
        let saturation = sweep.saturation.ok_or_else(|| unsupported("it found no saturation point"))?;
        if !sweep.confirmed {
            return Err(unsupported("its saturation point is not confirmed by a second run"));
        }
        let run =
            &sweep.at_saturation().ok_or_else(|| unsupported("it has no run at its saturation point"))?.run;
        if run.figures.words(TARGET, "protocol") != Some("snowbank") {
            return Err(unsupported("a plan is for Snowbank's own protocol, and the sweep used another"));
        }
        let swept: Option<Mix> =
            run.figures.words(LOAD, "IDs per request").and_then(|words| words.parse().ok());
        let swept = swept.ok_or_else(|| unsupported("it does not say its batch"))?;
        let batch = wanted.batch.clone().unwrap_or_else(|| swept.clone());
        let allowed = run.figures.number(TARGET, "IDs of a request at most").unwrap_or_default();
        if f64::from(batch.max()) > allowed {
            return Err(NoPlan::Unsupported(format!(
                "--batch asks for {} IDs at once; the daemon of the sweep allows {allowed}",
                batch.max()
            )));
        }
        let held = run.figures.number(TARGET, "worker IDs").unwrap_or_default() as u64;
        let worker_ids = wanted.worker_ids.map_or(held.max(1), u64::from);
        let numbering = numbering(run.figures.words(TARGET, "layout").unwrap_or_default(), worker_ids)?;
        if numbering.as_ref().is_some_and(Numbering::needs_list) && batch != swept {
            return Err(unsupported(
                "its layout puts every ID on the wire, so the cost of a request follows its size; sweep with the planned \
                 --batch",
            ));
        }
        let costs = costs(sweep, &swept);
        Ok(Self {
            saturation_requests_per_s: saturation / swept.mean(),
            assumptions: assumptions(sweep, run, &batch, &swept),
            run: run.clone(),
            costs,
            batch,
            worker_ids,
            numbering,
        })
    }

    /// Returns the processor time of a request at a load. Requests share wake-ups under load and cost less, so the step
    /// next below the load counts, or the lowest step.
    pub(super) fn us_per_request(&self, requests_per_s: f64) -> Option<f64> {
        let below = self.costs.iter().rev().find(|cost| cost.requests_per_s <= requests_per_s * 1.001);
        below.or(self.costs.first()).map(|cost| cost.us_per_request)
    }
}

fn costs(sweep: &Sweep, batch: &Mix) -> Vec<Cost> {
    let mut costs = Vec::new();
    for step in sweep.steps.iter().filter(|step| step.holds) {
        let figures = &step.run.figures;
        let found = figures.number(IDS, "rate").zip(figures.number(PROCESSOR, "target's CPU per request"));
        if let Some((ids_per_s, us_per_request)) = found {
            costs.push(Cost { requests_per_s: ids_per_s / batch.mean(), us_per_request });
        }
    }
    costs.sort_by(|one, other| one.requests_per_s.total_cmp(&other.requests_per_s));
    costs
}

/// Returns what a plan from this sweep assumes.
fn assumptions(sweep: &Sweep, run: &Run, batch: &Mix, swept: &Mix) -> Vec<String> {
    let mut all = Vec::new();
    if run.figures.words(ORIGIN, "build") == Some("debug") {
        all.push("The sweep was made with a debug build: its figures are not a release's.".to_owned());
    }
    all.push(if run.figures.get(TARGET, "started for this run").is_some() {
        let cores = run.figures.text(ORIGIN, "cores");
        format!(
            "Each daemon has a machine like the one of the sweep. There it shared {cores} cores with the generator: alone it \
             does more."
        )
    } else {
        "Each daemon has a machine like that of the sweep's daemon.".to_owned()
    });
    if sweep.at_least {
        let reason = match sweep.limit {
            Some(Limit::Machine) => "the machine of the sweep gave no verdict above it",
            _ => "the sweep went no further",
        };
        all.push(format!("The saturation point is at least the figure used here: {reason}."));
    }
    if sweep.limit == Some(Limit::Layout) {
        all.push(
            "The layout ended the sweep: a daemon with more worker IDs may carry more requests.".to_owned(),
        );
    }
    if batch != swept {
        all.push(format!(
            "The sweep asked for {} IDs a request, the plan for {}: the cost of a request is carried over, not that of an ID. \
             Sweep with --batch {batch} to know.",
            grouped(swept.mean()),
            grouped(batch.mean()),
        ));
    }
    all
}

fn numbering(layout: &str, workers: u64) -> Result<Option<Numbering>, NoPlan> {
    // A counter, or a source of which nothing is known.
    let Ok(layout) = Layout::resolve(layout) else { return Ok(None) };
    let numbering = WorkerSet::from_list(0..workers).and_then(|workers| Numbering::new(layout, workers));
    numbering.map(Some).map_err(|error| NoPlan::Unsupported(error.to_string()))
}
