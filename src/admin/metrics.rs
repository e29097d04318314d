//! The metrics. Each metric is a row: its name, its meaning, and the function that reads its value.
//! The text for Prometheus and the table in docs/monitoring.md are made from these rows.
//!
//! A counter with one field for each shard, source, protocol or identity is a row of `counts.rs`,
//! which makes the counter, its sum, its place in the status and its metric. The rows here are of
//! gauges, and of figures that the status computes or that other rooms keep: the keeper, the
//! acceptors, the process.
//!
//! Metrics whose names end in `_total` are counters. All other metrics are gauges, except the
//! histogram of latencies. The units `_seconds` and `_bytes` are at the end of the name or before
//! `_total`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use self::Samples::{Daemon, Durations, Families, Identity, Process as OfProcess, Protocol, Source};
use super::counts::COUNTED;
use super::findings::{DAEMON, SOURCE};
use super::process::Process;
use super::status::{ClockState, IdentityStatus, PoolStatus, ProtocolStatus, SourceStatus, Status};

/// A row of the table.
pub(super) struct Metric {
    name: &'static str,
    means: &'static str,
    samples: Samples,
}

/// The functions that make the samples of a metric. A value of `None` makes no sample.
pub(super) enum Samples {
    Daemon(fn(&Status) -> Option<Value>),
    Source(fn(&SourceStatus) -> Option<Value>),
    Protocol(fn(&ProtocolStatus) -> Option<Value>),
    Identity(fn(&IdentityStatus) -> Option<Value>),
    Process(fn(&Process) -> Option<Value>),
    /// Samples with labels of these names.
    Families(&'static [&'static str], fn(&Status) -> Vec<Sample>),
    /// The histogram of latencies.
    Durations,
}

/// The value of a sample.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Whole(u64),
    Measure(f64),
}

/// One line of the text for Prometheus.
pub(super) struct Sample {
    /// The values of the labels.
    labels: Vec<String>,
    value: Value,
}

impl Sample {
    fn of(labels: Vec<String>, value: Option<Value>) -> Option<Self> {
        Some(Sample { labels, value: value? })
    }
}

pub(super) const fn row(name: &'static str, means: &'static str, samples: Samples) -> Metric {
    Metric { name, means, samples }
}

pub(super) fn whole(value: u64) -> Option<Value> {
    Some(Value::Whole(value))
}

fn measure(value: f64) -> Option<Value> {
    Some(Value::Measure(value))
}

/// All other metrics, in the order of the table.
#[rustfmt::skip]
const METRICS: &[Metric] = &[
    row("snowbank_finding", "2: requests are refused for it, or soon will be; 1: an operator should look; 0: nothing was found", Families(&["finding", "source"], findings)),
    row("snowbank_ready", "1 while `/readyz` answers 200", Daemon(|of| whole(of.ready.into()))),
    row("snowbank_waiting_requests", "requests in the wait queue", Source(|of| whole(of.waiting_requests))),
    row("snowbank_waiting_ids", "IDs for which requests wait now", Source(|of| whole(of.waiting_ids))),
    row("snowbank_errors_total", "requests answered with an error, and connections refused (`too_busy`)", Families(&["code"], errors)),
    row("snowbank_other_requests_total", "requests that need no IDs, such as PING, INFO and HELLO, answered without an error", Daemon(|of| whole(of.other_requests))),
    row("snowbank_request_duration_seconds", "how long requests for IDs took: from reading them, or from when their rate allowed them, to sending the reply", Durations),
    row("snowbank_ids_per_second_max", "IDs per second that the layout and the worker IDs yield", Source(|of| whole(of.snowflake()?.ids_per_second))),
    row("snowbank_ceiling_headroom_seconds", "the durable ceiling's time minus the ID clock's: how long IDs can be handed out if it is not raised. Also 0 while a source is unused and its ceiling is not raised", Source(|of| measure(of.snowflake()?.headroom_s))),
    row("snowbank_ceiling_horizon_seconds", "how long IDs last after a raise", Daemon(|of| measure(of.ceilings.horizon_s))),
    row("snowbank_ceiling_slowest_raise_seconds", "the longest raise of the last minute, the one in flight included", Daemon(|of| measure(of.ceilings.slowest_raise_s))),
    row("snowbank_ceiling_write_seconds", "how long the write of ceilings in flight has taken so far; 0 without one", Daemon(|of| measure(of.ceilings.in_flight_s))),
    row("snowbank_ceiling_raises_total", "raises that became durable", Daemon(|of| whole(of.ceilings.raises))),
    row("snowbank_ceiling_raising_seconds_total", "time that the raises took; divided by raises: the time of one", Daemon(|of| measure(of.ceilings.raising_s))),
    row("snowbank_ceiling_raise_failures_total", "raises that failed", Daemon(|of| whole(of.ceilings.failures))),
    row("snowbank_ceiling_raise_failing", "1 while raises fail", Daemon(|of| whole(of.ceilings.failing.is_some().into()))),
    row("snowbank_worker_id", "1 for each worker ID of this daemon. Two daemons that show the same hand out the same IDs", Families(&["source", "id_space", "number"], worker_ids)),
    row("snowbank_clock_ahead_seconds", "how far the ID clock is ahead of the wall clock: after a step back or a crash", Source(|of| measure(of.snowflake()?.ahead_s))),
    row("snowbank_clock_standing_seconds", "how long until the clock allows IDs again; while it is above 0, requests are refused with `clock_behind`", Source(|of| measure(of.snowflake()?.stands_s))),
    row("snowbank_clock_steps_total", "steps of the wall clock of a tenth of a second or more, `back` or `forward`; a clock that stands counts once", Families(&["direction"], clock_steps)),
    row("snowbank_wall_clock_behind_seconds", "how far the wall clock is behind its latest time, or how long it has stood still", Daemon(|of| off_by(of, ClockState::Behind))),
    row("snowbank_wall_clock_held_seconds", "by how much the wall clock stepped forward, while that is not followed", Daemon(|of| off_by(of, ClockState::Held))),
    row("snowbank_layout_years_left", "years until the layout ends", Source(|of| measure(of.snowflake()?.layout_years_left))),
    row("snowbank_ticket_last", "the last number that a ticket source handed out; before its first one, the highest that may have been handed out before the start: after a crash the end of the reservation", Source(|of| whole(of.ticket()?.last?))),
    row("snowbank_ticket_reserved", "numbers of a ticket source that can be handed out if its ceiling is not raised", Source(|of| whole(of.ticket()?.reserved))),
    row("snowbank_ticket_left_ratio", "share of a ticket source's numbers that are left, from 0 to 1", Source(|of| measure(of.ticket()?.left_share))),
    row("snowbank_fleet_headroom_seconds", "how long IDs can be handed out without the fleet's coordinator, at the present rate for a shared counter; absent without a fleet, as are all `snowbank_fleet_` metrics", Source(|of| measure(of.fleet_headroom_s?))),
    row("snowbank_fleet_coordinator_up", "1 if the coordinator gave an answer when it was last asked, else 0", Daemon(|of| whole(of.fleet.as_ref()?.silent.is_none().into()))),
    row("snowbank_fleet_raises_total", "raises of ceilings at the coordinator that became durable, and ranges that were taken", Daemon(|of| whole(of.fleet.as_ref()?.raises))),
    row("snowbank_fleet_worker_ids", "the worker IDs that a source with `worker_id_from = \"coordinator\"` could have; absent above 65,536", Families(&["source"], |of| pools(of, |pool| pool.worker_ids))),
    row("snowbank_fleet_worker_ids_held", "the worker IDs that daemons hold, counted every ten minutes, 100 worker IDs at each poll", Families(&["source"], |of| pools(of, |pool| pool.held))),
    row("snowbank_fleet_certificate_expiry_timestamp_seconds", "the end of `fleet.certificate`, in Unix time; absent without one", Daemon(|of| measure(of.fleet.as_ref()?.certificate_ends_unix_s? as f64))),
    row("snowbank_connections", "connections open", Daemon(|of| whole(of.connections.open))),
    row("snowbank_connections_max", "`max_connections`, or what open files allow", Daemon(|of| whole(of.connections.max))),
    row("snowbank_connections_accepted_total", "connections accepted", Daemon(|of| whole(of.connections.accepted))),
    row("snowbank_connections_refused_total", "connections refused because all were in use (with `too_busy`, or over TLS without a message)", Daemon(|of| whole(of.connections.refused))),
    row("snowbank_connections_closed_total", "connections that the daemon closed by itself, by reason", Families(&["reason"], closed)),
    row("snowbank_connections_unauthorized", "connections open now that owe a token or shake hands over TLS", Daemon(|of| whole(of.connections.unauthorized))),
    row("snowbank_connections_evicted_total", "connections that newcomers evicted before they had authorized themselves", Daemon(|of| whole(of.connections.evicted))),
    row("snowbank_unauthorized_addresses", "addresses whose clients did not authorize themselves in the last minute, 256 at most", Daemon(|of| whole(of.connections.unauthorized_addresses))),
    row("snowbank_queued_bytes", "bytes queued: replies that clients have not taken, and requests that have arrived in part", Daemon(|of| whole(of.connections.queued_bytes))),
    row("snowbank_queued_max_bytes", "bytes that may be queued: `max_queued_bytes`", Daemon(|of| whole(of.connections.queued_bytes_max))),
    row("snowbank_protocol_connections", "connections open, by protocol: `native`, and each front end", Protocol(|of| whole(of.connections))),
    row("snowbank_incr_connections_total", "connections that sent `INCR` or `INCRBY`, by the form of the first reply: `integer` or `string`", Families(&["form"], incr_connections)),
    row("snowbank_identity_connections", "connections that have an identity now", Identity(|of| whole(of.connections))),
    row("snowbank_identity_ids_total", "IDs that it drew from a source; a series once it has drawn one", Families(&["identity", "source"], identity_ids)),
    row("snowbank_certificate_expiry_timestamp_seconds", "the end of the TLS listeners' certificate, in Unix time; absent without one", Daemon(|of| measure(of.certificate.as_ref()?.ends_unix_s))),
    row("snowbank_config_last_reload_successful", "0 if the last reload was refused", Daemon(|of| whole(of.last_reload.as_ref().is_none_or(|reload| reload.refused.is_none()).into()))),
    row("snowbank_config_last_reload_timestamp_seconds", "the time of the last reload, in Unix time; of the start, if there was none", Daemon(|of| measure(of.last_reload.as_ref().map_or(of.started_unix_s, |reload| reload.at_unix_s)))),
    row("snowbank_previous_run_unclean", "1 if the run before was killed or crashed, or if it lost power or its worker ID, or its disk hung. Absent at a first start, and without a state", Daemon(|of| whole(of.previous_run_unclean?.into()))),
    row("snowbank_shards", "threads that serve connections", Daemon(|of| whole(of.shards as u64))),
    row("snowbank_build_info", "always 1", Families(&["version", "order"], build)),
    row("process_start_time_seconds", "when the daemon started, in Unix time", Daemon(|of| measure(of.started_unix_s))),
    row("process_cpu_seconds_total", "CPU time of all its threads", OfProcess(|of| measure(of.cpu_s?))),
    row("process_resident_memory_bytes", "memory resident", OfProcess(|of| whole(of.resident_bytes?))),
    row("process_open_fds", "files open, sockets among them", OfProcess(|of| whole(of.open_files?))),
    row("process_max_fds", "files that may be open", OfProcess(|of| whole(of.max_files?))),
];

/// Returns all metrics, in the order of the table.
fn metrics() -> impl Iterator<Item = &'static Metric> {
    COUNTED.into_iter().flatten().chain(METRICS)
}

fn off_by(status: &Status, state: ClockState) -> Option<Value> {
    measure(if status.clock.state == state { status.clock.by_s } else { 0.0 })
}

/// Returns a sample for each finding except `stop`. A sample without a finding has the value 0, so
/// the value returns to 0 when a finding ends.
fn findings(status: &Status) -> Vec<Sample> {
    let daemon = DAEMON.map(|(name, _)| (name, None));
    let by_source = status.sources.iter().flat_map(|of| SOURCE.map(|(name, _)| (name, Some(&of.name))));
    let mut samples = Vec::new();
    for (name, source) in daemon.into_iter().chain(by_source) {
        let found =
            status.findings.iter().find(|found| found.name == name && found.source.as_ref() == source);
        let value = found.map_or(0, |found| if found.effect.is_urgent() { 2 } else { 1 });
        let labels = vec![name.to_owned(), source.cloned().unwrap_or_default()];
        samples.push(Sample { labels, value: Value::Whole(value) });
    }
    samples
}

fn labelled(label: &str, count: u64) -> Sample {
    Sample { labels: vec![label.to_owned()], value: Value::Whole(count) }
}

/// Returns a sample for each name that has a value.
fn named<'a>(values: impl Iterator<Item = (&'a String, Option<Value>)>) -> Vec<Sample> {
    values.filter_map(|(name, value)| Sample::of(vec![name.clone()], value)).collect()
}

fn errors(status: &Status) -> Vec<Sample> {
    status.errors.iter().map(|(code, &count)| labelled(code, count)).collect()
}

fn closed(status: &Status) -> Vec<Sample> {
    status.closed.iter().map(|(reason, &count)| labelled(reason, count)).collect()
}

fn incr_connections(status: &Status) -> Vec<Sample> {
    let of = &status.connections;
    vec![labelled("integer", of.incr_integers), labelled("string", of.incr_strings)]
}

fn clock_steps(status: &Status) -> Vec<Sample> {
    vec![labelled("back", status.clock.steps_back), labelled("forward", status.clock.steps_forward)]
}

/// Returns a sample for each worker ID. Returns no samples if another process may have taken the
/// worker IDs.
fn worker_ids(status: &Status) -> Vec<Sample> {
    let mut samples = Vec::new();
    for source in status.sources.iter().filter(|_| status.ceilings.lost.is_none()) {
        for number in source.numbers_in_space.iter() {
            let labels = vec![source.name.clone(), source.id_space.clone(), number.to_string()];
            samples.push(Sample { labels, value: Value::Whole(1) });
        }
    }
    samples
}

fn identity_ids(status: &Status) -> Vec<Sample> {
    let mut samples = Vec::new();
    for identity in &status.identities {
        for (source, &ids) in &identity.ids {
            let labels = vec![identity.name.clone(), source.clone()];
            samples.push(Sample { labels, value: Value::Whole(ids) });
        }
    }
    samples
}

/// Returns a sample for each source whose worker IDs were counted.
fn pools(status: &Status, count: fn(&PoolStatus) -> u64) -> Vec<Sample> {
    let pools = status.fleet.iter().flat_map(|fleet| &fleet.pools);
    pools.map(|pool| labelled(&pool.source, count(pool))).collect()
}

fn build(status: &Status) -> Vec<Sample> {
    vec![Sample { labels: vec![status.version.clone(), status.order.clone()], value: Value::Whole(1) }]
}

impl Metric {
    fn labels(&self) -> &'static [&'static str] {
        match self.samples {
            Daemon(_) | OfProcess(_) | Durations => &[],
            Source(_) => &["source"],
            Protocol(_) => &["protocol"],
            Identity(_) => &["identity"],
            Families(labels, _) => labels,
        }
    }

    fn kind(&self) -> MetricType {
        match self.samples {
            Durations => MetricType::Histogram,
            _ if self.name.ends_with("_total") => MetricType::Counter,
            _ => MetricType::Gauge,
        }
    }

    /// Returns the name without its suffixes for kind and unit, because the encoder adds these
    /// again. Also returns the unit.
    fn stem(&self) -> (&'static str, Option<Unit>) {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        match (name.strip_suffix("_seconds"), name.strip_suffix("_bytes")) {
            (Some(stem), _) => (stem, Some(Unit::Seconds)),
            (_, Some(stem)) => (stem, Some(Unit::Bytes)),
            (None, None) => (name, None),
        }
    }

    fn samples(&self, status: &Status, process: &Process) -> Vec<Sample> {
        match self.samples {
            Durations => Vec::new(),
            Daemon(value) => Vec::from_iter(Sample::of(Vec::new(), value(status))),
            OfProcess(value) => Vec::from_iter(Sample::of(Vec::new(), value(process))),
            Source(value) => named(status.sources.iter().map(|of| (&of.name, value(of)))),
            Protocol(value) => named(status.protocols.iter().map(|of| (&of.name, value(of)))),
            Identity(value) => named(status.identities.iter().map(|of| (&of.name, value(of)))),
            Families(_, samples) => samples(status),
        }
    }
}

/// Formats the status and the process's figures as OpenMetrics text.
pub(crate) fn openmetrics(status: &Status, process: &Process) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition(status.clone(), process.clone())));
    let mut out = String::new();
    // Encoding fails only if a write to the string fails, which cannot happen.
    let _ = text::encode(&mut out, &registry);
    out
}

/// Turns OpenMetrics text into Prometheus' older text (version 0.0.4), which knows no units, and in
/// which a counter has the same name in every line.
pub(crate) fn classic(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(found) = line.strip_prefix("# HELP ") {
            // The type, which decides the name, comes in the next line.
            help = found.split_once(' ').map(|(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|kind| kind.split_once(' '))
        {
            let end = if kind == "counter" { "_total" } else { "" };
            if let Some(help) = help.take() {
                out += &format!("# HELP {name}{end} {help}\n");
            }
            out += &format!("# TYPE {name}{end} {kind}\n");
        } else if !line.starts_with("# ") {
            out += line;
            out.push('\n');
        }
    }
    out
}

#[derive(Debug)]
struct Exposition(Status, Process);

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Exposition(status, process) = self;
        for metric in metrics() {
            let (stem, unit) = metric.stem();
            let samples = metric.samples(status, process);
            if samples.is_empty() && !matches!(metric.samples, Durations) {
                continue;
            }
            let mut family = encoder.encode_descriptor(stem, metric.means, unit.as_ref(), metric.kind())?;
            if let Durations = metric.samples {
                encode_latency(family, status)?;
                continue;
            }
            for Sample { labels, value } in samples {
                let labels: Vec<(&str, String)> = metric.labels().iter().copied().zip(labels).collect();
                let is_counter = matches!(metric.kind(), MetricType::Counter);
                if labels.is_empty() {
                    encode_value(&mut family, is_counter, value)?;
                } else {
                    encode_value(&mut family.encode_family(&labels)?, is_counter, value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_value(metric: &mut MetricEncoder<'_>, is_counter: bool, value: Value) -> fmt::Result {
    match (is_counter, value) {
        (true, Value::Whole(value)) => metric.encode_counter::<NoLabelSet, _, f64>(&value, None),
        (true, Value::Measure(value)) => metric.encode_counter::<NoLabelSet, _, f64>(&value, None),
        (false, Value::Whole(value)) => metric.encode_gauge(&value),
        (false, Value::Measure(value)) => metric.encode_gauge(&value),
    }
}

fn encode_latency(mut metric: MetricEncoder<'_>, status: &Status) -> fmt::Result {
    let latency = &status.latency;
    let bounds = latency.bounds_us.iter().map(|&bound_us| bound_us as f64 / 1e6).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(latency.counts.iter().copied()).collect();
    metric.encode_histogram::<NoLabelSet>(latency.sum_us as f64 / 1e6, latency.count(), &buckets, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the table that docs/monitoring.md must have.
    fn table() -> String {
        let mut table = String::from("| metric | type | labels | means |\n|---|---|---|---|\n");
        for metric in metrics() {
            let labels = metric.labels().iter().map(|label| format!("`{label}`"));
            let labels = labels.collect::<Vec<_>>().join(", ");
            let kind = metric.kind();
            let kind = kind.as_str();
            let gap = if labels.is_empty() { "" } else { " " };
            table += &format!("| `{}` | {kind} | {labels}{gap}| {} |\n", metric.name, metric.means);
        }
        table
    }

    #[test]
    fn the_monitoring_page_has_each_metric() {
        let page = include_str!("../../docs/monitoring.md");
        assert!(page.contains(&table()), "docs/monitoring.md needs this table:\n{}", table());
    }
}
