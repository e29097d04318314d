//! The status as metrics, in the text formats of Prometheus.

mod fleet;
mod identities;
mod sources;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use self::sources::SOURCE_METRICS;
use super::process::Process;
use super::status::{CertificateStatus, ClockState, Connections, Level, ProtocolStatus, Status};

/// Formats the status as OpenMetrics text, with the system's figures of the process.
pub(crate) fn openmetrics(status: &Status, process: &Process) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition(status.clone(), process.clone())));
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = text::encode(&mut out, &registry);
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

/// A label's name and value.
type Label<'a> = (&'static str, &'a str);

struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Page<'_> {
    fn daemon(&mut self, status: &Status) -> fmt::Result {
        let labels = [("version", status.version.as_str()), ("order", &status.order)];
        // A gauge, because readers of the older text format know no infos.
        self.encoder
            .encode_descriptor(
                "snowbank_build_info",
                "The daemon's version and order",
                None,
                MetricType::Gauge,
            )?
            .encode_family(&labels)?
            .encode_gauge(&1)?;
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
        let help = "Connections that were evicted by newcomers before they had authorized themselves";
        self.counter("snowbank_connections_evicted", help, None, connections.evicted)?;
        let help =
            "Requests and connections refused for a wrong token or none, and TLS handshakes that failed";
        self.counter("snowbank_unauthorized_refusals", help, None, connections.unauthorized_refusals)?;
        let help = "Connections closed because they sent no token in time";
        self.counter("snowbank_unauthorized_timeouts", help, None, connections.unauthorized_timeouts)?;
        let help = "Addresses of the last minute whose clients did not authorize themselves; 256 at most";
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
        let help = "Requests that need no IDs, answered without an error, such as PING, INFO, AUTH";
        self.counter("snowbank_other_requests", help, None, status.other_requests)?;
        self.latency(status)
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
