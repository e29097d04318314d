//! The page of a run.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Ink, Series, Shape};
use super::seconds::{limit_line, seconds};
use super::{facts, origin_facts, page, sign_and_class};
use crate::judge::quantile_name;
use crate::report::QUANTILES;
use crate::report::json::{Run, Times};
use crate::report::lines::{lines, quantiles};
use crate::units::{rate, time};

/// The labels of a percentile chart's axis.
const QUANTILE_TICKS: [(f64, &str); 7] = [
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (0.99999, "99.999 %"),
    (0.999_999, "99.9999 %"),
];

/// Returns the page's text.
pub(crate) fn render(run: &Run) -> String {
    let title = format!("{}: {} IDs/s, snowbank-loadtest", run.verdict, rate(run.ids_per_s));
    let content = html! {
        (head(run))
        (latencies(run))
        (figures(run))
        (seconds(run))
        section {
            h2 { "What was run" }
            (origin_facts(&run.origin))
        }
    };
    page(&title, &run.loop_kind, &content)
}

fn head(run: &Run) -> Markup {
    let (sign, class) = sign_and_class(&run.verdict);
    let summary = run.summary.strip_prefix(&run.verdict.to_uppercase()).unwrap_or(&run.summary);
    html! {
        header class=(class) {
            h1 {
                span class="verdict" { span aria-hidden="true" { (sign) } " " (run.verdict) }
                @for part in summary.split("  ").filter(|part| !part.is_empty()) { " " span class="part" { (part) } }
            }
            @if run.reasons.is_empty() {
                p { "Every objective was met, and every ID was as promised." }
            } @else {
                ul { @for reason in &run.reasons { li { (reason) } } }
            }
        }
    }
}

/// Returns the figures beside the times.
pub(super) fn figures(run: &Run) -> Markup {
    let rows: Vec<(&str, Option<String>)> =
        lines(run).into_iter().map(|line| (line.name, Some(line.text))).collect();
    html! { section { h2 { "Figures" } (facts(&rows)) } }
}

/// Returns the percentile curve, with the objectives in it, and its table.
pub(super) fn latencies(run: &Run) -> Markup {
    html! {
        section {
            h2 { "Latency by percentile" }
            p {
                "Response time counts from the instant at which a request was due. The target’s part counts from the "
                "instant at which it left, until its answer could be read."
            }
            @if run.response_time.count > 0 { (percentile_chart(run).markup()) }
            div class="scroll" tabindex="0" {
                table {
                    thead {
                        tr {
                            th scope="col" { "ms" }
                            @for quantile in QUANTILES { th scope="col" { (quantile_name(quantile)) } }
                        }
                    }
                    tbody {
                        @for (name, row) in quantiles(run) {
                            tr { th scope="row" { (name) } @for text in row { td { (text) } } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the axis of HdrHistogram's plots: each nine takes the same space.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

fn percentile_chart(run: &Run) -> Chart {
    // The maximum is drawn where one request of all is left.
    let end = (run.response_time.count as f64).log10().max(1.0);
    let curve = |name: &str, ink, times: &Times| {
        let points = times.curve.iter().filter(|(_, us)| *us > 0.0);
        let points = points.map(|&(quantile, us)| (nines(quantile).min(end), us.log10())).collect();
        Series { name: name.to_owned(), ink, shape: Shape::Line, points }
    };
    let named = |times: &Times| {
        let named = |name| Some(format!("{name} {}", time(times.at(name)?)));
        ["p50", "p99", "p99.9", "max"].into_iter().filter_map(named).collect::<Vec<_>>().join(", ")
    };
    let echo = run.machine.as_ref().and_then(|machine| machine.echo_time.as_ref());
    let mut series = vec![
        curve("response time", Ink::First, &run.response_time),
        curve("the target’s part", Ink::Second, &run.target_time),
    ];
    series.extend(echo.map(|times| curve("a bare echo", Ink::Third, times)));
    let limits = &run.objectives.latencies;
    let values = [&run.response_time, &run.target_time].into_iter().flat_map(|times| &times.curve);
    let values = values.map(|&(_, us)| us).chain(limits.iter().map(|latency| latency.limit_us));
    let tick = |(quantile, words): (f64, &str)| (nines(quantile), words.to_owned());
    Chart {
        alternative: format!(
            "Latency by percentile. Response time: {}. The target’s part: {}. The table below has the figures.",
            named(&run.response_time),
            named(&run.target_time)
        ),
        x: Axis {
            range: (0.0, end),
            ticks: QUANTILE_TICKS.map(tick).into_iter().filter(|(at, _)| *at <= end).collect(),
            label: "share of requests that were at most as slow".to_owned(),
        },
        y: Axis::logarithmic(values, "", time),
        series,
        limits: limits.iter().map(limit_line).collect(),
        marks: Vec::new(),
        bands: Vec::new(),
    }
}
