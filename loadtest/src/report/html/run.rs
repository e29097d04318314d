//! The page of a run.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Ink, Series};
use super::{figures, page, quantiles};
use crate::measure::SecondFigures;
use crate::report::json::{Curve, Run};
use crate::report::{ECHO, LATENCIES, LOAD};
use crate::units::{grouped, percent, short_rate, time};

/// The most points of a line.
const MAX_POINTS: usize = 300;

/// A figure of each second, if it is known.
type OfSecond = fn(&SecondFigures) -> Option<f64>;

/// Returns the page's text.
pub(crate) fn render(run: &Run) -> String {
    let summary = run.summary.split_once("  ").map_or(run.summary.as_str(), |(_, rest)| rest);
    let content = html! {
        (latencies(run))
        (figures(run))
        section {
            h2 { "Second by second" }
            @if run.whole_seconds().is_empty() { p { "The measurement ended before its first second did." } }
            @if run.whole_seconds().len() > MAX_POINTS { p { "Each point is the worst of several seconds." } }
            @for chart in of_seconds(run) {
                h3 { (chart.name) }
                (chart.markup())
            }
        }
    };
    page(&run.verdict, summary, &run.reasons, &content)
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
            @if !run.curves.is_empty() { (curves(run).markup()) }
            (quantiles(run))
        }
    }
}

/// Returns the axis of HdrHistogram's plots: each nine takes the same space.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

fn share_at(nines: f64) -> String {
    let decimals = (nines.ceil() as usize).saturating_sub(2);
    format!("{:.decimals$} %", 100.0 * (1.0 - 10_f64.powf(-nines)))
}

/// Draws the curves up to the last quantile before the maximum.
fn curves(run: &Run) -> Chart {
    let finite = |curve: &Curve| -> Vec<(f64, f64)> {
        let points = curve.points.iter().filter(|(quantile, us)| *quantile < 1.0 && *us > 0.0);
        points.map(|&(quantile, us)| (nines(quantile), us)).collect()
    };
    let inks = [(LATENCIES[0], Ink::First), (LATENCIES[1], Ink::Second), (ECHO, Ink::Third)];
    let series = run.curves.iter().map(|curve| {
        let ink = inks.iter().find(|(row, _)| *row == curve.row).map_or(Ink::Third, |(_, ink)| *ink);
        Series { name: curve.row.clone(), ink, points: finite(curve) }
    });
    Chart {
        name: "Latency by percentile; the table below has the figures.".to_owned(),
        x: Axis::linear(share_at).labelled("share of requests that were at most as slow"),
        y: Axis::logarithmic(time),
        series: series.collect(),
        limits: limits(run),
        mark: None,
    }
}

/// Returns the objectives as lines across.
pub(super) fn limits(run: &Run) -> Vec<(f64, String)> {
    let objectives = run.objectives.iter();
    let name = |objective: &crate::report::json::Objective| {
        format!("objective: {} at most {}", objective.quantile, time(objective.limit_us))
    };
    objectives.map(|objective| (objective.limit_us, name(objective))).collect()
}

fn of_seconds(run: &Run) -> Vec<Chart> {
    const TIMES: [(&str, OfSecond); 3] =
        [("p50", |it| Some(it.p50_us)), ("p99", |it| Some(it.p99_us)), ("longest", |it| Some(it.max_us))];
    const MIB: f64 = (1 << 20) as f64;
    let chart = |name: &str, y: Axis, lines: &[(&str, OfSecond)]| Chart {
        name: name.to_owned(),
        x: Axis::linear(grouped).labelled("seconds of the measurement"),
        y,
        series: lines.iter().zip(Ink::LINES).map(|(line, ink)| series(run, *line, ink, f64::max)).collect(),
        limits: Vec::new(),
        mark: None,
    };
    let mut rates = chart("IDs per second", Axis::linear(short_rate), &[]);
    rates.series.push(series(run, ("received", |it| Some(it.ids as f64)), Ink::First, f64::min));
    let offered = run.figures.number(LOAD, "offered");
    rates.limits.extend(offered.map(|offered| (offered, format!("offered: {}/s", grouped(offered)))));
    let mut times = chart("Response time", Axis::logarithmic(time), &TIMES);
    times.limits = limits(run);
    let refused = chart(
        "Requests refused",
        Axis::linear(grouped),
        &[("refused", |it| (it.refused > 0).then_some(it.refused as f64))],
    );
    let cpu = chart(
        "The target’s processor time, of one core",
        Axis::linear(percent),
        &[("target’s CPU", |it| it.target_cpu_share)],
    );
    let mib = |it: &SecondFigures| it.target_memory_bytes.map(|bytes| bytes as f64 / MIB);
    let memory = chart("The target’s memory in MiB", Axis::linear(grouped), &[("target’s memory", mib)]);
    let all = [rates, times, refused, cpu, memory];
    all.into_iter().filter(|chart| chart.series.iter().any(|line| !line.points.is_empty())).collect()
}

/// Returns a line of what is known of each second; in a long run, of the worst second of several.
fn series(run: &Run, (name, value): (&str, OfSecond), ink: Ink, worse: fn(f64, f64) -> f64) -> Series {
    let seconds = run.whole_seconds();
    let each = seconds.len().div_ceil(MAX_POINTS).max(1);
    let points = seconds.chunks(each).filter_map(|chunk| {
        let middle = chunk.first()?.second as f64 + chunk.len() as f64 / 2.0;
        let worst = chunk.iter().filter_map(|second| value(second)).reduce(worse)?;
        Some((middle, worst))
    });
    Series { name: name.to_owned(), ink, points: points.collect() }
}
