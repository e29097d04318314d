//! From a sweep and a wanted rate: how many daemons, cores and worker IDs, and which limit binds.
//!
//! A plan is arithmetic on figures of the sweep; it measures nothing, and lists what it assumes. A plan for another batch
//! size uses the cost of a *request*: a reply of IDs from one tick has the same length and the same system calls for any
//! number of IDs.
//!
//! - [`basis`]: what the sweep says. [`wire`]: bytes on the network. [`page`]: the plan as Markdown.

pub(crate) mod basis;
mod page;
mod wire;

use serde::Serialize;
use snowbank_client::layout::{Life, UnixMicros};

use crate::report::figure::{Figures, Unit};
use crate::report::json::FORMAT;
use crate::units::{counted, grouped, ids_per_s};
use crate::value::{Bandwidth, Mix, Rate, Share};
use basis::Basis;
use wire::Wire;

/// The resident memory of a daemon, idle or under load: 9 MiB, rounded up.
const RESIDENT_BYTES: u64 = 10 << 20;

/// The bytes that an idle connection adds, as measured.
const CONNECTION_BYTES: u64 = 807;

/// More daemons than any fleet has.
const MAX_DAEMONS: f64 = 1e6;

/// The daemon's default `max_connections`.
const MAX_CONNECTIONS: u64 = 10_000;

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
    /// Connections that one daemon may have to carry [default: as many as in the sweep]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) connections: Option<u32>,
    /// Bandwidth of a daemon's network each way, as in 1Gbit; without it, the network is no limit
    #[arg(long, value_name = "BANDWIDTH", allow_hyphen_values = true)]
    pub(crate) network: Option<Bandwidth>,
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
    /// The sweep has not enough to plan with.
    #[error("the sweep cannot support a plan: {0}")]
    Unsupported(String),
    /// Options that contradict the sweep.
    #[error("{0}")]
    Options(String),
    /// It is impossible.
    #[error("no plan: {0}")]
    Impossible(String),
}

impl NoPlan {
    /// Returns 1 if the rate is impossible, 2 otherwise.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Impossible(_) => 1,
            Self::Unsupported(_) | Self::Options(_) => 2,
        }
    }
}

/// The division of a plan: what goes into it, and what comes out.
struct Division<'a> {
    basis: &'a Basis,
    wanted: &'a Wanted,
    wire: Wire,
    limits: Vec<Limit>,
    lowest: Limit,
    daemons: u64,
    ids_per_s_each: f64,
    requests_per_s_each: f64,
    /// The processor time of a request, if the sweep saw it.
    us_per_request: Option<f64>,
}

/// Computes a plan at an instant, in Unix microseconds.
///
/// # Errors
/// [`NoPlan`] if the sweep lacks a figure, or no number of daemons is enough.
pub(crate) fn plan(basis: &Basis, wanted: &Wanted, now_us: i64) -> Result<Plan, NoPlan> {
    let wire = Wire::of(basis.numbering.as_ref(), basis.batch.mean());
    let limits = limits(basis, wanted, &wire);
    let Some(lowest) = limits.iter().min_by(|a, b| a.ids_per_s.total_cmp(&b.ids_per_s)).cloned() else {
        unreachable!("the sweep's knee is always a limit");
    };
    let daemons = daemons(wanted, lowest.ids_per_s)?;
    let ids_per_s_each = wanted.rate.per_s() / daemons as f64;
    let requests_per_s_each = ids_per_s_each / basis.batch.mean();
    let us_per_request = basis.us_per_request(requests_per_s_each);
    let division = Division {
        basis,
        wanted,
        wire,
        limits,
        lowest,
        daemons,
        ids_per_s_each,
        requests_per_s_each,
        us_per_request,
    };
    let space = division.space(now_us)?;
    let assumptions = division.assumptions();
    Ok(Plan {
        format: FORMAT,
        kind: "plan",
        binding: division.lowest.name,
        figures: division.figures(),
        page: page::markdown(&division, &space, &assumptions),
        assumptions,
    })
}

fn limits(basis: &Basis, wanted: &Wanted, wire: &Wire) -> Vec<Limit> {
    let batch = basis.batch.mean();
    let each = counted_ids(batch);
    let layout = basis.numbering.as_ref().map(|numbering| {
        let per_s = numbering.layout().ids_per_second() as f64;
        let formula = format!("{} × {}", counted(basis.worker_ids, "worker ID"), ids_per_s(per_s));
        Limit { name: "layout", ids_per_s: per_s * basis.worker_ids as f64, formula }
    });
    let requests = grouped(basis.knee_requests_per_s);
    let cpu = Limit {
        name: "CPU",
        ids_per_s: basis.knee_requests_per_s * batch,
        formula: format!("{requests} requests/s at the knee × {each} a request"),
    };
    let bytes = wire.busier_bytes();
    let network = wanted.network.map(|Bandwidth(bits_per_s)| Limit {
        name: "network",
        ids_per_s: bits_per_s / 8.0 / bytes * batch,
        formula: format!("{} bit/s ÷ 8 ÷ {} bytes × {each} a request", grouped(bits_per_s), grouped(bytes)),
    });
    layout.into_iter().chain([cpu]).chain(network).collect()
}

fn counted_ids(number: f64) -> String {
    format!("{} ID{}", grouped(number), if number == 1.0 { "" } else { "s" })
}

/// Returns the number of daemons that carry the rate.
fn daemons(wanted: &Wanted, lowest_limit: f64) -> Result<u64, NoPlan> {
    // Rounding must not add one, as in 34,600 ÷ (173,000 × 0.2).
    let exact = wanted.rate.per_s() / (lowest_limit * (1.0 - wanted.headroom.0)) - 1e-9;
    let daemons = exact.ceil().max(1.0);
    if daemons > MAX_DAEMONS {
        return Err(NoPlan::Impossible(format!("it would take {daemons:.0} daemons")));
    }
    Ok(daemons as u64)
}

impl Division<'_> {
    fn connections(&self) -> u64 {
        self.wanted.connections.map_or(self.basis.connections, u64::from)
    }

    fn memory_bytes(&self) -> u64 {
        RESIDENT_BYTES + self.connections() * CONNECTION_BYTES
    }

    /// Returns the cores that a daemon keeps busy, and those that it should have.
    fn cores(&self) -> Option<(f64, u64)> {
        let busy = self.requests_per_s_each * self.us_per_request? / 1e6;
        Some((busy, (busy / (1.0 - self.wanted.headroom.0)).ceil().max(1.0) as u64))
    }

    fn network_bits_per_s(&self) -> f64 {
        self.requests_per_s_each * self.wire.busier_bytes() * 8.0
    }

    /// Returns the worker IDs that are used, and for how long the layout has IDs, one sentence each.
    fn space(&self, now_us: i64) -> Result<Vec<String>, NoPlan> {
        let Some(numbering) = &self.basis.numbering else {
            return Ok(vec![
                "IDs: the source has no layout: it ends with its numbers, not with a date.".to_owned(),
            ]);
        };
        let (layout, each, spare) = (numbering.layout(), self.basis.worker_ids, u64::from(self.wanted.spare));
        let (used, all) = ((self.daemons + spare) * each, layout.workers());
        if used > all {
            return Err(NoPlan::Impossible(format!(
                "{} and {spare} spare, with {} each, need {}; the layout has {all}",
                counted(self.daemons, "daemon"),
                counted(each, "worker ID"),
                counted(used, "worker ID"),
            )));
        }
        let left = match layout.life(UnixMicros(now_us)) {
            Life::Running { left } | Life::LastYear { left } => left,
            Life::NotBegun => {
                return Err(NoPlan::Impossible("the layout's epoch is in the future".to_owned()));
            }
            Life::Ended { at } => {
                let at = layout.rfc3339(at);
                return Err(NoPlan::Impossible(format!("the layout's life ended at {at}")));
            }
        };
        let years = left.as_secs_f64() / (365.2425 * 86_400.0);
        Ok(vec![
            format!(
                "Worker IDs: {each} × ({} + {spare}) = {used} of the layout's {}.",
                self.daemons,
                grouped(all as f64)
            ),
            format!(
                "IDs: the layout has some until {}, {years:.1} years from now, at any rate.",
                layout.end().date()
            ),
        ])
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
        figures.add(EACH, "memory", Unit::Bytes, self.memory_bytes());
        figures.add(EACH, "network bits per second", Unit::None, self.network_bits_per_s());
        figures.add(EACH, "worker IDs", Unit::None, self.basis.worker_ids);
        figures
    }

    /// Returns what the sweep did not measure.
    fn assumptions(&self) -> Vec<String> {
        let (basis, connections) = (self.basis, self.connections());
        let mut all = basis.assumptions();
        if connections != basis.connections {
            all.push(format!(
                "The sweep had {} connections, the plan has {connections}: sweep with --connections {connections} to know.",
                basis.connections
            ));
        }
        if connections > MAX_CONNECTIONS {
            all.push(format!(
                "{} connections are more than a daemon takes by default: raise max_connections, and the file limit.",
                grouped(connections as f64)
            ));
        }
        if self.daemons + u64::from(self.wanted.spare) > 1 {
            let evenly = "The requests spread evenly over the daemons. A client that stays with one gives it its whole rate.";
            all.push(evenly.to_owned());
        }
        if self.wanted.spare == 0 {
            all.push("No spare: one daemon that stops takes its share of the rate with it.".to_owned());
        }
        let full_rate = basis.numbering.as_ref();
        let full_rate = full_rate.map(|it| it.layout().ids_per_second() as f64 * basis.worker_ids as f64);
        let Some(full_rate) = full_rate else { return all };
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
                 rate, {}: some requests are refused then. A head-room of 50% or more avoids that.",
                ids_per_s(full_rate / 2.0)
            ));
        }
        all
    }
}
