//! The page of a sweep.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Ink, Series, Shape};
use super::run::{figures, latencies};
use super::{facts, origin_facts, page, sign_and_class};
use crate::sweep::file::File;
use crate::sweep::search::Limit;
use crate::sweep::step::Step;
use crate::sweep::table::{COLUMNS, verdict};
use crate::units::{percent, rate, short_rate, time};

/// The curves and their styles.
const CURVES: [(&str, Ink); 3] = [("p50", Ink::First), ("p99", Ink::Second), ("p99.9", Ink::Third)];

/// Returns the page's text.
pub(crate) fn render(sweep: &File) -> String {
    let title = match sweep.knee {
        Some(knee) => format!("knee at {} IDs/s, snowbank-loadtest", rate(knee)),
        None => "no knee, snowbank-loadtest".to_owned(),
    };
    let content = html! {
        (head(sweep))
        section {
            h2 { "Rate against latency" }
            p {
                "Each dot is one run, an open loop at that rate; the lines go through the mean of a rate’s runs. The knee is the "
                "highest rate at which the objective holds; a second run, twice as long, has to confirm it."
            }
            @if let Some(chart) = chart(sweep) { (chart.markup()) }
            (steps(sweep))
        }
        @if let Some(step) = at_knee(sweep) {
            h2 class="part" { "The run at the knee" }
            (latencies(&step.run))
            (figures(&step.run))
        }
        section {
            h2 { "What was run" }
            @if let Some(step) = sweep.steps.first() { (origin_facts(&step.run.origin)) }
            (search_facts(sweep))
        }
    };
    page(&title, "sweep", &content)
}

/// Returns the last run that held at the knee: its confirmation, if there is one.
fn at_knee(sweep: &File) -> Option<&Step> {
    let knee = sweep.knee?;
    sweep.steps.iter().rev().find(|step| step.holds && step.run.wanted_ids_per_s == Some(knee))
}

fn head(sweep: &File) -> Markup {
    let (result, words) = match (sweep.exit_code, sweep.confirmed) {
        (0, true) => ("pass", "confirmed"),
        (1, _) => ("fail", "fail"),
        _ => ("no verdict", "not confirmed"),
    };
    let (sign, class) = sign_and_class(result);
    html! {
        header class=(class) {
            h1 { span class="verdict" { span aria-hidden="true" { (sign) } " " (words) } " " (sweep.summary) }
        }
    }
}

/// Draws rate against latency; none where no run was answered.
fn chart(sweep: &File) -> Option<Chart> {
    let mut steps: Vec<&Step> =
        sweep.steps.iter().filter(|step| step.run.response_time.count > 0 && step.rate() > 0.0).collect();
    steps.sort_by(|one, other| one.rate().total_cmp(&other.rate()));
    let (first, last) = (steps.first()?.rate(), steps.last()?.rate());
    let values = steps.iter().flat_map(|step| CURVES.map(|(name, _)| step.at(name))).flatten();
    let values = values.chain(sweep.objective.iter().map(|objective| objective.limit_us));
    let limit = |objective: &crate::sweep::file::Objective| {
        let words = format!("objective: {} at most {}", objective.quantile, time(objective.limit_us));
        (objective.limit_us.log10(), words, Ink::Limit)
    };
    let knee = sweep.knee.map(|knee| (knee.log10(), format!("knee: {} IDs/s", rate(knee))));
    Some(Chart {
        alternative: format!(
            "Response time against rate, from {} to {} IDs per second. {}. The table below has the figures.",
            rate(first),
            rate(last),
            sweep.summary
        ),
        x: Axis::logarithmic([first, last].into_iter(), "IDs per second", short_rate),
        y: Axis::logarithmic(values, "", time),
        series: CURVES.into_iter().flat_map(|(name, ink)| curve(&steps, name, ink)).collect(),
        limits: sweep.objective.iter().map(limit).collect(),
        marks: knee.into_iter().collect(),
        bands: Vec::new(),
    })
}

/// Returns the dots of all runs, and the line through the means of each rate.
fn curve(steps: &[&Step], name: &str, ink: Ink) -> [Series; 2] {
    let point = |step: &&Step| Some((step.rate().log10(), step.at(name)?.log10()));
    let dots: Vec<(f64, f64)> = steps.iter().filter_map(point).collect();
    let line = means(&dots);
    let series = |(shape, points)| Series { name: name.to_owned(), ink, shape, points };
    [(Shape::Line, line), (Shape::DotsAlone, dots)].map(series)
}

/// Returns one point for each x: the mean of its points, which are sorted by x.
fn means(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let of_one_x = points.chunk_by(|one, next| one.0 == next.0);
    of_one_x
        .map(|chunk| (chunk[0].0, chunk.iter().map(|(_, y)| y).sum::<f64>() / chunk.len() as f64))
        .collect()
}

impl Step {
    /// Returns a quantile of its response time; none of 0, which no logarithmic axis has.
    fn at(&self, name: &str) -> Option<f64> {
        self.run.response_time.at(name).filter(|us| *us > 0.0)
    }
}

fn steps(sweep: &File) -> Markup {
    html! {
        div class="scroll" tabindex="0" {
            table {
                thead {
                    tr {
                        @for column in &COLUMNS { th scope="col" { (column.name) } }
                        th scope="col" class="word" { "verdict" }
                    }
                }
                tbody {
                    @for step in &sweep.steps {
                        tr {
                            @for column in &COLUMNS { td { ((column.text)(step)) } }
                            td class={ "word " (class(step)) } { (verdict(step)) }
                        }
                    }
                }
            }
        }
    }
}

fn class(step: &Step) -> &'static str {
    match (step.holds, step.limit) {
        (true, _) => "met",
        (false, None | Some(Limit::Machine)) => "",
        (false, Some(_)) => "missed",
    }
}

fn search_facts(sweep: &File) -> Markup {
    let search = &sweep.search;
    let full_rate =
        sweep.target.source_per_second.map(|full_rate| format!("{} IDs/s", rate(full_rate as f64)));
    facts(&[
        ("Searched", Some(format!("{} to {} IDs/s", rate(search.bounds.start), rate(search.bounds.limit)))),
        (
            "Climbed by",
            Some(format!("× {}, then closer to {}", search.bounds.factor, percent(search.bounds.resolution))),
        ),
        (
            "Each step",
            Some(format!(
                "{}, the confirmation {}, after a warm-up of {}",
                time(search.step_s * 1e6),
                time(search.confirm_s * 1e6),
                time(search.warm_up_s * 1e6)
            )),
        ),
        ("Full rate of the source", full_rate),
        ("Ended", Some(sweep.ended.clone())),
    ])
}
