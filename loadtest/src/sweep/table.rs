//! A sweep in words: a row for each step as soon as it is over, and at the end the result.

use std::io::{self, Write};

use super::machine::Versions;
use super::search::{Limit, Phase};
use super::step::Step;
use super::{Ended, Sweep};
use crate::judge::Latency;
use crate::report::lines::{Line, UNKNOWN};
use crate::units::{counted, rate};
use crate::value::{MAX_RATE_PER_S, Time};

/// A column of the table of steps, on the terminal and on the page.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    width: usize,
    pub(crate) text: fn(&Step) -> String,
}

/// The columns; times are in ms.
pub(crate) const COLUMNS: [Column; 10] = [
    Column { name: "asked/s", width: 8, text: |step| short(step.rate()) },
    Column { name: "got/s", width: 8, text: |step| short(step.run.ids_per_s) },
    Column { name: "p50", width: 8, text: |step| ms(step, "p50") },
    Column { name: "p99", width: 8, text: |step| ms(step, "p99") },
    Column { name: "p99.9", width: 8, text: |step| ms(step, "p99.9") },
    Column { name: "max", width: 8, text: |step| ms(step, "max") },
    Column { name: "errors", width: 8, text: |step| short(step.run.errors() as f64) },
    Column {
        name: "target CPU",
        width: 12,
        text: |step| step.run.target_cpu_share.map_or(UNKNOWN.to_owned(), percent),
    },
    Column { name: "generator", width: 11, text: |step| percent(step.run.generator_cpu_share) },
    Column {
        name: "stood still",
        width: 13,
        text: |step| {
            step.run
                .machine
                .as_ref()
                .map_or(UNKNOWN.to_owned(), |it| format!("{:.0} ms", it.stalled_us / 1e3))
        },
    },
];

/// Writes the lines before the steps.
///
/// # Errors
/// The writer's.
pub(crate) fn begin(sweep: &Sweep, out: &mut dyn Write) -> io::Result<()> {
    let Sweep { settings, target, own_daemon, bounds, .. } = sweep;
    let scenario = &settings.scenario;
    let version = target.version.as_deref().unwrap_or("version unknown");
    let own = if *own_daemon { ", started for this sweep" } else { "" };
    let machine = &settings.origin.machine;
    let (cpu, cores) = (machine.cpu.as_deref().unwrap_or("processor unknown"), machine.cores);
    let to =
        if bounds.limit < MAX_RATE_PER_S { format!("to {}/s", short(bounds.limit)) } else { "up".to_owned() };
    let (each, warm_up) = (settings.search.length, Time(scenario.warm_up));
    let lines = [
        ("target", format!("{} ({version}{}{own})", target.address, scenario.protocol.by())),
        ("machine", format!("{cpu}, {}, {}", counted(cores as u64, "core"), machine.kernel)),
        ("objective", format!("response time {}, open loop", objective(sweep))),
        (
            "load",
            format!(
                "IDs per request {}, {}, {}",
                scenario.batch,
                counted(scenario.connections as u64, "connection"),
                counted(scenario.threads as u64, "thread")
            ),
        ),
        ("steps", format!("from {}/s {to}, {each} each after a warm-up of {warm_up}", short(bounds.start))),
    ];
    for (name, text) in lines {
        Line { name, text }.write(out)?;
    }
    writeln!(out)?;
    COLUMNS.iter().try_for_each(|column| write!(out, "{:>width$}", column.name, width = column.width))?;
    writeln!(out, "  verdict")
}

fn objective(sweep: &Sweep) -> String {
    let within = |latency: &Latency| format!("{} within {}", latency.name(), Time(latency.limit));
    sweep.settings.objectives.latencies.iter().map(within).collect::<Vec<_>>().join(", ")
}

/// Writes a step's row.
///
/// # Errors
/// The writer's.
pub(crate) fn row(step: &Step, out: &mut dyn Write) -> io::Result<()> {
    COLUMNS
        .iter()
        .try_for_each(|column| write!(out, "{:>width$}", (column.text)(step), width = column.width))?;
    writeln!(out, "  {}", verdict(step))
}

/// Returns a step's verdict in a word or two.
pub(crate) fn verdict(step: &Step) -> String {
    match (step.limit, step.phase) {
        (Some(Limit::Machine), _) => "no verdict".to_owned(),
        (Some(limit), _) => format!("misses: {}", limit.name()),
        (None, Phase::Confirm) if step.holds => "holds again".to_owned(),
        (None, _) if step.holds => "holds".to_owned(),
        (None, _) if step.run.verdict == "fail" => "broken".to_owned(),
        (None, _) => "cut short".to_owned(),
    }
}

/// Writes the result.
///
/// # Errors
/// The writer's.
pub(crate) fn end(sweep: &Sweep, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{}", summary(sweep))?;
    lines(sweep).iter().try_for_each(|line| line.write(out))
}

/// Returns the lines that explain the result.
pub(crate) fn lines(sweep: &Sweep) -> Vec<Line> {
    let mut lines = Vec::new();
    let Some(step) = sweep.at_knee() else { return lines };
    let each = step.run.target_us_per_request().map_or(UNKNOWN.to_owned(), |us| format!("{us:.2} µs"));
    let share = step.run.target_cpu_share.map_or(UNKNOWN.to_owned(), percent);
    let requests = rate(step.rate() / step.run.mean_batch);
    let text = format!("{requests} requests/s at the knee; target {share} of a core, {each} a request");
    lines.push(Line { name: "CPU", text });
    if let Some((missed, limit)) = sweep.finding.missed {
        let reasons = sweep.at_miss().map(|step| step.run.reasons.join("; ")).unwrap_or_default();
        let text = format!("at {} IDs/s: {}; {reasons}", rate(missed), limit.words());
        lines.push(Line { name: "missed", text });
    }
    let by_chance = step.run.response_time.decided_by_chance();
    let objectives = sweep.settings.objectives.latencies.iter().map(Latency::name);
    for name in objectives.filter(|name| by_chance.contains(name)) {
        let text =
            format!("too few requests for the {name} at the knee, chance decides it: use a longer --for");
        lines.push(Line { name: "note", text });
    }
    if Versions::with(None).debug_build {
        let text = "this is a debug build: its figures are not a release's".to_owned();
        lines.push(Line { name: "note", text });
    }
    lines
}

impl Limit {
    /// Returns the limit, and what helps.
    fn words(self) -> &'static str {
        match self {
            Self::Layout => "the source has no more IDs for this time; more IDs need more worker IDs",
            Self::Latency => "answers came too late",
            Self::Target => "the target failed under the load",
            Self::Machine => "this machine gave no verdict, and the target may do more",
        }
    }
}

/// Returns the line of the result: the knee, or why there is none.
pub(crate) fn summary(sweep: &Sweep) -> String {
    let objective = objective(sweep);
    let so_far = match sweep.finding.knee {
        Some(knee) => format!("held up to {} IDs/s, not confirmed", rate(knee)),
        None => "held at no rate".to_owned(),
    };
    match (&sweep.ended, sweep.finding.knee) {
        (Ended::Broken(reason), _) => format!("fail: {reason}"),
        (Ended::Gone(reason), _) => {
            format!("fail: the target took no further run: {reason}; {objective} {so_far}")
        }
        (Ended::Hindered(reason), _) => format!("no knee: {reason}; {objective} {so_far}"),
        (Ended::Interrupted, _) => format!("no knee: interrupted; {objective} {so_far}"),
        (Ended::Searched, Some(knee)) if sweep.finding.confirmed => {
            let bound = if sweep.is_lower_bound() { "at least " } else { "" };
            let limit = sweep.limit().map_or("none up to --limit", Limit::name);
            format!("knee: {bound}{} IDs/s with {objective}, confirmed; limit: {limit}", rate(knee))
        }
        (Ended::Searched, _) => format!("no knee: {}", why_none(sweep, &objective)),
    }
}

fn why_none(sweep: &Sweep, objective: &str) -> String {
    let reasons = sweep.at_miss().map(|step| step.run.reasons.join("; ")).unwrap_or_default();
    let start = rate(sweep.bounds.start);
    let held_once = sweep.steps.iter().any(|step| step.holds);
    match (sweep.finding.missed, held_once) {
        (_, true) => {
            format!(
                "{objective} held once at some rates, and at none a second time, down to {start} IDs/s: {reasons}"
            )
        }
        (Some((_, Limit::Machine)), _) => format!("no verdict at the first step, {start} IDs/s: {reasons}"),
        _ => format!("{objective} does not hold at the first step, {start} IDs/s: {reasons}"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Returns a quantile of the response time in ms, in at most 6 characters.
fn ms(step: &Step, quantile: &str) -> String {
    let found = step.run.response_time.at(quantile).filter(|_| step.run.response_time.count > 0);
    match found.map(|us| us / 1e3) {
        None => UNKNOWN.to_owned(),
        Some(ms) if ms < 100.0 => format!("{ms:.3}"),
        Some(ms) if ms < 1_000.0 => format!("{ms:.1}"),
        Some(ms) => format!("{ms:.0}"),
    }
}

/// Returns a rate in four digits, at most 6 characters.
pub(crate) fn short(rate: f64) -> String {
    let (unit, name) = match rate {
        ..9_999.5 => return format!("{rate:.0}"),
        ..999_950.0 => (1e3, "k"),
        ..999_950_000.0 => (1e6, "M"),
        _ => (1e9, "G"),
    };
    let number = rate / unit;
    let decimals = match number {
        ..9.9995 => 3,
        ..99.995 => 2,
        _ => 1,
    };
    format!("{number:.decimals$}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_keep_four_digits() {
        let cases = [
            (2_000.0, "2000"),
            (9_999.0, "9999"),
            (10_000.0, "10.00k"),
            (99_996.0, "100.0k"),
            (113_000.0, "113.0k"),
            (999_999.0, "1.000M"),
            (4_096_000.0, "4.096M"),
            (1e12, "1000.0G"),
        ];
        for (rate, expected) in cases {
            assert_eq!(short(rate), expected, "{rate}");
        }
    }

    #[test]
    fn a_row_fits_into_a_hundred_columns() {
        let columns: usize = COLUMNS.iter().map(|column| column.width).sum();
        assert!(columns + "  misses: latency".len() <= 110, "{columns}");
    }
}
