//! Prints the samples as metrics: as OpenMetrics text, or as Prometheus' older text (version
//! 0.0.4). The older text knows no units, and a counter has the same name in every line.

use std::fmt::{self, Write};

use serde_json::Value;

use crate::server::health::figures::{Figure, Row};
use crate::server::health::latency::Latency;
use crate::server::health::samples::{Sample, Samples};

/// Formats the samples as text.
pub(crate) fn text(samples: &Samples, is_openmetrics: bool) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = Figure::METRICS.iter().try_for_each(|&figure| print(samples, figure, is_openmetrics, &mut out));
    if is_openmetrics {
        out += "# EOF\n";
    }
    out
}

fn print(samples: &Samples, figure: Figure, is_openmetrics: bool, out: &mut String) -> fmt::Result {
    let Row { group, metric, labels: names, means, .. } = figure.row();
    let subjects = samples.subjects().filter(|of| of.group == *group);
    let all = subjects.flat_map(|of| of.samples.iter().map(move |sample| (of, sample)));
    let mut all = all.filter(|(_, sample)| sample.figure == figure && !sample.value.is_null()).peekable();
    if all.peek().is_none() {
        return Ok(());
    }
    let stem = metric.trim_end_matches("_total");
    let kind = figure.kind();
    if is_openmetrics {
        let means = means.replace('"', "\\\"");
        writeln!(out, "# HELP {stem} {means}\n# TYPE {stem} {kind}")?;
        let unit = stem.rsplit('_').next().filter(|unit| ["seconds", "bytes"].contains(unit));
        unit.map_or(Ok(()), |unit| writeln!(out, "# UNIT {stem} {unit}"))?;
    } else {
        writeln!(out, "# HELP {metric} {means}\n# TYPE {metric} {kind}")?;
    }
    for (subject, Sample { labels, value, .. }) in all {
        if figure == Figure::Durations {
            print_histogram(&subject.latency(), metric, out)?;
            continue;
        }
        *out += metric;
        let names = group.label().into_iter().chain(names.iter().copied());
        let name = group.label().map(|_| &subject.name);
        for (index, (label, value)) in names.zip(name.into_iter().chain(labels)).enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(out, "{}{label}=\"{value}\"", if index == 0 { '{' } else { ',' })?;
        }
        let end = if group.label().is_some() || !labels.is_empty() { "}" } else { "" };
        match value {
            Value::Bool(is) => writeln!(out, "{end} {}", u64::from(*is))?,
            value => writeln!(out, "{end} {value}")?,
        }
    }
    Ok(())
}

fn print_histogram(latency: &Latency, metric: &str, out: &mut String) -> fmt::Result {
    let (sum_s, count) = (latency.sum_us as f64 / 1e6, latency.count());
    writeln!(out, "{metric}_sum {sum_s:?}\n{metric}_count {count}")?;
    let mut below = 0;
    for (bound_us, count) in latency.bounds_us.iter().zip(&latency.counts) {
        below += count;
        let bound_s = *bound_us as f64 / 1e6;
        // Neither 1e-5 nor 1, because scrapers compare labels as text.
        let end = if bound_s.fract() == 0.0 { ".0" } else { "" };
        writeln!(out, "{metric}_bucket{{le=\"{bound_s}{end}\"}} {below}")?;
    }
    writeln!(out, "{metric}_bucket{{le=\"+Inf\"}} {count}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_the_histogram_have_a_point_and_no_exponent() {
        let mut samples = Samples::default();
        samples.daemon.put(Figure::Durations, Latency::default().value());
        let text = text(&samples, true);
        for bound in ["0.00001", "0.0005", "1.0", "1.1", "10.0", "+Inf"] {
            let line = format!("\nsnowbank_request_duration_seconds_bucket{{le=\"{bound}\"}} 0\n");
            assert!(text.contains(&line), "{bound}: {text}");
        }
    }
}
