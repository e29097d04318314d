//! Computes from a sweep how many daemons, cores and worker IDs a wanted rate needs, and which
//! limit binds.
//!
//! A plan divides figures of the sweep. It measures nothing, and lists its assumptions. The plan is
//! right only for requests of the sweep's size. For another size, make another sweep.
//!
//! The plan is one list of figures with their formulas. The page shows the list as a table.

use serde::Serialize;
use serde_json::Value;
use snowbank_id::layout::{Layout, LayoutNumbering, WorkerSet};

use crate::failure::Failure;
use crate::figure::{Figures, Unit};
use crate::report::json::{FORMAT, Objective, Run};
use crate::report::{LOAD, ORIGIN, PROCESSOR, TARGET};
use crate::sweep::Sweep;
use crate::sweep::step::Step;
use crate::units::{counted, grouped, ids_per_s};
use crate::value::{Rate, Share};

/// The options of a plan.
#[derive(Debug, clap::Args)]
pub(crate) struct Wanted {
    /// IDs per second of all clients together, at their peak
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(crate) rate: Rate,
    /// Share of a daemon's limit to leave unused. Half allows for peaks of twice the rate, and for
    /// a daemon that catches up after a crash at half of its full rate
    #[arg(long, value_name = "SHARE", default_value = "50%", allow_hyphen_values = true)]
    pub(crate) headroom: Share,
    /// Spare daemons: this many may be down at the same time
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) spare: u32,
    /// Worker IDs of each daemon [default: as many as in the sweep]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) worker_ids: Option<u32>,
}

/// A plan, with the keys of its JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Plan {
    /// [`FORMAT`].
    format: u32,
    /// `plan`.
    kind: &'static str,
    /// The name of the lowest limit.
    binding: &'static str,
    figures: Figures,
    /// The assumptions of the plan that the sweep did not measure.
    assumptions: Vec<String>,
    #[serde(skip)]
    pub(crate) page: String,
}

/// The figures of a sweep that a plan divides.
struct Basis<'a> {
    sweep: &'a Sweep,
    /// The run at the saturation point.
    run: &'a Run,
    /// IDs per request.
    batch: f64,
    /// Worker IDs of each daemon.
    worker_ids: u64,
    /// `None` for a counter, and for a source of unknown layout.
    numbering: Option<LayoutNumbering>,
}

/// A limit of one daemon.
struct Limit {
    name: &'static str,
    ids_per_s: f64,
    formula: String,
}

/// The figures added so far, and the table that shows them with their formulas.
#[derive(Default)]
struct Sum {
    row: &'static str,
    figures: Figures,
    table: String,
}

impl Sum {
    fn add(&mut self, name: &str, unit: Unit, value: impl Into<Value>, formula: &str) {
        self.figures.add(self.row, name, unit, value);
        let text = self.figures.text(self.row, name);
        self.table += &format!("| {} | {name} | {text} | {formula} |\n", self.row);
    }
}

/// Computes a plan.
///
/// # Errors
/// [`Failure`] if the sweep cannot support a plan, or the layout has too few worker IDs.
pub(crate) fn plan(sweep: &Sweep, wanted: &Wanted) -> Result<Plan, Failure> {
    let basis = Basis::of(sweep, wanted)?;
    let rate = wanted.rate.per_s();
    let spare = u64::from(wanted.spare);
    let used_share = 1.0 - wanted.headroom.0;
    let limits = basis.limits();
    let lowest = &limits[0];
    let exact = rate / (lowest.ids_per_s * used_share);
    // A rounding error must not add a daemon, as in 34,600 ÷ (173,000 × 0.2).
    let daemons = (exact - 1e-9).ceil().max(1.0);
    let all_daemons = (daemons as u64).saturating_add(spare);
    basis.check_worker_ids(all_daemons)?;
    let each_ids_per_s = rate / daemons;
    let each_requests_per_s = each_ids_per_s / basis.batch;
    let cost_us = basis.us_per_request(each_requests_per_s);
    let busy = cost_us.map(|us| each_requests_per_s * us / 1e6);
    let cores = busy.map(|busy| (busy / used_share).ceil().max(1.0) as u64);

    let mut sum = Sum { row: "fleet", ..Sum::default() };
    let title = format!("# Snowbank: {} for {}", counted(all_daemons, "daemon"), ids_per_s(rate));
    sum.table = format!("{title}\n\n| | | | formula |\n|---|---|---|---|\n");
    sum.add("rate", Unit::IdsPerS, rate, &basis.within());
    let division =
        format!("rate ÷ (lowest limit × (1 − unused share)) = {exact:.2}, with the spare ones down");
    sum.add("daemons", Unit::None, daemons as u64, &division);
    sum.add("spare", Unit::None, spare, "");
    sum.add("unused share of the limit", Unit::Share, wanted.headroom.0, "");
    sum.row = "limit of one daemon";
    for limit in &limits {
        let binds = if limit.name == lowest.name { ": binds" } else { "" };
        sum.add(limit.name, Unit::IdsPerS, limit.ids_per_s, &format!("{}{binds}", limit.formula));
    }
    sum.row = "each daemon";
    sum.add("rate", Unit::IdsPerS, each_ids_per_s, "rate ÷ daemons");
    let batch = format!("rate ÷ IDs per request, {}", grouped(basis.batch));
    sum.add("requests per second", Unit::None, each_requests_per_s, &batch);
    let step = "of the sweep's step at or below that rate, if the sweep ran on the daemon's machine";
    sum.add("CPU per request", Unit::Us, cost_us, step);
    sum.add("cores busy", Unit::None, busy, "requests per second × CPU per request");
    sum.add("cores", Unit::None, cores, "cores busy ÷ (1 − unused share)");
    if basis.numbering.is_some() {
        let worker_ids = format!("of all daemons: {}", grouped((all_daemons * basis.worker_ids) as f64));
        sum.add("worker IDs", Unit::None, basis.worker_ids, &worker_ids);
    }

    let assumptions = basis.assumptions(all_daemons, each_ids_per_s);
    let alert = ids_per_s(lowest.ids_per_s * used_share);
    let page = page(&sum.table, &assumptions, &basis.check_command(each_ids_per_s), &alert);
    Ok(Plan { format: FORMAT, kind: "plan", binding: lowest.name, figures: sum.figures, assumptions, page })
}

/// Returns the plan as one screen of Markdown.
fn page(table: &str, assumptions: &[String], check: &str, alert: &str) -> String {
    let assumptions: String = assumptions.iter().map(|line| format!("- {line}\n")).collect();
    format!(
        "{table}\nAssumed, and not measured:\n\n{assumptions}\n\
         To check it, load each daemon with its share from another machine; the run has to pass:\n\n\
         ```text\n{check}\n```\n\nAlert when a daemon hands out more than {alert}, its limit less the unused share.\n"
    )
}

fn lacks(sweep: &Sweep, reason: &str) -> Failure {
    Failure::usage(format_args!("the sweep cannot support a plan: {reason} ({})", sweep.summary))
}

/// Returns the processor time of a request in a step of the sweep.
fn us_per_request_of(step: &Step) -> Option<f64> {
    step.run.figures.number(PROCESSOR, "target's CPU per request")
}

impl<'a> Basis<'a> {
    fn of(sweep: &'a Sweep, wanted: &Wanted) -> Result<Self, Failure> {
        let step = sweep.at_saturation().ok_or_else(|| lacks(sweep, "it found no saturation point"))?;
        if !sweep.confirmed {
            return Err(lacks(sweep, "its saturation point is not confirmed by a second run"));
        }
        let figures = &step.run.figures;
        if figures.words(TARGET, "protocol") != Some("snowbank") {
            return Err(lacks(sweep, "a plan is for Snowbank's own protocol, and the sweep used another"));
        }
        let batch = figures.number(LOAD, "IDs per request").filter(|&batch| batch >= 1.0);
        let batch = batch.ok_or_else(|| lacks(sweep, "it does not say its batch"))?;
        let held = figures.number(TARGET, "worker IDs").unwrap_or_default() as u64;
        let worker_ids = wanted.worker_ids.map_or(held.max(1), u64::from);
        let numbering = numbering(figures.words(TARGET, "layout").unwrap_or_default(), worker_ids)?;
        Ok(Self { sweep, run: &step.run, batch, worker_ids, numbering })
    }

    fn limits(&self) -> Vec<Limit> {
        let mut limits = vec![Limit {
            name: "CPU",
            ids_per_s: self.sweep.saturation.unwrap_or_default(),
            formula: if self.sweep.at_least { "at least: " } else { "" }.to_owned() + "the saturation point",
        }];
        if let Some(full_rate) = self.full_rate() {
            let each = ids_per_s(full_rate / self.worker_ids as f64);
            let formula = format!("{} × {each}", counted(self.worker_ids, "worker ID"));
            limits.push(Limit { name: "layout", ids_per_s: full_rate, formula });
        }
        limits.sort_by(|one, other| one.ids_per_s.total_cmp(&other.ids_per_s));
        limits
    }

    /// Returns the most IDs per second that one daemon can make with its worker IDs.
    fn full_rate(&self) -> Option<f64> {
        Some(self.numbering.as_ref()?.layout().ids_per_second() as f64 * self.worker_ids as f64)
    }

    /// Returns the processor time of a request at this many requests per second. At a higher load,
    /// requests share wake-ups and cost less. So the figure is that of the highest step at or below
    /// the load. If all steps are above the load, it is that of the lowest. Steps that miss the
    /// objective do not count.
    fn us_per_request(&self, requests_per_s: f64) -> Option<f64> {
        let mut known: Vec<&Step> =
            self.sweep.steps.iter().filter(|step| step.holds && us_per_request_of(step).is_some()).collect();
        known.sort_by(|one, other| one.rate().total_cmp(&other.rate()));
        let above = known.partition_point(|step| step.rate() / self.batch <= requests_per_s);
        us_per_request_of(known.get(above.saturating_sub(1))?)
    }

    /// Checks that the layout has worker IDs for all daemons.
    fn check_worker_ids(&self, all_daemons: u64) -> Result<(), Failure> {
        let Some(numbering) = &self.numbering else { return Ok(()) };
        let wanted = all_daemons.saturating_mul(self.worker_ids);
        let all = numbering.layout().workers();
        if wanted <= all {
            return Ok(());
        }
        Err(Failure::from_target(format_args!(
            "no plan: {}, with {} each, need {}; the layout has {all}",
            counted(all_daemons, "daemon"),
            counted(self.worker_ids, "worker ID"),
            counted(wanted, "worker ID")
        )))
    }

    fn within(&self) -> String {
        let objectives = self.run.objectives.iter();
        let within = objectives.map(|it| format!("{} within {} ms", it.quantile, it.limit_us / 1e3));
        within.collect::<Vec<_>>().join(", ")
    }

    fn assumptions(&self, all_daemons: u64, each_ids_per_s: f64) -> Vec<String> {
        let run = self.run;
        let mut all = Vec::new();
        if run.figures.words(ORIGIN, "build") == Some("debug") {
            all.push("The sweep was made with a debug build: its figures are not a release's.".to_owned());
        }
        all.push(match run.figures.get(TARGET, "started for this run") {
            None => "Each daemon has a machine like that of the sweep's daemon.".to_owned(),
            Some(_) => format!(
                "Each daemon has a machine like the one of the sweep. There it shared {} cores with the generator: alone it \
                 does more.",
                run.figures.text(ORIGIN, "cores")
            ),
        });
        if all_daemons > 1 {
            all.push("The requests spread evenly over the daemons.".to_owned());
        }
        if let Some(full_rate) = self.full_rate().filter(|full_rate| each_ids_per_s > full_rate / 2.0) {
            all.push(format!(
                "While a daemon's ID clock catches up (after a kill, or a clock that stepped back) it has half of its full \
                 rate, {}: some requests are refused then. A headroom of 50% or more avoids that.",
                ids_per_s(full_rate / 2.0)
            ));
        }
        all
    }

    /// Returns the command that loads one daemon with its share.
    fn check_command(&self, each_ids_per_s: f64) -> String {
        let figures = &self.run.figures;
        let mut command = format!(
            "snowbank-loadtest --address HOST:PORT --rate {:.0}/s --batch {} --connections {} --threads {}",
            each_ids_per_s.ceil(),
            self.batch,
            figures.number(LOAD, "connections").unwrap_or_default(),
            figures.number(LOAD, "threads").unwrap_or_default(),
        );
        if let Some(source) = figures.words(TARGET, "source").filter(|&source| source != "default") {
            command += &format!(" --source {source}");
        }
        if figures.words(LOAD, "arrivals") == Some("poisson") {
            command += " --poisson";
        }
        for Objective { quantile, limit_us, .. } in &self.run.objectives {
            command += &format!(" --{quantile} {}ms", limit_us / 1e3);
        }
        command + " --for 60s"
    }
}

fn numbering(layout: &str, workers: u64) -> Result<Option<LayoutNumbering>, Failure> {
    // If this fails, the source is a counter, or its layout is unknown.
    let Ok(layout) = Layout::resolve(layout) else { return Ok(None) };
    let numbering =
        WorkerSet::from_list(0..workers).and_then(|workers| LayoutNumbering::new(layout, workers));
    numbering.map(Some).map_err(Failure::usage)
}
