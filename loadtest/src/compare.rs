//! Compares runs of A with runs of B: finds the figures that differ more between A and B than
//! between runs of equal daemons.
//!
//! Two runs of the same daemon on the same machine give different figures. Only repeated runs show
//! how much the figures of equal daemons differ, so each side needs several runs. A figure is
//! different on two conditions. The 99.9 % confidence interval of B divided by A ([`spread`])
//! excludes 1, and that ratio or its inverse exceeds [`ALWAYS_SAME`]. Of the other figures, those
//! whose interval contains a doubling or a halving give no answer, and the rest are the same.

pub(crate) mod spread;

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde::Serialize;
use statrs::statistics::Statistics;

use crate::failure::Failure;
use crate::figure::{UNKNOWN, Unit};
use crate::report::json::{FORMAT, Run};
use crate::report::{IDS, LATENCIES, LOAD, ORIGIN, PROCESSOR, TARGET};
use spread::Interval;

/// Figures whose ratio is at most this never count as different: nobody would act on it.
const ALWAYS_SAME: f64 = 1.05;

/// If the runs show no difference, an interval may still extend beyond this factor or its inverse.
/// Then the runs give no answer, because B may be twice or half as much as A.
const CAN_TELL: f64 = 2.0;

/// The figures to compare. Each entry has the figure's row and name. Then it has the words to use
/// if B's value is higher, and those to use if it is lower. A higher value is worse for all figures
/// but the rate.
const COMPARED: [[&str; 4]; 8] = [
    [IDS, RATE, "higher", "lower"],
    [IDS, "refused", "more errors", "fewer errors"],
    [IDS, "unanswered", "more errors", "fewer errors"],
    [LATENCIES[0], "p50", "slower", "faster"],
    [LATENCIES[0], "p90", "slower", "faster"],
    [LATENCIES[0], "p99", "slower", "faster"],
    [LATENCIES[0], "p99.9", "slower", "faster"],
    [PROCESSOR, "target's CPU per request", "more CPU", "less CPU"],
];

const RATE: &str = "rate";

/// Figures that should be the same in all runs, by row and name. All figures of the row [`LOAD`]
/// should be the same, too.
const ALIKE: [(&str, &str); 8] = [
    ("outage", "cause"),
    ("outage", "at"),
    (TARGET, "protocol"),
    (TARGET, "layout"),
    (ORIGIN, "machine"),
    (ORIGIN, "processor"),
    (ORIGIN, "cores"),
    (ORIGIN, "system"),
];

/// The result for one figure, or for all figures together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// No difference beyond the spread. For all figures together, B is better or worse in none. And
    /// at least one response time, or the CPU per request, is known to be the same.
    Same,
    /// B is worse. For all figures together: B is worse in at least one.
    Worse,
    /// B is better. For all figures together: B is better in at least one, and worse in none.
    Better,
    /// The runs give no answer.
    CannotTell,
}

/// One figure of both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// A's value: the mean of its runs, in the figure's unit.
    pub(crate) a: f64,
    pub(crate) b: f64,
    /// The ratio of B to A, and its interval.
    pub(crate) interval: Option<Interval>,
    pub(crate) call: Call,
    /// How B differs, in a word or two, or the reason why the runs give no answer.
    pub(crate) words: &'static str,
    #[serde(skip)]
    unit: Unit,
}

/// All figures of both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) format: u32,
    pub(crate) kind: &'static str,
    pub(crate) verdict: Call,
    /// The first line of the table.
    pub(crate) summary: String,
    /// Reasons to doubt the comparison, such as runs on different machines.
    pub(crate) warnings: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

impl Call {
    /// Returns the exit code for a script that must not let a slower build pass.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Same | Self::Better => 0,
            Self::Worse => 1,
            Self::CannotTell => 2,
        }
    }
}

/// Compares two sides.
///
/// # Errors
/// [`Failure`] if the runs do not all have the same loop, open or closed.
pub(crate) fn compare(a: &[Run], b: &[Run]) -> Result<Comparison, Failure> {
    let warnings = warnings(a, b)?;
    let rows: Vec<Row> = COMPARED.into_iter().filter_map(|figure| row(figure, a, b)).collect();
    let verdict = verdict(&rows);
    let summary = summary(verdict, &rows);
    Ok(Comparison { format: FORMAT, kind: "comparison", verdict, summary, warnings, rows })
}

/// Returns a figure of each run, if every run has it.
fn values(runs: &[Run], row: &str, name: &str) -> Option<Vec<f64>> {
    runs.iter().map(|run| run.figures.number(row, name)).collect()
}

/// Compares one figure, if every run has it.
fn row(figure: [&'static str; 4], a: &[Run], b: &[Run]) -> Option<Row> {
    let [row, name, more_words, less_words] = figure;
    let a_values = values(a, row, name)?;
    let b_values = values(b, row, name)?;
    let unit = a.first()?.figures.get(row, name)?.unit;
    let a = (&a_values).mean();
    let b = (&b_values).mean();
    let interval = if unit == Unit::None { None } else { spread::estimate(&a_values, &b_values) };
    let more = match interval {
        // Numbers of errors count as different only if one side has errors and the other has none.
        _ if unit == Unit::None && (a > 0.0) == (b > 0.0) => Ok(None),
        _ if unit == Unit::None => Ok(Some(b > a)),
        None => Err("? 1 run, or value 0"),
        Some(interval)
            if interval.leaves_out_one() && interval.ratio.max(1.0 / interval.ratio) > ALWAYS_SAME =>
        {
            Ok(Some(interval.ratio > 1.0))
        }
        Some(interval) if interval.high > CAN_TELL || interval.low < 1.0 / CAN_TELL => {
            Err("? too wide a spread")
        }
        Some(_) => Ok(None),
    };
    let (call, words) = match more {
        Err(reason) => (Call::CannotTell, reason),
        Ok(None) => (Call::Same, "the same"),
        Ok(Some(more)) => (
            if more == (name != RATE) { Call::Worse } else { Call::Better },
            if more { more_words } else { less_words },
        ),
    };
    Some(Row { name: format!("{row} {name}"), a, b, interval, call, words, unit })
}

fn verdict(rows: &[Row]) -> Call {
    for call in [Call::Worse, Call::Better] {
        if rows.iter().any(|row| row.call == call) {
            return call;
        }
    }
    // Equal rates say nothing, because an open loop sends at the rate that it was given.
    let is_known = rows.iter().any(|row| row.unit == Unit::Us && row.call == Call::Same);
    if is_known { Call::Same } else { Call::CannotTell }
}

fn summary(verdict: Call, rows: &[Row]) -> String {
    let differ = rows.iter().filter(|row| matches!(row.call, Call::Worse | Call::Better));
    let named = differ.clone().map(|row| match row.interval {
        Some(interval) => format!("{} x {:.2}", row.name, interval.ratio),
        None => row.name.clone(),
    });
    let mut words: Vec<&str> = differ.clone().map(|row| row.words).collect();
    words.dedup();
    let named = named.collect::<Vec<_>>().join(", ");
    match verdict {
        Call::Worse | Call::Better => format!("{}: {named}", words.join(", ")),
        Call::Same => "equal: no figure differs by more than its spread".to_owned(),
        Call::CannotTell => {
            "cannot tell: the spread is too wide; give more or longer runs of each side".to_owned()
        }
    }
}

fn joined(texts: BTreeSet<String>) -> String {
    texts.into_iter().collect::<Vec<_>>().join(" and ")
}

/// Returns the reasons to doubt the comparison, one line each. Fails if the runs do not all have
/// the same loop.
fn warnings(a: &[Run], b: &[Run]) -> Result<Vec<String>, Failure> {
    let [a_loops, b_loops] = [a, b].map(|runs| texts(runs, LOAD, "loop"));
    if a_loops != b_loops || a_loops.len() != 1 {
        let a = joined(a_loops);
        let b = joined(b_loops);
        return Err(Failure::usage(format_args!(
            "found {a} in A and {b} in B, allowed: the same loop in all runs; their times are not comparable"
        )));
    }
    let loads = a.iter().chain(b).flat_map(|run| run.figures.row(LOAD)).map(|figure| figure.name.as_str());
    let loads: BTreeSet<&str> = loads.collect();
    let mut warnings = Vec::new();
    for (row, name) in loads.into_iter().map(|name| (LOAD, name)).chain(ALIKE) {
        let [a_texts, b_texts] = [a, b].map(|runs| texts(runs, row, name));
        if a_texts != b_texts || a_texts.len() != 1 {
            warnings.push(format!("{row}, {name}: A {}; B {}", joined(a_texts), joined(b_texts)));
        }
    }
    for run in a.iter().chain(b).filter(|run| run.verdict == "no verdict") {
        let started = run.figures.text(ORIGIN, "started");
        warnings.push(format!("the run of {started} has no verdict: {}", run.reasons.join("; ")));
    }
    if !alternate(a, b) {
        warnings.push(
            "all runs of one side came first, so a change of the machine may seem to be a difference"
                .to_owned(),
        );
    }
    Ok(warnings)
}

/// Returns the texts that a figure has in several runs.
fn texts(runs: &[Run], row: &str, name: &str) -> BTreeSet<String> {
    runs.iter().map(|run| run.figures.text(row, name)).collect()
}

/// Returns true if each side has a run that started after a run of the other side. The times are
/// RFC 3339 in UTC, so their order as texts is their order in time.
fn alternate(a: &[Run], b: &[Run]) -> bool {
    let [a, b] = [a, b].map(|runs| texts(runs, ORIGIN, "started"));
    a.last() > b.first() && b.last() > a.first()
}

/// Writes the comparison for a terminal.
///
/// # Errors
/// The writer's error.
pub(crate) fn write(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", comparison.summary)?;
    for warning in &comparison.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    writeln!(out, "{:<37}{:>16}{:>16}{:>7}  interval     B is", "", "A", "B", "B/A")?;
    for row in &comparison.rows {
        let [a, b] = [row.a, row.b].map(|number| row.unit.text(number));
        let (ratio, interval) = match row.interval {
            Some(Interval { low, ratio, high }) => (format!("{ratio:.2}"), format!("{low:.2}–{high:.2}")),
            None => (UNKNOWN.to_owned(), UNKNOWN.to_owned()),
        };
        writeln!(out, "{:<37}{a:>16}{b:>16}{ratio:>7}  {interval:<11}  {}", row.name, row.words)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
