//! The status as metrics, in the text formats of Prometheus.

mod fleet;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::process::Process;
use super::status::{
    CertificateStatus, ClockState, Connections, IdentityStatus, Level, ProtocolStatus, SourceStatus, Status,
};

/// Formats the status as OpenMetrics text, with the system's figures of the process.
pub(crate) fn openmetrics(status: &Status, process: &Process) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition(status.clone(), process.clone())));
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = text::encode(&mut out, &registry);
    out
}

/// Converts OpenMetrics text to the older text format of Prometheus, version 0.0.4. There a counter is described under its
/// full name, and there are no units, no infos and no end mark.
pub(crate) fn prometheus_text(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len() + 1_024);
    let mut help: Option<(&str, &str)> = None;
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => {}
            (Some("#"), Some("HELP"), Some(name), text) => help = Some((name, text.unwrap_or_default())),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    _ => ("", kind),
                };
                if let Some((_, text)) = help.take().filter(|(of, _)| *of == name) {
                    out.push_str(&format!("# HELP {name}{suffix} {text}\n"));
                }
                out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
            }
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[derive(Debug)]
struct Exposition(Status, Process);

impl Collector for Exposition {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Exposition(status, process) = self;
        let mut page = Page { encoder };
        page.daemon(status)?;
        page.requests(status)?;
        page.identities(status)?;
        page.clock_and_ceilings(status)?;
        page.worker_ids(status)?;
        if let Some(certificate) = &status.certificate {
            page.certificate(certificate)?;
        }
        if let Some(fleet) = &status.fleet {
            page.fleet(fleet, &status.sources)?;
        }
        if let Some(peers) = &status.peers {
            page.peers(peers)?;
        }
        page.process(status, process)
    }
}

/// A value: a whole number, or a measure with a fraction.
#[derive(Clone, Copy)]
enum Value {
    Whole(u64),
    Measure(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Whole(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Measure(value)
    }
}

/// A metric of sources: name, help, unit, true for a counter, value. `None`: that kind of source does not have it.
type SourceMetric = (&'static str, &'static str, Option<Unit>, bool, fn(&SourceStatus) -> Option<Value>);

/// The metrics of a source.
const SOURCE_METRICS: [SourceMetric; 14] = [
    ("snowbank_ids_issued", "IDs handed out", None, true, |source| Some(source.ids.into())),
    (
        "snowbank_requests",
        "Requests for IDs that were answered, with IDs or a refusal of the source",
        None,
        true,
        |source| Some(source.requests.into()),
    ),
    (
        "snowbank_refusals",
        "Requests refused: the errors exhausted, clock_behind, no_ceiling and shutting_down",
        None,
        true,
        |source| Some(source.refused.into()),
    ),
    (
        "snowbank_exhausted",
        "Requests refused because the IDs were not available within the wait",
        None,
        true,
        |source| Some(source.exhausted.into()),
    ),
    ("snowbank_waits", "Requests that had to wait for IDs", None, true, |source| Some(source.waits.into())),
    ("snowbank_waiting_requests", "Requests that wait for IDs now", None, false, |source| {
        Some(source.waiting_requests.into())
    }),
    ("snowbank_waiting_ids", "IDs that they wait for", None, false, |source| Some(source.waiting_ids.into())),
    (
        "snowbank_ids_per_second_max",
        "IDs per second that the layout and the worker IDs allow",
        None,
        false,
        |source| Some(source.snowflake()?.ids_per_second.into()),
    ),
    (
        "snowbank_ceiling_headroom",
        "For how long IDs can be handed out if the ceiling is not raised; 0 also if no client asks",
        Some(Unit::Seconds),
        false,
        |source| Some(source.snowflake()?.headroom_s.into()),
    ),
    (
        "snowbank_clock_ahead",
        "How far the ID clock is ahead of the wall clock, until that has caught up",
        Some(Unit::Seconds),
        false,
        |source| Some(source.snowflake()?.ahead_s.into()),
    ),
    (
        "snowbank_clock_standing",
        "How long until the clock allows IDs again; above 0 requests are refused with clock_behind",
        Some(Unit::Seconds),
        false,
        |source| Some(source.snowflake()?.stands_s.into()),
    ),
    ("snowbank_layout_years_left", "Years until the layout ends", None, false, |source| {
        Some(source.snowflake()?.layout_years_left.into())
    }),
    (
        "snowbank_ticket_reserved",
        "Numbers of a ticket source that can be handed out if its ceiling is not raised",
        None,
        false,
        |source| Some(source.ticket()?.reserved.into()),
    ),
    (
        "snowbank_ticket_left_ratio",
        "Share of a ticket source's numbers that are left",
        None,
        false,
        |source| Some(source.ticket()?.left_share.into()),
    ),
];

/// A metric that each identity has: name, help, true for a counter, value.
type IdentityMetric = (&'static str, &'static str, bool, fn(&IdentityStatus) -> u64);

/// The metrics of an identity, besides the IDs that it drew from each source.
const IDENTITY_METRICS: [IdentityMetric; 4] = [
    ("snowbank_identity_connections", "Connections that have an identity now", false, |identity| {
        identity.connections
    }),
    ("snowbank_identity_connected", "Connections that had an identity so far", true, |identity| {
        identity.connected
    }),
    (
        "snowbank_identity_denied",
        "Requests to sources that an identity may not draw from",
        true,
        |identity| identity.denied,
    ),
    (
        "snowbank_identity_slowed",
        "Requests that waited for an identity's rate, or were refused for it",
        true,
        |identity| identity.slowed,
    ),
];

/// A label's name and value.
type Label<'a> = (&'static str, &'a str);

struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Page<'_> {
    fn daemon(&mut self, status: &Status) -> fmt::Result {
        let labels = [("version", status.version.as_str()), ("order", &status.order)];
        self.encoder
            .encode_descriptor("snowbank_build", "The daemon's version and order", None, MetricType::Info)?
            .encode_info(&labels.as_slice())?;
        let ready = u64::from(status.ready);
        self.gauge("snowbank_ready", "1 while requests are served, as /readyz says", None, ready)?;
        let failing = |level| status.checks.iter().filter(|check| check.level == level).count() as u64;
        self.gauge("snowbank_checks_failing", "Checks of /readyz that fail", None, failing(Level::Fail))?;
        self.gauge("snowbank_checks_warning", "Checks of /readyz that warn", None, failing(Level::Warn))?;
        let reload = status.last_reload.as_ref();
        let (name, help) = ("snowbank_config_last_reload_successful", "0 if the last reload was refused");
        let is_live = reload.is_none_or(|reload| reload.refused.is_none());
        self.gauge(name, help, None, u64::from(is_live))?;
        let help = "When the configuration was last reloaded, or refused, or read at the start, in Unix time";
        let at_unix_s = reload.map_or(status.started_unix_s, |reload| reload.at_unix_s);
        let name = "snowbank_config_last_reload_timestamp";
        self.gauge(name, help, Some(&Unit::Seconds), at_unix_s)?;
        self.gauge("snowbank_shards", "Threads that serve connections", None, status.shards as u64)?;
        let connections = &status.connections;
        self.gauge("snowbank_connections", "Connections open now", None, connections.open)?;
        self.gauge("snowbank_connections_max", "Connections that may be open", None, connections.max)?;
        self.counter("snowbank_connections_accepted", "Connections accepted", None, connections.accepted)?;
        let help = "Connections refused with too_busy, because all were in use";
        self.counter("snowbank_connections_refused", help, None, connections.refused)?;
        let help = "Client addresses that have connections now";
        self.gauge("snowbank_addresses", help, None, connections.addresses)?;
        let help = "Connections refused with too_busy, because their address has connections_per_address";
        self.counter("snowbank_address_refused", help, None, connections.address_refused)?;
        let help = "Requests that waited for rate_per_address, or were refused for it";
        self.counter("snowbank_address_slowed", help, None, connections.address_slowed)?;
        self.unauthorized(connections)?;
        let help =
            "Bytes queued: replies that clients have not taken, and requests that have arrived in part";
        self.gauge("snowbank_queued", help, Some(&Unit::Bytes), connections.queued_bytes)?;
        let help = "Bytes that may be queued";
        self.gauge("snowbank_queued_max", help, Some(&Unit::Bytes), connections.queued_bytes_max)?;
        let bytes = Some(&Unit::Bytes);
        self.counter("snowbank_received", "Bytes read from clients", bytes, status.received_bytes)?;
        self.counter("snowbank_sent", "Bytes written to clients", bytes, status.sent_bytes)
    }

    fn unauthorized(&mut self, connections: &Connections) -> fmt::Result {
        let help = "Connections open now that owe a token or shake hands over TLS";
        self.gauge("snowbank_connections_unauthorized", help, None, connections.unauthorized)?;
        let help = "Connections that gave way to newcomers before they had authorized themselves";
        self.counter("snowbank_connections_gave_way", help, None, connections.gave_way)?;
        let help = "Connections closed because they sent no token in time";
        self.counter("snowbank_unauthorized_timeouts", help, None, connections.unauthorized_timeouts)?;
        let help = "Addresses of the last minute whose connections did not authorize themselves; 256 at most";
        self.gauge("snowbank_unauthorized_addresses", help, None, connections.unauthorized_addresses)
    }

    fn requests(&mut self, status: &Status) -> fmt::Result {
        for metric in &SOURCE_METRICS {
            self.of_sources(&status.sources, metric)?;
        }
        let errors = status.errors.iter().map(|(code, &count)| (("code", code.as_str()), count.into()));
        self.family("snowbank_errors", "Requests answered with an error", None, true, errors)?;
        let family = [
            (
                "snowbank_protocol_connections",
                "Connections open now",
                false,
                (|of| of.connections) as fn(&ProtocolStatus) -> u64,
            ),
            ("snowbank_protocol_requests", "Requests answered, those for IDs and others", true, |of| {
                of.requests
            }),
            ("snowbank_protocol_errors", "Requests answered with an error", true, |of| of.errors),
        ];
        for (name, help, is_counter, value) in family {
            let protocols = status.protocols.iter();
            let values = protocols.map(|of| (("protocol", of.name.as_str()), value(of).into()));
            self.family(name, help, None, is_counter, values)?;
        }
        let help = "Requests other than for IDs, answered without an error: PING, INFO, AUTH";
        self.counter("snowbank_other_requests", help, None, status.other_requests)?;
        self.latency(status)
    }

    /// Encodes the counts of each identity. Identities are configured, so their number is bounded.
    fn identities(&mut self, status: &Status) -> fmt::Result {
        if status.identities.is_empty() {
            return Ok(());
        }
        for (name, help, is_counter, value) in &IDENTITY_METRICS {
            let values = status.identities.iter();
            let values =
                values.map(|identity| (("identity", identity.name.as_str()), value(identity).into()));
            self.family(name, help, None, *is_counter, values)?;
        }
        let help = "IDs that an identity drew from a source";
        let mut family =
            self.encoder.encode_descriptor("snowbank_identity_ids", help, None, MetricType::Counter)?;
        for identity in &status.identities {
            for (source, ids) in &identity.ids {
                let labels = [("identity", identity.name.as_str()), ("source", source)];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(ids, None)?;
            }
        }
        Ok(())
    }

    fn of_sources(&mut self, sources: &[SourceStatus], metric: &SourceMetric) -> fmt::Result {
        let (name, help, unit, is_counter, value) = metric;
        let sources = sources.iter();
        let values = sources.filter_map(|source| Some((("source", source.name.as_str()), value(source)?)));
        self.family(name, help, unit.as_ref(), *is_counter, values)
    }

    fn latency(&mut self, status: &Status) -> fmt::Result {
        let latency = &status.latency;
        let bounds = latency.bounds_us.iter().map(|&bound_us| bound_us as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(latency.counts.iter().copied()).collect();
        let help = "How long requests for IDs took, from their bytes read to their reply on its way";
        let (name, unit) = ("snowbank_request_duration", Some(&Unit::Seconds));
        self.encoder
            .encode_descriptor(name, help, unit, MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(latency.sum_us as f64 / 1e6, latency.count(), &buckets, None)
    }

    fn clock_and_ceilings(&mut self, status: &Status) -> fmt::Result {
        let seconds = Some(&Unit::Seconds);
        let clock = &status.clock;
        let by = |state| if clock.state == state { clock.by_s } else { 0.0 };
        let help = "How far the wall clock is behind IDs already handed out";
        self.gauge("snowbank_wall_clock_behind", help, seconds, by(ClockState::Behind))?;
        let help = "By how much the wall clock stepped forward, while the step is not followed";
        self.gauge("snowbank_wall_clock_held", help, seconds, by(ClockState::Held))?;
        let help = "Steps of the wall clock that were noticed, of at least a tenth of a second";
        let steps = [("back", clock.steps_back), ("forward", clock.steps_forward)];
        let steps = steps.map(|(direction, count)| (("direction", direction), count.into()));
        self.family("snowbank_clock_steps", help, None, true, steps)?;
        let ceilings = &status.ceilings;
        self.counter("snowbank_ceiling_raises", "Ceilings made durable", None, ceilings.raises)?;
        let help = "Tries to make ceilings durable that failed";
        self.counter("snowbank_ceiling_raise_failures", help, None, ceilings.failures)?;
        let help = "Time that making ceilings durable took";
        self.counter("snowbank_ceiling_raising", help, seconds, ceilings.raising_s)?;
        let (name, help) =
            ("snowbank_ceiling_raise_failing", "1 while the last try to raise the ceilings failed");
        self.gauge(name, help, None, u64::from(ceilings.failing.is_some()))?;
        let help = "How long the write of ceilings under way has taken so far, 0 without one";
        self.gauge("snowbank_ceiling_write", help, seconds, ceilings.under_way_s)?;
        let (name, help) =
            ("snowbank_worker_ids_held", "1 while the worker IDs and the state are this daemon's alone");
        self.gauge(name, help, None, u64::from(ceilings.lost.is_none()))
    }

    /// Encodes each worker ID that this daemon alone has. Two daemons that show the same hand out the same IDs.
    fn worker_ids(&mut self, status: &Status) -> fmt::Result {
        let help = "1 for each worker ID: its number in its ID space, which no other daemon may show";
        let mut family =
            self.encoder.encode_descriptor("snowbank_worker_id", help, None, MetricType::Gauge)?;
        for source in status.sources.iter().filter(|_| status.ceilings.lost.is_none()) {
            for number in source.numbers_in_space.iter() {
                let number = number.to_string();
                let labels = [("source", &*source.name), ("id_space", &source.id_space), ("number", &number)];
                family.encode_family(&labels)?.encode_gauge(&1)?;
            }
        }
        Ok(())
    }

    fn certificate(&mut self, certificate: &CertificateStatus) -> fmt::Result {
        let (name, help) = (
            "snowbank_certificate_expiry_timestamp",
            "Until when clients believe the certificate, in Unix time",
        );
        self.gauge(name, help, Some(&Unit::Seconds), certificate.ends_unix_s)
    }

    /// Encodes the process's metrics, under the names that Prometheus' own clients use.
    fn process(&mut self, status: &Status, process: &Process) -> fmt::Result {
        let (seconds, bytes) = (Some(&Unit::Seconds), Some(&Unit::Bytes));
        self.gauge(
            "process_start_time",
            "When the daemon started, in Unix time",
            seconds,
            status.started_unix_s,
        )?;
        if let Some(cpu_s) = process.cpu_s {
            self.counter("process_cpu", "CPU time used, of all threads", seconds, cpu_s)?;
        }
        if let Some(resident) = process.resident_bytes {
            self.gauge("process_resident_memory", "Memory resident", bytes, resident)?;
        }
        if let Some(open) = process.open_files {
            self.gauge("process_open_fds", "Files open, sockets among them", None, open)?;
        }
        if let Some(max) = process.max_files {
            self.gauge("process_max_fds", "Files that may be open", None, max)?;
        }
        Ok(())
    }

    fn counter(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl Into<Value>,
    ) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        encode(metric, true, value.into())
    }

    fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: impl Into<Value>) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        encode(metric, false, value.into())
    }

    /// Encodes a metric with a value for each label.
    fn family<'a>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        is_counter: bool,
        values: impl IntoIterator<Item = (Label<'a>, Value)>,
    ) -> fmt::Result {
        let kind = if is_counter { MetricType::Counter } else { MetricType::Gauge };
        let mut family = self.encoder.encode_descriptor(name, help, unit, kind)?;
        for (label, value) in values {
            encode(family.encode_family(&[label])?, is_counter, value)?;
        }
        Ok(())
    }
}

fn encode(mut metric: MetricEncoder<'_>, is_counter: bool, value: Value) -> fmt::Result {
    match (is_counter, value) {
        (true, Value::Whole(value)) => metric.encode_counter::<NoLabelSet, _, f64>(&value, None),
        (true, Value::Measure(value)) => metric.encode_counter::<NoLabelSet, _, f64>(&value, None),
        (false, Value::Whole(value)) => metric.encode_gauge(&value),
        (false, Value::Measure(value)) => metric.encode_gauge(&value),
    }
}
