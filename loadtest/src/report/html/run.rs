//! The page of a run.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Series};
use super::page;
use crate::judge::quantile_name;
use crate::measure::SecondFigures;
use crate::report::json::{Objective, Run};
use crate::report::{ECHO, LOAD, QUANTILES, ROWS, table};
use crate::units::{grouped, percent, short_rate, time};

const TIME: Axis = Axis { is_log: true, label: "", words: time };

const MAX_POINTS: usize = 300;

struct Line {
    name: &'static str,
    /// Returns the line's value for one second of the run, if it is known.
    of: fn(&SecondFigures) -> Option<f64>,
}

pub(crate) fn render(run: &Run) -> String {
    let summary = run.summary.split_once("  ").map_or(run.summary.as_str(), |(_, rest)| rest);
    let meaning = match run.verdict.as_str() {
        "pass" => {
            "The target met every objective at this rate, and each ID was right. The highest such rate is found by \
             snowbank-loadtest sweep."
        }
        "fail" => "The target is at fault, not this machine.",
        _ => "This machine or the load test may be at fault, so nothing is known about the target.",
    };
    let content = html! {
        (latencies(run))
        section {
            h2 { "Second by second" }
            @if run.whole_seconds().is_empty() { p { "The measurement ended before its first second did." } }
            @if run.whole_seconds().len() > MAX_POINTS { p { "Each point is the worst of several seconds." } }
            @for chart in second_charts(run) {
                h3 { (chart.name) }
                (chart.markup())
            }
        }
    };
    page(&run.verdict, &summary.replace("  ", ", "), meaning, &run.reasons, &content)
}

/// Returns the percentile curves with the objectives, and all figures below the curves.
pub(crate) fn latencies(run: &Run) -> Markup {
    html! {
        section {
            h2 { "Latency by percentile" }
            p {
                "p99.9 is the time within which 99.9 % of the requests were answered. Response time counts from the "
                "instant at which a request was due, the target’s part from the instant at which it was sent."
                @if table::times(run).any(|row| row == ECHO) {
                    " A bare echo is the same load on this machine with nothing behind it."
                }
            }
            @if !run.curves.is_empty() { (curves(run).markup()) }
            (figures(run))
        }
    }
}

/// Returns the quantiles in ms as a table, and the other figures below it.
fn figures(run: &Run) -> Markup {
    html! {
        div class="wide" tabindex="0" {
            table {
                tr { th { "ms" } @for quantile in QUANTILES { th { (quantile_name(quantile)) } } }
                @for row in table::times(run) {
                    tr { th { (row) } @for time in table::quantiles(run, row) { td { (time) } } }
                }
            }
        }
        dl { @for row in ROWS { @if let Some(text) = run.figures.row_text(row) { dt { (row) } dd { (text) } } } }
    }
}

/// Returns a quantile's place on an axis like HdrHistogram's, where each nine takes the same space.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

fn share_at(nines: f64) -> String {
    let decimals = (nines.ceil() as usize).saturating_sub(2);
    format!("{:.decimals$} %", 100.0 * (1.0 - 10_f64.powf(-nines)))
}

/// Draws the curves without the maximum, which has no place on the axis.
fn curves(run: &Run) -> Chart {
    let series = run.curves.iter().map(|curve| {
        let points = curve.points.iter().filter(|(quantile, us)| *quantile < 1.0 && *us > 0.0);
        Series {
            name: curve.row.clone(),
            points: points.map(|&(quantile, us)| (nines(quantile), us)).collect(),
        }
    });
    Chart {
        name: "Latency by percentile; the table below has the figures.".to_owned(),
        x: linear("share of requests that were at most as slow", share_at),
        y: TIME,
        series: series.collect(),
        limits: limits(run),
        mark: None,
    }
}

/// Returns the objectives as limits of a chart.
pub(crate) fn limits(run: &Run) -> Vec<(f64, String)> {
    let limits = run.objectives.iter().map(|Objective { quantile, limit_us, .. }| {
        (*limit_us, format!("objective: {quantile} at most {}", time(*limit_us)))
    });
    limits.collect()
}

fn linear(label: &'static str, words: fn(f64) -> String) -> Axis {
    Axis { is_log: false, label, words }
}

/// Returns the charts over the seconds of a run, except for charts without a point.
fn second_charts(run: &Run) -> Vec<Chart> {
    let times = [
        Line { name: "p50", of: |it| it.p50_us },
        Line { name: "p99", of: |it| it.p99_us },
        Line { name: "max", of: |it| it.max_us },
    ];
    let received = [Line { name: "received", of: |it| Some(it.ids as f64) }];
    let refused = [Line { name: "refused", of: |it| (it.refused > 0).then_some(it.refused as f64) }];
    let cpu = [Line { name: "target’s CPU", of: |it| it.target_cpu_share }];
    let memory = [Line { name: "target’s memory", of: mib }];
    let mut rates = chart(run, "IDs per second", linear("", short_rate), &received, f64::min);
    let offered = run.figures.number(LOAD, "offered");
    rates.limits.extend(offered.map(|offered| (offered, format!("offered: {}/s", grouped(offered)))));
    let mut times = chart(run, "Response time", TIME, &times, f64::max);
    times.limits = limits(run);
    let all = [
        rates,
        times,
        chart(run, "Requests refused", linear("", grouped), &refused, f64::max),
        chart(run, "The target’s processor time, of one core", linear("", percent), &cpu, f64::max),
        chart(run, "The target’s memory in MiB", linear("", grouped), &memory, f64::max),
    ];
    all.into_iter().filter(|chart| chart.series.iter().any(|line| !line.points.is_empty())).collect()
}

fn mib(second: &SecondFigures) -> Option<f64> {
    second.target_memory_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20))
}

/// Draws lines with a point for each second. In a long run, a point is the worst of several
/// seconds.
fn chart(run: &Run, name: &str, y: Axis, lines: &[Line], worse: fn(f64, f64) -> f64) -> Chart {
    let seconds = run.whole_seconds();
    let each = seconds.len().div_ceil(MAX_POINTS).max(1);
    let series = lines.iter().map(|line| {
        let points = seconds.chunks(each).filter_map(|chunk| {
            let middle = chunk.first()?.second as f64 + chunk.len() as f64 / 2.0;
            Some((middle, chunk.iter().filter_map(|second| (line.of)(second)).reduce(worse)?))
        });
        Series { name: line.name.to_owned(), points: points.collect() }
    });
    Chart {
        name: name.to_owned(),
        x: linear("seconds of the measurement", grouped),
        y,
        series: series.collect(),
        limits: Vec::new(),
        mark: None,
    }
}
