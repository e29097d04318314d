//! Prints the samples as metrics: as OpenMetrics text, and as Prometheus' older text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use serde_json::Value;

use crate::server::health::figures::{Figure, Row};
use crate::server::health::samples::{Sample, Samples, Subject};

/// Formats the samples as OpenMetrics text.
pub(crate) fn openmetrics(samples: Samples) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition(samples)));
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
struct Exposition(Samples);

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for &figure in Figure::METRICS {
            let Row { group, metric, labels, means, .. } = figure.row();
            let subjects = self.0.subjects().filter(|of| of.group == *group);
            let samples = subjects.flat_map(|of| of.samples.iter().map(move |sample| (of, sample)));
            let mut samples =
                samples.filter(|(_, sample)| sample.figure == figure && !sample.value.is_null()).peekable();
            if samples.peek().is_none() {
                continue;
            }
            let kind = match figure {
                Figure::Durations => MetricType::Histogram,
                _ if metric.ends_with("_total") => MetricType::Counter,
                _ => MetricType::Gauge,
            };
            let (stem, unit) = stem(metric);
            let mut family = encoder.encode_descriptor(stem, means, unit.as_ref(), kind)?;
            for (subject, Sample { labels: values, value, .. }) in samples {
                let names = group.label().into_iter().chain(labels.iter().copied());
                let of = group.label().map(|_| subject.name.as_str());
                let values = of.into_iter().chain(values.iter().map(String::as_str));
                let labels: Vec<(&str, &str)> = names.zip(values).collect();
                match kind {
                    MetricType::Histogram => encode_durations(&mut family, subject)?,
                    _ if labels.is_empty() => encode_value(&mut family, kind, value)?,
                    _ => encode_value(&mut family.encode_family(&labels)?, kind, value)?,
                }
            }
        }
        Ok(())
    }
}

/// Returns a metric's name without its suffixes for kind and unit, because the encoder adds these
/// again. Also returns the unit.
fn stem(name: &str) -> (&str, Option<Unit>) {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match (name.strip_suffix("_seconds"), name.strip_suffix("_bytes")) {
        (Some(stem), _) => (stem, Some(Unit::Seconds)),
        (_, Some(stem)) => (stem, Some(Unit::Bytes)),
        (None, None) => (name, None),
    }
}

fn encode_value(metric: &mut MetricEncoder<'_>, kind: MetricType, value: &Value) -> fmt::Result {
    let is_counter = matches!(kind, MetricType::Counter);
    let whole = value.as_bool().map(u64::from).or_else(|| value.as_u64());
    let measure = value.as_f64().unwrap_or(0.0);
    match (is_counter, whole) {
        (true, Some(whole)) => metric.encode_counter::<NoLabelSet, _, f64>(&whole, None),
        (true, None) => metric.encode_counter::<NoLabelSet, _, f64>(&measure, None),
        (false, Some(whole)) => metric.encode_gauge(&whole),
        (false, None) => metric.encode_gauge(&measure),
    }
}

fn encode_durations(metric: &mut MetricEncoder<'_>, daemon: &Subject) -> fmt::Result {
    let latency = daemon.latency();
    let bounds = latency.bounds_us.iter().map(|&bound_us| bound_us as f64 / 1e6).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(latency.counts.iter().copied()).collect();
    metric.encode_histogram::<NoLabelSet>(latency.sum_us as f64 / 1e6, latency.count(), &buckets, None)
}
