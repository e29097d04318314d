//! Shows a sweep at the terminal: writes a row when a step is over, and the result at the end.

use std::io::{self, Write};

use super::search::{Limit, Phase};
use super::step::Step;
use super::{Ended, Settings, Sweep};
use crate::figure::UNKNOWN;
use crate::report::table::line;
use crate::report::{IDS, LATENCIES, LOAD, MACHINE, NOTE, ORIGIN, PROCESSOR, TARGET};
use crate::units::{duration, grouped, lowercase};

/// The columns of the table of steps: each column's heading, and its figure's row and name.
const COLUMNS: [[&str; 3]; 9] = [
    ["asked/s", LOAD, "offered"],
    ["got/s", IDS, "rate"],
    ["p50", LATENCIES[0], "p50"],
    ["p99", LATENCIES[0], "p99"],
    ["p99.9", LATENCIES[0], "p99.9"],
    ["max", LATENCIES[0], "max"],
    ["target", PROCESSOR, "target's CPU"],
    ["generator", PROCESSOR, "generator's CPU"],
    ["stood still", MACHINE, "stood still"],
];

fn width(heading: &str) -> usize {
    heading.len().max(9) + 1
}

/// Writes the lines before the steps.
///
/// # Errors
/// The writer's error.
pub(super) fn begin(
    settings: &Settings,
    bounds: super::search::Bounds,
    out: &mut dyn Write,
) -> io::Result<()> {
    let from = grouped(bounds.start);
    let to = grouped(bounds.limit);
    line("objective", &format!("response time {}, open loop", objective(settings)), out)?;
    line("steps", &format!("from {from} to {to} IDs/s, {} each", duration(settings.scenario.length)), out)?;
    writeln!(out)?;
    head(out)
}

fn head(out: &mut dyn Write) -> io::Result<()> {
    for [heading, ..] in COLUMNS {
        write!(out, "{heading:>0$}", width(heading))?;
    }
    writeln!(out, "  verdict")
}

/// Writes the table of all steps.
///
/// # Errors
/// The writer's error.
pub(crate) fn steps(steps: &[Step], out: &mut dyn Write) -> io::Result<()> {
    head(out)?;
    steps.iter().try_for_each(|step| row(step, out))
}

pub(super) fn objective(settings: &Settings) -> String {
    let latencies = settings.objectives.latencies.iter();
    let within = latencies.map(|latency| format!("{} within {}", latency.name(), duration(latency.limit)));
    within.collect::<Vec<_>>().join(", ")
}

/// Writes a step's row.
///
/// # Errors
/// The writer's error.
pub(super) fn row(step: &Step, out: &mut dyn Write) -> io::Result<()> {
    for [heading, row, name] in COLUMNS {
        // The unit of a rate is in the heading.
        let text = step.run.figures.text(row, name).replace(" IDs/s", "");
        write!(out, "{text:>0$}", width(heading))?;
    }
    writeln!(out, "  {}", verdict(step))
}

/// Returns a step's verdict in a word or two.
fn verdict(step: &Step) -> String {
    match (step.limit, step.phase) {
        (Some(Limit::Machine), _) => "no verdict".to_owned(),
        (Some(limit), _) => format!("misses: {}", lowercase(limit)),
        (None, Phase::Confirm) if step.holds => "holds again".to_owned(),
        (None, _) if step.holds => "holds".to_owned(),
        (None, _) if step.run.verdict == "fail" => "broken".to_owned(),
        (None, _) => "cut short".to_owned(),
    }
}

/// Writes the result, and the lines that explain it.
///
/// # Errors
/// The writer's error.
pub(crate) fn end(sweep: &Sweep, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{}", sweep.summary)?;
    if let Some(step) = sweep.at_miss() {
        line("missed", &format!("at {} IDs/s: {}", grouped(step.rate()), step.run.reasons.join("; ")), out)?;
    }
    let Some(step) = sweep.at_saturation().or(sweep.steps.last()) else { return Ok(()) };
    for row in [PROCESSOR, NOTE, TARGET, LOAD, ORIGIN] {
        line(row, &step.run.figures.row_text(row).unwrap_or_else(|| UNKNOWN.to_owned()), out)?;
    }
    Ok(())
}

/// Returns the first line of the result: the saturation point, or the reason why there is none.
pub(super) fn summary(sweep: &Sweep, objective: &str) -> String {
    let saturation = sweep.saturation.map(grouped);
    let so_far = match &saturation {
        Some(saturation) => format!("{objective} held up to {saturation} IDs/s, not confirmed"),
        None => format!("{objective} held at no rate"),
    };
    match &sweep.ended {
        Ended::Broken(reason) => format!("fail: {reason}"),
        Ended::Gone(reason) => format!("fail: the target could not be loaded again: {reason}; {so_far}"),
        Ended::Hindered(reason) => format!("no saturation point: {reason}; {so_far}"),
        Ended::Interrupted => format!("no saturation point: interrupted; {so_far}"),
        Ended::Searched if sweep.confirmed => {
            let bound = if sweep.at_least { "at least " } else { "" };
            let limit = sweep.limit.map_or_else(|| "none up to --limit".to_owned(), lowercase);
            let saturation = saturation.unwrap_or_default();
            format!("saturation point: {bound}{saturation} IDs/s with {objective}, confirmed; limit: {limit}")
        }
        Ended::Searched => format!("no saturation point: {}", why_none(sweep, objective)),
    }
}

fn why_none(sweep: &Sweep, objective: &str) -> String {
    let reasons = sweep.at_miss().map(|step| step.run.reasons.join("; ")).unwrap_or_default();
    let start = grouped(sweep.search.start);
    if sweep.steps.iter().any(|step| step.holds) {
        return format!("{objective} held at no rate twice, down to {start} IDs/s");
    }
    match sweep.limit {
        Some(Limit::Machine) => format!("no verdict at the first step, {start} IDs/s: {reasons}"),
        _ => format!("{objective} does not hold at the first step, {start} IDs/s: {reasons}"),
    }
}
