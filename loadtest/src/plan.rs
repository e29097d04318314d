//! From a sweep and a wanted rate: how many daemons, cores and worker IDs, and which limit binds.
//!
//! A plan is arithmetic on figures of the sweep; it measures nothing. Its [`warnings`](Plan::warnings) list
//! its assumptions. A plan for another batch size uses the cost of a *request*: a reply of IDs from one tick
//! has the same length and the same system calls for any number of IDs.
//!
//! - [`form`]: the layout and its space. [`network`]: bytes on the wire. [`swept`]: the keys of a sweep's
//!   file.
//! - [`page`]: the plan as Markdown. `warnings`: its assumptions.

pub(crate) mod form;
pub(crate) mod network;
pub(crate) mod page;
pub(crate) mod swept;
mod warnings;

use std::time::SystemTime;

use serde::Serialize;
use snowbank_client::layout::LayoutError;

use crate::report::json::FORMAT;
use crate::schedule::Arrivals;
use crate::sweep::file::Objective;
use crate::units::{counted, grouped, ids, ids_per_s};
use crate::value::{Bandwidth, Mix, Rate, Share};
use form::{Form, Space};
use network::Wire;
use swept::Swept;

/// The resident memory of a daemon, idle or under load: 9 MiB, rounded up.
const RESIDENT_BYTES: u64 = 10 << 20;

/// The bytes that an idle connection adds, as measured.
const CONNECTION_BYTES: u64 = 807;

/// More daemons than any fleet has.
const MAX_DAEMONS: f64 = 1e6;

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
    /// Another layout than the sweep's: a preset's name or a text form
    #[arg(long, value_name = "NAME|SPEC")]
    pub(crate) layout: Option<String>,
}

/// The limits of one daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Binding {
    /// The IDs that the layout has for its worker IDs.
    Layout,
    /// The requests per second that the sweep found.
    Cpu,
    /// The bytes of these requests.
    Network,
}

/// One limit of one daemon.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DaemonLimit {
    pub(crate) binding: Binding,
    pub(crate) ids_per_s: f64,
    /// The formula with its figures.
    pub(crate) formula: String,
}

/// A plan.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Plan {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// `plan`.
    pub(crate) kind: &'static str,
    pub(crate) inputs: Inputs,
    /// The limits of one daemon.
    pub(crate) limits: Vec<DaemonLimit>,
    /// The lowest of them.
    pub(crate) binding: Binding,
    /// Daemons that carry the rate.
    pub(crate) daemons: u64,
    /// Daemons beyond those.
    pub(crate) spare: u64,
    /// IDs per second of each while the spare ones are down.
    pub(crate) ids_per_s_each: f64,
    /// Requests per second of each while the spare ones are down.
    pub(crate) requests_per_s_each: f64,
    /// The cost of a request at that load; none if the sweep did not see it.
    pub(crate) cpu_cost: Option<CpuCost>,
    /// Cores that each keeps busy; none where the sweep could not see the daemon's.
    pub(crate) busy_cores_each: Option<f64>,
    /// Cores that each should have.
    pub(crate) cores_each: Option<u64>,
    /// Resident memory of each, in bytes, its connections idle.
    pub(crate) memory_bytes_each: u64,
    /// Bits per second of each in the direction that carries more.
    pub(crate) network_bits_per_s_each: f64,
    /// Bytes of a request and its reply.
    pub(crate) wire: Wire,
    /// The space of the layout; none where IDs have no layout.
    pub(crate) space: Option<Space>,
    /// Assumptions, and facts worth a second look.
    pub(crate) warnings: Vec<String>,
}

/// The options and the sweep's facts as plain figures.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Inputs {
    /// IDs per second of the fleet.
    pub(crate) ids_per_s: f64,
    /// IDs per request in the long run.
    pub(crate) batch: f64,
    /// The same as on the command line.
    pub(crate) batch_option: String,
    /// From 0 to 1.
    pub(crate) headroom: f64,
    /// Worker IDs of each daemon.
    pub(crate) worker_ids_each: u64,
    /// Connections that one daemon may have to carry.
    pub(crate) connections_each: u64,
    pub(crate) network_bits_per_s: Option<f64>,
    /// The layout in text form.
    pub(crate) layout: Option<String>,
    /// The source's name.
    pub(crate) source: Option<String>,
    /// Generator threads of the sweep.
    pub(crate) threads: usize,
    /// The spacing of the sweep's requests.
    pub(crate) arrivals: Arrivals,
    /// The sweep's objective.
    pub(crate) objective: String,
    /// IDs per second at the sweep's knee.
    pub(crate) knee_ids_per_s: f64,
    /// IDs per request of the sweep.
    pub(crate) knee_batch: f64,
    /// Cores of the machine of the sweep.
    pub(crate) measured_cores: u64,
    /// That machine.
    pub(crate) measured_on: String,
}

/// The daemon's processor time for a request, as one step of the sweep had it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct CpuCost {
    /// In microseconds.
    pub(crate) us_per_request: f64,
    /// Requests per second of that step.
    pub(crate) requests_per_s: f64,
}

/// The reason why there is no plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPlan {
    /// The sweep has not enough to plan with.
    #[error("the sweep cannot support a plan: {0}")]
    Unsupported(String),
    /// A layout that is none, or that does not have the worker IDs.
    #[error(transparent)]
    Layout(#[from] LayoutError),
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
            Self::Unsupported(_) | Self::Layout(_) | Self::Options(_) => 2,
        }
    }
}

/// Computes a plan.
///
/// # Errors
/// [`NoPlan`] if the sweep lacks a figure, or no number of daemons is enough.
pub(crate) fn plan(sweep: &Swept, wanted: &Wanted, now: SystemTime) -> Result<Plan, NoPlan> {
    supports_a_plan(sweep)?;
    let form = Form::of(sweep, wanted)?;
    check_batch(sweep, &form)?;
    let inputs = inputs(sweep, wanted, &form);
    let wire = Wire::of(&form, inputs.batch);
    let limits = limits(&inputs, &form, &wire);
    let lowest = limits.iter().min_by(|a, b| a.ids_per_s.total_cmp(&b.ids_per_s));
    let Some(lowest) = lowest.cloned() else {
        unreachable!("the sweep's knee is always a limit");
    };
    let (daemons, spare) = (daemons(&inputs, lowest.ids_per_s)?, u64::from(wanted.spare));
    let space = form.space(&inputs, daemons, spare, now)?;
    let requests_per_s_each = inputs.ids_per_s / inputs.batch / daemons as f64;
    let cpu_cost = CpuCost::at(requests_per_s_each, sweep);
    let busy_cores_each = cpu_cost.as_ref().map(|cost| requests_per_s_each * cost.us_per_request / 1e6);
    let mut plan = Plan {
        format: FORMAT,
        kind: "plan",
        limits,
        binding: lowest.binding,
        daemons,
        spare,
        ids_per_s_each: inputs.ids_per_s / daemons as f64,
        requests_per_s_each,
        cpu_cost,
        busy_cores_each,
        cores_each: busy_cores_each.map(|busy| (busy / (1.0 - inputs.headroom)).ceil().max(1.0) as u64),
        memory_bytes_each: RESIDENT_BYTES + inputs.connections_each * CONNECTION_BYTES,
        network_bits_per_s_each: requests_per_s_each * wire.busier_bytes() * 8.0,
        wire,
        space,
        warnings: Vec::new(),
        inputs,
    };
    plan.warnings = warnings::of(&plan, sweep, wanted, &form);
    Ok(plan)
}

fn check_batch(sweep: &Swept, form: &Form) -> Result<(), NoPlan> {
    match sweep.max_count {
        Some(max_count) if form.largest_request > max_count => Err(NoPlan::Options(format!(
            "--batch asks for {} IDs at once; the daemon of the sweep allows {max_count}",
            form.largest_request
        ))),
        _ => Ok(()),
    }
}

/// Returns the number of daemons that carry the rate.
fn daemons(inputs: &Inputs, lowest_limit: f64) -> Result<u64, NoPlan> {
    // Rounding must not add one, as in 34,600 ÷ (173,000 × 0.2).
    let exact = inputs.ids_per_s / (lowest_limit * (1.0 - inputs.headroom)) - 1e-9;
    let daemons = exact.ceil().max(1.0);
    if daemons > MAX_DAEMONS {
        return Err(NoPlan::Impossible(format!("it would take {daemons:.0} daemons")));
    }
    Ok(daemons as u64)
}

impl Plan {
    /// Returns the lowest limit of one daemon, in IDs per second.
    fn lowest_limit(&self) -> f64 {
        self.limits.iter().map(|limit| limit.ids_per_s).fold(f64::INFINITY, f64::min)
    }
}

fn supports_a_plan(sweep: &Swept) -> Result<(), NoPlan> {
    let why = match sweep.knee {
        _ if sweep.protocol != "snowbank" => {
            "a plan knows the bytes of Snowbank's own protocol, and the sweep used another"
        }
        Some(knee) if knee > 0.0 && sweep.mean_batch >= 1.0 && sweep.confirmed => return Ok(()),
        Some(_) => "its knee is not confirmed by a second run",
        None => "it found no knee",
    };
    Err(NoPlan::Unsupported(format!("{why} ({})", sweep.summary)))
}

impl CpuCost {
    /// Returns the cost at a load. Requests share wake-ups under load and cost less, so the step next below the load
    /// counts, or the lowest step.
    fn at(requests_per_s: f64, sweep: &Swept) -> Option<Self> {
        let costs = sweep.steps.iter().filter(|step| step.holds).filter_map(|step| {
            let at = step.answered as f64 / step.elapsed_s;
            let us_per_request = step.target_cpu_share? * 1e6 / at;
            us_per_request.is_finite().then_some(Self { us_per_request, requests_per_s: at })
        });
        let (below, above): (Vec<_>, Vec<_>) = costs.partition(|cost| cost.requests_per_s <= requests_per_s);
        let by_load = |a: &Self, b: &Self| a.requests_per_s.total_cmp(&b.requests_per_s);
        below.into_iter().max_by(by_load).or_else(|| above.into_iter().min_by(by_load))
    }
}

fn inputs(sweep: &Swept, wanted: &Wanted, form: &Form) -> Inputs {
    let within = |it: &Objective| format!("{} within {} ms", it.quantile, it.limit_us / 1e3);
    let machine = &sweep.machine;
    let cpu = machine.cpu.as_deref().unwrap_or("processor unknown");
    let cores = counted(machine.cores as u64, "core");
    Inputs {
        ids_per_s: wanted.rate.per_s(),
        batch: wanted.batch.as_ref().map_or(sweep.mean_batch, Mix::mean),
        batch_option: wanted.batch.as_ref().map_or_else(|| sweep.batch.clone(), Mix::to_string),
        headroom: wanted.headroom.0,
        worker_ids_each: form.worker_ids_each,
        connections_each: wanted.connections.map_or(sweep.connections as u64, u64::from),
        network_bits_per_s: wanted.network.map(|network| network.0),
        layout: form.numbering.as_ref().map(|numbering| numbering.layout().to_string()),
        source: sweep.source.clone(),
        threads: sweep.threads,
        arrivals: sweep.arrivals,
        objective: sweep.objective.iter().map(within).collect::<Vec<_>>().join(", "),
        knee_ids_per_s: sweep.knee.unwrap_or(0.0),
        knee_batch: sweep.mean_batch,
        measured_cores: machine.cores as u64,
        measured_on: format!("{} ({cpu}, {cores}, {})", machine.host, machine.kernel),
    }
}

fn limits(inputs: &Inputs, form: &Form, wire: &Wire) -> Vec<DaemonLimit> {
    let requests_per_s = inputs.knee_ids_per_s / inputs.knee_batch;
    let (requests, batch) = (grouped(requests_per_s), ids(inputs.batch));
    let layout = form.ids_per_s().map(|each| DaemonLimit {
        binding: Binding::Layout,
        ids_per_s: each as f64 * form.worker_ids_each as f64,
        formula: format!("{} × {}", counted(form.worker_ids_each, "worker ID"), ids_per_s(each as f64)),
    });
    let cpu = DaemonLimit {
        binding: Binding::Cpu,
        ids_per_s: requests_per_s * inputs.batch,
        formula: format!("{requests} requests/s at the knee × {batch} a request"),
    };
    let bytes = wire.busier_bytes();
    let network = inputs.network_bits_per_s.map(|bits_per_s| DaemonLimit {
        binding: Binding::Network,
        ids_per_s: bits_per_s / 8.0 / bytes * inputs.batch,
        formula: format!("{} bit/s ÷ 8 ÷ {} bytes × {batch} a request", grouped(bits_per_s), grouped(bytes)),
    });
    layout.into_iter().chain([cpu]).chain(network).collect()
}
