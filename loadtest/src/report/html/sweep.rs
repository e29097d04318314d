//! The page of a sweep.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Ink, Series, Shape};
use super::run::{generator, latencies, target_facts};
use super::{card, facts, origin_facts, page, sign_and_class};
use crate::report::json::Run;
use crate::sweep::file::File;
use crate::sweep::search::Limit;
use crate::sweep::step::Step;
use crate::units::{count, percent, rate, short_rate, time};

/// The curves and their styles.
const CURVES: [(&str, Ink); 3] = [("p50", Ink::First), ("p99", Ink::Second), ("p99.9", Ink::Third)];

/// Returns the page's text.
pub(crate) fn render(sweep: &File) -> String {
    let title = match sweep.knee {
        Some(knee) => format!("knee at {} IDs/s, snowbank-loadtest", rate(knee)),
        None => "no knee, snowbank-loadtest".to_owned(),
    };
    let at_knee = at_knee(sweep).map(|step| &step.run);
    let content = html! {
        (head(sweep))
        (cards(sweep, at_knee))
        section {
            h2 { "Rate against latency" }
            p {
                "Each dot is one run, an open loop at that rate; the lines go through the mean of a rate’s runs. The knee is the highest rate at which the objective holds; "
                "a second run, twice as long, has to confirm it."
            }
            @if let Some(chart) = chart(sweep) { (chart.markup()) }
            (steps(sweep))
        }
        @if let Some(run) = at_knee {
            h2 class="part" { "The run at the knee" }
            (latencies(run))
            (generator(run))
        }
        section {
            h2 { "What was run" }
            @if let Some(step) = sweep.steps.first() {
                (origin_facts(&step.run.origin))
                (target_facts(at_knee.unwrap_or(&step.run)))
            }
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
    let (verdict, words) = match (sweep.exit_code, sweep.confirmed) {
        (0, true) => ("pass", "confirmed"),
        (1, _) => ("fail", "fail"),
        _ => ("no verdict", "not confirmed"),
    };
    let (sign, class) = sign_and_class(verdict);
    let at_least = if sweep.at_least { "at least " } else { "" };
    html! {
        header class=(class) {
            h1 {
                span class="verdict" { span aria-hidden="true" { (sign) } " " (words) }
                @match sweep.knee {
                    Some(knee) => { " " (at_least) (rate(knee)) " IDs/s" },
                    None => " the objective held at no rate",
                }
            }
            p { (sweep.summary) }
        }
    }
}

fn cards(sweep: &File, at_knee: Option<&Run>) -> Markup {
    let figure = |figure: Option<String>| figure.unwrap_or_else(|| "–".to_owned());
    let at = |name| figure(at_knee.and_then(|run| run.response_time.at(name)).map(time));
    let objective = |name: &str| sweep.objective.iter().find(|objective| objective.quantile == name);
    let requests = sweep.knee.map(|knee| format!("{} requests/s", rate(knee / sweep.mean_batch.max(1.0))));
    let each = at_knee.and_then(Run::daemon_us_per_request);
    html! {
        dl class="cards" {
            (card("Knee, IDs per second", &figure(sweep.knee.map(rate)), &html! { (figure(requests)) }))
            @for name in ["p50", "p99", "p99.9"] {
                (card(&format!("Response time there, {name}"), &at(name), &html! {
                    @if let Some(objective) = objective(name) {
                        "objective: " (time(objective.limit_us))
                    }
                }))
            }
            (card("Missed at, IDs per second", &figure(sweep.missed.map(rate)), &html! {
                @if let Some(limit) = sweep.limit { "limit: " (limit_words(limit)) }
            }))
            (card("Full rate of the source", &figure(sweep.target.source_per_second.map(count)), &html! { "IDs per second" }))
            (card("Daemon, each request", &figure(each.map(time)), &html! {
                @if let Some(share) = at_knee.and_then(|run| run.daemon_cpu_share) { (percent(share)) " of a core" }
            }))
            (card("Runs", &sweep.steps.len().to_string(), &html! {
                (sweep.steps.iter().filter(|step| step.holds).count()) " held"
            }))
        }
    }
}

fn limit_words(limit: Limit) -> &'static str {
    match limit {
        Limit::Layout => "the layout",
        Limit::Latency => "latency",
        Limit::Target => "the target",
        Limit::Generator => "the generator",
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
            knee_words(sweep)
        ),
        x: Axis::logarithmic([first, last].into_iter(), "IDs per second", short_rate),
        y: Axis::logarithmic(values, "", time),
        series: CURVES.into_iter().flat_map(|(name, ink)| curve(&steps, name, ink)).collect(),
        limits: sweep.objective.iter().map(limit).collect(),
        marks: knee.into_iter().collect(),
        bands: Vec::new(),
    })
}

fn knee_words(sweep: &File) -> String {
    let Some(knee) = sweep.knee else {
        return "The objective held at no rate".to_owned();
    };
    let named = |name| at_knee(sweep).and_then(|step| step.at(name)).map(|us| format!("{name} {}", time(us)));
    let times: Vec<String> = CURVES.iter().filter_map(|(name, _)| named(name)).collect();
    format!("The knee is at {}: {}", rate(knee), times.join(", "))
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
                        th scope="col" { "IDs/s" }
                        th scope="col" class="word" { "step" }
                        th scope="col" class="word" { "objective" }
                        @for name in ["p50", "p99", "p99.9", "max", "got", "errors", "daemon", "slip p99.9"] {
                            th scope="col" { (name) }
                        }
                    }
                }
                tbody { @for step in &sweep.steps { (step_row(step)) } }
            }
        }
    }
}

fn step_row(step: &Step) -> Markup {
    let run = &step.run;
    let or_none = |figure: Option<String>| figure.unwrap_or_else(|| "–".to_owned());
    html! {
        tr {
            th scope="row" { (rate(step.rate())) }
            td class="word" { (step.phase.name()) }
            @match (step.holds, step.limit) {
                (true, _) => td class="word met" { "✓ holds" },
                // The run does not measure the target.
                (false, Some(Limit::Generator)) => td class="word" { "? the generator" },
                (false, Some(limit)) => td class="word missed" { "✗ " (limit_words(limit)) },
                (false, None) => td class="word" { "? ended" },
            }
            @for name in ["p50", "p99", "p99.9", "max"] { td { (or_none(run.response_time.at(name).map(time))) } }
            td { (rate(run.ids_per_s)) }
            td { (count(run.errors())) }
            td { (or_none(run.daemon_cpu_share.map(percent))) }
            td { (or_none(run.schedule_slip.as_ref().and_then(|slip| slip.at("p99.9")).map(time))) }
        }
    }
}

fn search_facts(sweep: &File) -> Markup {
    let search = &sweep.search;
    facts(&[
        ("Searched", Some(format!("{} to {} IDs/s", rate(search.bounds.start), rate(search.bounds.limit)))),
        (
            "Climbed by",
            Some(format!("× {}, then closer to {}", search.bounds.factor, percent(search.bounds.resolution))),
        ),
        ("A rate is missed", Some(format!("after {} runs in a row", search.bounds.tries))),
        (
            "Each step",
            Some(format!(
                "{}, the confirmation {}, after a warm-up of {}",
                time(search.step_s * 1e6),
                time(search.confirm_s * 1e6),
                time(search.warm_up_s * 1e6)
            )),
        ),
        ("Ended", Some(sweep.ended.clone())),
    ])
}
