//! A run second by second: its charts. `--csv` writes their figures.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Ink, Series, Shape};
use crate::measure::SecondFigures;
use crate::report::json::{LatencyFigures, Run};
use crate::units::{grouped, percent, rate, short_rate, time};

/// The most points on a chart of seconds, and rows in its table. The seconds of a longer run are
/// combined.
const MAX_POINTS: usize = 300;

/// Up to this many points, each gets a dot.
const FEW_POINTS: usize = 40;

/// Several seconds combined, with the worst of their latencies.
struct Point {
    second: u64,
    length: u64,
    figures: SecondFigures,
}

fn points(run: &Run) -> Vec<Point> {
    let seconds = run.whole_seconds();
    let each = seconds.len().div_ceil(MAX_POINTS).max(1);
    seconds
        .chunks(each)
        .filter_map(|chunk| {
            let mut figures = (*chunk.first()?).clone();
            for next in &chunk[1..] {
                figures.ids += next.ids;
                figures.answered += next.answered;
                figures.refused += next.refused;
                figures.p50_us = figures.p50_us.max(next.p50_us);
                figures.p90_us = figures.p90_us.max(next.p90_us);
                figures.p99_us = figures.p99_us.max(next.p99_us);
                figures.p999_us = figures.p999_us.max(next.p999_us);
                figures.max_us = figures.max_us.max(next.max_us);
                figures.target_cpu_share = most(figures.target_cpu_share, next.target_cpu_share);
                figures.target_memory_bytes = most(figures.target_memory_bytes, next.target_memory_bytes);
                figures.clock_offset_us = next.clock_offset_us.or(figures.clock_offset_us);
            }
            Some(Point { second: figures.second, length: chunk.len() as u64, figures })
        })
        .collect()
}

/// Returns the larger one of those that are known.
fn most<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Option<T> {
    if one > other { one } else { other }
}

impl Point {
    fn middle(&self) -> f64 {
        self.second as f64 + self.length as f64 / 2.0
    }

    fn per_s(&self, number: u64) -> f64 {
        number as f64 / self.length.max(1) as f64
    }
}

/// Returns an objective as a line across.
pub(super) fn limit_line(latency: &LatencyFigures) -> (f64, String, Ink) {
    let (name, limit) = (&latency.quantile, time(latency.limit_us));
    (latency.limit_us.log10(), format!("objective: {name} at most {limit}"), Ink::Limit)
}

/// Returns the section of the page.
pub(super) fn seconds(run: &Run) -> Markup {
    let points = points(run);
    let each = points.first().map_or(1, |point| point.length);
    let refused: u64 = points.iter().map(|point| point.figures.refused).sum();
    html! {
        section {
            h2 { "Second by second" }
            @if points.is_empty() {
                p { "The measurement ended before its first second did." }
            } @else {
                @if each > 1 {
                    p { "Each point stands for " (each) " s: their mean rate, and the worst of their latencies." }
                }
                h3 { "IDs per second" }
                (rate_chart(run, &points).markup())
                h3 { "Response time" }
                (latency_chart(run, &points).markup())
                @if refused > 0 {
                    h3 { "Requests refused per second" }
                    (refused_chart(run, &points).markup())
                }
                (over_time(run, &points))
            }
        }
    }
}

fn time_axis(points: &[Point]) -> Axis {
    let end = points.last().map_or(1, |point| point.second + point.length);
    let axis = Axis::from_zero(end as f64, "seconds of the measurement", |at| format!("{at}"));
    Axis {
        range: (0.0, end as f64),
        ticks: axis.ticks.into_iter().filter(|(at, _)| *at <= end as f64).collect(),
        ..axis
    }
}

fn series(name: &str, ink: Ink, points: &[Point], value: impl Fn(&Point) -> f64) -> Series {
    let shape = if points.len() <= FEW_POINTS { Shape::Dots } else { Shape::Line };
    let points = points.iter().map(|point| (point.middle(), value(point))).collect();
    Series { name: name.to_owned(), ink, shape, points }
}

fn bands(run: &Run) -> Vec<(f64, f64, String)> {
    let outage = run.outage.iter();
    let outage = outage
        .map(|outage| (outage.at_s, outage.at_s + outage.excluded_us() / 1e6, "announced outage".to_owned()));
    let stall = run.client_stall.iter();
    let stall = stall.map(|stall| {
        let caught_up_s = stall.caught_up_after_us.unwrap_or_default() / 1e6;
        (stall.at_s, stall.at_s + stall.for_s + caught_up_s, "announced client stall".to_owned())
    });
    outage.chain(stall).collect()
}

/// Returns the least and the most of the values, for the words beside a chart.
fn between(values: impl Iterator<Item = f64>, words: impl Fn(f64) -> String) -> String {
    let ends = values.filter(|value| value.is_finite());
    let (low, high) =
        ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high { "nothing".to_owned() } else { format!("{} to {}", words(low), words(high)) }
}

fn rate_chart(run: &Run, points: &[Point]) -> Chart {
    let achieved = series("achieved", Ink::First, points, |point| point.per_s(point.figures.ids));
    let offered =
        run.wanted_ids_per_s.map(|wanted| (wanted, format!("offered: {}/s", rate(wanted)), Ink::Mark));
    let values = || achieved.points.iter().map(|(_, y)| *y);
    let highest = values().chain(offered.iter().map(|(wanted, ..)| *wanted)).fold(0.0, f64::max);
    Chart {
        alternative: format!(
            "IDs per second over the measurement: {} in a second, {} in all.",
            between(values(), rate),
            rate(run.ids_per_s)
        ),
        x: time_axis(points),
        // The line of the offered rate needs room above it for its name.
        y: Axis::from_zero(highest * 1.15, "", short_rate),
        limits: offered.into_iter().collect(),
        marks: Vec::new(),
        bands: bands(run),
        series: vec![achieved],
    }
}

fn latency_chart(run: &Run, points: &[Point]) -> Chart {
    // A second without an answer has no latency: a gap in the line.
    let log = |us: f64| if us > 0.0 { us.log10() } else { f64::NAN };
    let of = |name, ink, value: fn(&SecondFigures) -> f64| {
        series(name, ink, points, |point| log(value(&point.figures)))
    };
    let values = points.iter().flat_map(|point| [point.figures.p50_us, point.figures.max_us]);
    let limits = run.objectives.latencies.iter();
    let values = values.chain(limits.clone().map(|latency| latency.limit_us));
    let between_words = |value: fn(&SecondFigures) -> f64| {
        between(points.iter().map(|point| value(&point.figures)).filter(|us| *us > 0.0), time)
    };
    Chart {
        alternative: format!(
            "Response time over the measurement, each second: p50 {}, p99 {}, the longest {}.",
            between_words(|second| second.p50_us),
            between_words(|second| second.p99_us),
            between_words(|second| second.max_us)
        ),
        x: time_axis(points),
        y: Axis::logarithmic(values, "", time),
        series: vec![
            of("p50", Ink::First, |second| second.p50_us),
            of("p99", Ink::Second, |second| second.p99_us),
            of("longest", Ink::Third, |second| second.max_us),
        ],
        limits: limits.map(limit_line).collect(),
        marks: Vec::new(),
        bands: bands(run),
    }
}

fn refused_chart(run: &Run, points: &[Point]) -> Chart {
    let mut refused = series("refused", Ink::Error, points, |point| point.per_s(point.figures.refused));
    refused.shape = Shape::Bars;
    let highest = refused.points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    Chart {
        alternative: format!(
            "Requests refused per second: {}.",
            between(refused.points.iter().map(|(_, y)| *y), short_rate)
        ),
        x: time_axis(points),
        y: Axis::from_zero(highest, "", short_rate),
        series: vec![refused],
        limits: Vec::new(),
        marks: Vec::new(),
        bands: bands(run),
    }
}

/// A figure of each second that need not be known, and its words.
type Figure = (&'static str, fn(&SecondFigures) -> Option<f64>, fn(f64) -> String);

/// The figures that a long run shows: processor time, memory, and the distance of the clocks.
const OVER_TIME: [Figure; 3] = [
    ("The target’s processor time, of one core", |it| it.target_cpu_share, percent),
    ("The target’s memory", |it| it.target_memory_bytes.map(mib), |mib| format!("{} MiB", grouped(mib))),
    (
        "The target’s clock less this machine’s",
        |it| it.clock_offset_us.map(|us| us as f64 / 1e3),
        |ms| format!("{} ms", grouped(ms)),
    ),
];

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn over_time(run: &Run, points: &[Point]) -> Markup {
    let is_known = |figure: &Figure| points.iter().any(|point| figure.1(&point.figures).is_some());
    html! {
        @for figure in OVER_TIME.iter().filter(|figure| is_known(figure)) {
            h3 { (figure.0) }
            (figure_chart(run, points, *figure).markup())
        }
    }
}

fn figure_chart(run: &Run, points: &[Point], (name, figure, words): Figure) -> Chart {
    // A second without it is a gap in the line.
    let line = series(name, Ink::First, points, |point| figure(&point.figures).unwrap_or(f64::NAN));
    let known: Vec<f64> = line.points.iter().map(|(_, y)| *y).filter(|y| y.is_finite()).collect();
    Chart {
        alternative: format!("{name} over the measurement: {}.", between(known.iter().copied(), words)),
        x: time_axis(points),
        y: Axis::around(known.into_iter(), words),
        limits: Vec::new(),
        marks: Vec::new(),
        bands: bands(run),
        series: vec![line],
    }
}
