//! The page of a sweep.

use maud::html;

use super::step::Step;
use super::{Sweep, table};
use crate::report::LATENCIES;
use crate::report::html::chart::{Axis, Chart, Series};
use crate::report::html::run::{latencies, limits};
use crate::report::html::{page, printed};
use crate::units::{ids_per_s, short_rate, time};

const NO_PLAN: &str = "This sweep has no figure to plan with.";

pub(crate) fn render(sweep: &Sweep) -> String {
    let (result, meaning) = match sweep.exit_code() {
        0 => ("pass", "snowbank-loadtest plan computes daemons, cores and worker IDs from this figure."),
        1 => ("fail", NO_PLAN),
        _ => ("no verdict", NO_PLAN),
    };
    let content = html! {
        section {
            h2 { "Rate against latency" }
            p {
                "Each dot is one run, an open loop at that rate. The saturation point is the highest rate at which the objective "
                "holds; a second run, twice as long, has to confirm it."
            }
            @if let Some(chart) = chart(sweep) { (chart.markup()) }
            (printed(|out| table::steps(&sweep.steps, out)))
        }
        @if let Some(step) = sweep.at_saturation() {
            h2 { "The run at the saturation point" }
            (latencies(&step.run))
        }
    };
    page(result, &sweep.summary, meaning, &[], &content)
}

/// Draws rate against latency. Returns `None` if the sweep has no step.
fn chart(sweep: &Sweep) -> Option<Chart> {
    let mut steps: Vec<&Step> = sweep.steps.iter().collect();
    steps.sort_by(|one, other| one.rate().total_cmp(&other.rate()));
    let mut series = Vec::new();
    for name in ["p50", "p99", "p99.9"] {
        let points =
            steps.iter().filter_map(|step| Some((step.rate(), step.run.figures.number(LATENCIES[0], name)?)));
        series.push(Series { name: name.to_owned(), points: points.collect() });
    }
    Some(Chart {
        name: format!("Response time against rate. {}. The table below has the figures.", sweep.summary),
        x: Axis { is_log: true, label: "IDs per second", words: short_rate },
        y: Axis { is_log: true, label: "", words: time },
        series,
        limits: limits(&steps.first()?.run),
        mark: sweep
            .saturation
            .map(|saturation| (saturation, format!("saturation point: {}", ids_per_s(saturation)))),
    })
}
