//! From a sweep and a wanted rate: how many daemons, cores and worker IDs, and which limit binds.
//!
//! A plan is a division of figures of the sweep. It measures nothing, and lists what it assumes. A plan for another batch
//! size uses the cost of a *request*: a reply of IDs from one tick has the same length and the same system calls for any
//! number of IDs.
//!
//! - [`basis`]: what the sweep says. [`page`]: the plan as Markdown.

pub(crate) mod basis;
mod page;

use serde::Serialize;

use crate::report::figure::{Figures, Unit};
use crate::report::json::FORMAT;
use crate::units::{counted, grouped, ids_per_s};
use crate::value::{Mix, Rate, Share};
use basis::Basis;

/// More daemons than any fleet has.
const MAX_DAEMONS: f64 = 1e6;

/// The burst that a resting daemon answers at once, as a share of a second: the default `burst_window`.
const BURST_WINDOW_S: f64 = 0.01;

/// The rows of a plan's figures.
const FLEET: &str = "fleet";
const LIMITS: &str = "limit of one daemon";
const EACH: &str = "each daemon";

/// The options of a plan.
#[derive(Debug, clap::Args)]
pub(crate) struct Wanted {
    /// IDs per second of all clients together, at their peak
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(crate) rate: Rate,
    /// IDs per request: a number, or sizes with weights as in 1:90,100:9,10000:1 [default: the sweep's]
    #[arg(long, value_name = "N|MIX", allow_hyphen_values = true)]
    pub(crate) batch: Option<Mix>,
    /// Unused share of a daemon's limit. The default is half: peaks may double, and a daemon whose ID clock catches up after
    /// a crash has half of its full rate
    #[arg(long, value_name = "SHARE", default_value = "50%", allow_hyphen_values = true)]
    pub(crate) headroom: Share,
    /// Daemons beyond those that carry the rate, so that as many may be down
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) spare: u32,
    /// Worker IDs of each daemon [default: as many as in the sweep]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) worker_ids: Option<u32>,
}

/// A limit of one daemon.
#[derive(Debug, Clone)]
struct Limit {
    name: &'static str,
    ids_per_s: f64,
    /// The formula with its figures.
    formula: String,
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
    /// The figures that the sweep did not measure, one sentence each.
    assumptions: Vec<String>,
    /// The plan as Markdown.
    #[serde(skip)]
    pub(crate) page: String,
}

/// The reason why there is no plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPlan {
    /// The sweep has not enough to plan with, or the options contradict it.
    #[error("{0}")]
    Unsupported(String),
    /// It is impossible.
    #[error("no plan: {0}")]
    Impossible(String),
}

impl NoPlan {
    /// Returns 1 if the rate is impossible, 2 otherwise.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Impossible(_) => 1,
            Self::Unsupported(_) => 2,
        }
    }
}

/// The division of a plan: what goes into it, and what comes out.
struct Division<'a> {
    basis: &'a Basis,
    wanted: &'a Wanted,
    limits: Vec<Limit>,
    lowest: Limit,
    daemons: u64,
    ids_per_s_each: f64,
    requests_per_s_each: f64,
    /// The processor time of a request, if the sweep saw it.
    us_per_request: Option<f64>,
}

/// Computes a plan.
///
/// # Errors
/// [`NoPlan`] if no number of daemons is enough.
pub(crate) fn plan(basis: &Basis, wanted: &Wanted) -> Result<Plan, NoPlan> {
    let limits = limits(basis);
    let Some(lowest) = limits.iter().min_by(|a, b| a.ids_per_s.total_cmp(&b.ids_per_s)).cloned() else {
        unreachable!("the sweep's saturation point is always a limit");
    };
    // Rounding must not add one, as in 34,600 ÷ (173,000 × 0.2).
    let exact = wanted.rate.per_s() / (lowest.ids_per_s * (1.0 - wanted.headroom.0)) - 1e-9;
    let daemons = exact.ceil().max(1.0);
    if daemons > MAX_DAEMONS {
        return Err(NoPlan::Impossible(format!("it would take {daemons:.0} daemons")));
    }
    let ids_per_s_each = wanted.rate.per_s() / daemons;
    let requests_per_s_each = ids_per_s_each / basis.batch.mean();
    let division = Division {
        basis,
        wanted,
        limits,
        lowest,
        daemons: daemons as u64,
        ids_per_s_each,
        requests_per_s_each,
        us_per_request: basis.us_per_request(requests_per_s_each),
    };
    division.check_worker_ids()?;
    let assumptions = division.assumptions();
    Ok(Plan {
        format: FORMAT,
        kind: "plan",
        binding: division.lowest.name,
        figures: division.figures(),
        page: page::markdown(&division, &assumptions),
        assumptions,
    })
}

fn limits(basis: &Basis) -> Vec<Limit> {
    let batch = basis.batch.mean();
    let mut limits = Vec::new();
    if let Some(numbering) = &basis.numbering {
        let per_s = numbering.layout().ids_per_second() as f64;
        let formula = format!("{} × {}", counted(basis.worker_ids, "worker ID"), ids_per_s(per_s));
        limits.push(Limit { name: "layout", ids_per_s: per_s * basis.worker_ids as f64, formula });
    }
    let (requests, ids) = (grouped(basis.saturation_requests_per_s), grouped(batch));
    limits.push(Limit {
        name: "CPU",
        ids_per_s: basis.saturation_requests_per_s * batch,
        formula: format!("{requests} requests/s at the saturation point × {ids} IDs a request"),
    });
    limits
}

impl Division<'_> {
    /// Returns the cores that a daemon keeps busy, and those that it should have.
    fn cores(&self) -> Option<(f64, u64)> {
        let busy = self.requests_per_s_each * self.us_per_request? / 1e6;
        Some((busy, (busy / (1.0 - self.wanted.headroom.0)).ceil().max(1.0) as u64))
    }

    /// Returns the number of worker IDs that all daemons need.
    fn worker_ids(&self) -> u64 {
        (self.daemons + u64::from(self.wanted.spare)) * self.basis.worker_ids
    }

    fn check_worker_ids(&self) -> Result<(), NoPlan> {
        let Some(numbering) = &self.basis.numbering else { return Ok(()) };
        let (used, all) = (self.worker_ids(), numbering.layout().workers());
        if used <= all {
            return Ok(());
        }
        Err(NoPlan::Impossible(format!(
            "{} and {} spare, with {} each, need {}; the layout has {all}",
            counted(self.daemons, "daemon"),
            self.wanted.spare,
            counted(self.basis.worker_ids, "worker ID"),
            counted(used, "worker ID"),
        )))
    }

    fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        figures.add(FLEET, "rate", Unit::IdsPerS, self.wanted.rate.per_s());
        figures.add(FLEET, "daemons", Unit::None, self.daemons);
        figures.add(FLEET, "spare", Unit::None, u64::from(self.wanted.spare));
        figures.add(FLEET, "unused share of the limit", Unit::Share, self.wanted.headroom.0);
        for limit in &self.limits {
            figures.add(LIMITS, limit.name, Unit::IdsPerS, limit.ids_per_s);
        }
        figures.add(EACH, "rate", Unit::IdsPerS, self.ids_per_s_each);
        figures.add(EACH, "requests per second", Unit::None, self.requests_per_s_each);
        figures.add(EACH, "CPU per request", Unit::Us, self.us_per_request);
        figures.add(EACH, "cores busy", Unit::None, self.cores().map(|(busy, _)| busy));
        figures.add(EACH, "cores", Unit::None, self.cores().map(|(_, cores)| cores));
        figures.add(EACH, "worker IDs", Unit::None, self.basis.worker_ids);
        figures
    }

    /// Returns what the sweep did not measure.
    fn assumptions(&self) -> Vec<String> {
        let basis = self.basis;
        let mut all = basis.assumptions.clone();
        if self.daemons + u64::from(self.wanted.spare) > 1 {
            let evenly = "The requests spread evenly over the daemons. A client that stays with one gives it its whole rate.";
            all.push(evenly.to_owned());
        }
        let Some(numbering) = &basis.numbering else { return all };
        let full_rate = numbering.layout().ids_per_second() as f64 * basis.worker_ids as f64;
        let largest = f64::from(basis.batch.max());
        if largest > full_rate * BURST_WINDOW_S {
            all.push(format!(
                "A request for {} IDs is {:.0} ms of a daemon's full rate: it waits for ticks, and the objective is not for it.",
                grouped(largest),
                largest / full_rate * 1e3
            ));
        }
        if self.ids_per_s_each > full_rate / 2.0 {
            all.push(format!(
                "While a daemon's ID clock catches up (after a kill, or a clock that stepped back) it has half of its full \
                 rate, {}: some requests are refused then. A headroom of 50% or more avoids that.",
                ids_per_s(full_rate / 2.0)
            ));
        }
        all
    }
}
