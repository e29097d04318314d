//! A run second by second: its charts and their figures.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Ink, Series, Shape};
use crate::measure::SecondFigures;
use crate::report::json::{ClientStallFigures, LatencyFigures, Run};
use crate::units::{count, rate, short_rate, time};

/// Points on a chart of seconds, rows in its table: a longer run's seconds are put together.
const MAX_POINTS: usize = 300;

/// With so few points, each gets a dot.
const FEW_POINTS: usize = 40;

/// Some seconds put together, the worst of their latencies standing for all.
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
            }
            Some(Point { second: figures.second, length: chunk.len() as u64, figures })
        })
        .collect()
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
                @if let Some(outage) = &run.outage {
                    p {
                        "The daemon was " (if outage.ending == "kill" { "killed" } else { "stopped" })
                        " on purpose after " (time(outage.at_s * 1e6)) " and started again: "
                        (time(outage.length_us)) " until all was back, the longest gap between answers "
                        (time(outage.longest_gap_us)) ", " (count(outage.lost)) " requests lost."
                    }
                }
                @if let Some(stall) = &run.client_stall { (client_stall(stall)) }
                h3 { "IDs per second" }
                (rate_chart(run, &points).markup())
                h3 { "Response time" }
                (latency_chart(run, &points).markup())
                @if refused > 0 {
                    h3 { "Requests refused per second" }
                    (refused_chart(run, &points).markup())
                }
                (seconds_table(&points))
            }
        }
    }
}

fn client_stall(stall: &ClientStallFigures) -> Markup {
    let after = |us: Option<f64>| us.map_or_else(|| "–".to_owned(), time);
    html! {
        p {
            "One connection was not read for " (time(stall.for_s * 1e6)) " on purpose, from "
            (time(stall.at_s * 1e6)) " on: "
            @match (stall.closed_after_us, stall.caught_up_after_us) {
                (_, None) => "the run ended before that was over",
                (None, caught_up) => { "it recovered " (after(caught_up)) " after" }
                (closed, caught_up) => {
                    "the target closed it, seen after " (after(closed)) ", and it was opened again "
                    (after(caught_up)) " after the stall"
                }
            }
            "; the longest gap between answers on the others was " (time(stall.longest_gap_us)) "; "
            (count(stall.excused)) " requests on it do not count, " (count(stall.lost)) " were lost."
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
        .map(|outage| (outage.at_s, outage.at_s + outage.length_us / 1e6, "announced outage".to_owned()));
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

fn seconds_table(points: &[Point]) -> Markup {
    html! {
        details {
            summary { "The figures of each second" }
            div class="scroll" tabindex="0" {
                table {
                    thead {
                        tr {
                            @for name in ["second", "IDs/s", "answered", "refused", "p50", "p90", "p99", "p99.9", "longest"] {
                                th scope="col" { (name) }
                            }
                        }
                    }
                    tbody {
                        @for point in points {
                            @let figures = &point.figures;
                            tr {
                                th scope="row" { (point.second) }
                                td { (rate(point.per_s(figures.ids))) }
                                td { (count(figures.answered)) }
                                td { (count(figures.refused)) }
                                @for us in [figures.p50_us, figures.p90_us, figures.p99_us, figures.p999_us, figures.max_us] {
                                    td { (if figures.answered > 0 { time(us) } else { "–".to_owned() }) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
