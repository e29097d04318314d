//! The comparison for a terminal of 80 columns.

use std::io::{self, Write};

use super::{Call, Comparison, Row, SpreadFrom, Verdict};
use crate::compare::figures::Figure;
use crate::report::json::Run;

/// One side as it was named on the command line.
#[derive(Debug)]
pub(crate) struct Side {
    /// The files.
    pub(crate) names: Vec<String>,
    pub(crate) runs: Vec<Run>,
}

/// Writes the verdict, and the table behind it.
///
/// # Errors
/// The writer's.
pub(crate) fn write(comparison: &Comparison, a: &Side, b: &Side, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", comparison.summary)?;
    for (letter, side) in [("A", a), ("B", b)] {
        for (name, run) in side.names.iter().zip(&side.runs) {
            let version = run.version.as_deref().unwrap_or("version unknown");
            writeln!(out, "{letter}  {name}: {}, {} {version}", run.verdict, run.protocol)?;
            writeln!(out, "   {}, at {}", run.origin.started_at, run.address)?;
        }
    }
    writeln!(out, "\nspread: {}", spread_words(comparison.spread_from))?;
    for warning in &comparison.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    writeln!(out, "\n{:<19}{:>11}{:>11}{:>8}  interval      B is", "times in ms", "A", "B", "B/A")?;
    let mut notes: Vec<&str> = Vec::new();
    for why in comparison.rows.iter().filter_map(|row| row.why) {
        if !notes.contains(&why) {
            notes.push(why);
        }
    }
    for row in &comparison.rows {
        let note = notes.iter().position(|&note| Some(note) == row.why).map(|place| place + 1);
        write_row(row, note, out)?;
    }
    for (number, note) in (1..).zip(&notes) {
        writeln!(out, "{}? ({number}) {note}", if number == 1 { "\n" } else { "" })?;
    }
    Ok(())
}

fn spread_words(from: SpreadFrom) -> &'static str {
    match from {
        SpreadFrom::Seconds => {
            "that of the seconds within each run, whose typical second is compared.\n        \
             Only several runs a side show the true spread: A1 A2 A3 --with B1 B2 B3"
        }
        SpreadFrom::Runs => "that of the runs on each side",
    }
}

fn write_row(row: &Row, note: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let value = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(us) if row.figure.is_time() => format!("{:.3}", us / 1e3),
        Some(number) => format!("{number:.0}"),
    };
    let ratio = row.ratio.map_or_else(|| "-".to_owned(), factor);
    let interval = row.interval.map_or_else(
        || "-".to_owned(),
        |interval| format!("{} - {}", factor(interval.low), factor(interval.high)),
    );
    let (a, b, name) = (value(row.a), value(row.b), row.figure.name());
    let call = match note {
        Some(number) => format!("? ({number})"),
        None => word(row.figure, row.call).to_owned(),
    };
    writeln!(out, "{name:<19}{a:>11}{b:>11}{ratio:>8}  {interval:<13} {call}")
}

/// Formats a ratio with three digits.
fn factor(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 1e5 => format!("{ratio:.0e}"),
        ratio if ratio >= 99.95 => format!("{ratio:.0}"),
        ratio if ratio >= 9.995 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.2}"),
    }
}

/// Returns the word for a figure's result.
pub(crate) fn word(figure: Figure, call: Call) -> &'static str {
    match (call, figure) {
        (Call::Same, _) => "the same",
        (Call::CannotTell, _) => "?",
        (Call::Worse, Figure::Cpu) => "more CPU",
        (Call::Better, Figure::Cpu) => "less CPU",
        (Call::Worse, Figure::Errors) => "more errors",
        (Call::Better, Figure::Errors) => "fewer errors",
        (Call::Worse, Figure::Rate) => "lower",
        (Call::Better, Figure::Rate) => "higher",
        (Call::Worse, _) => "slower",
        (Call::Better, _) => "faster",
    }
}

/// Returns the first line.
pub(crate) fn summary(verdict: Verdict, rows: &[Row]) -> String {
    let with = |call| rows.iter().filter(move |row| row.call == call);
    let named = |call| {
        let words = with(call).map(|row| match row.ratio {
            Some(ratio) => format!("{} x {}", row.figure.name(), factor(ratio)),
            None => word(row.figure, row.call).to_owned(),
        });
        words.collect::<Vec<_>>().join(", ")
    };
    // One kind of difference has a word of its own.
    let kind = |call, general: &'static str| {
        let mut words: Vec<&str> = with(call).map(|row| word(row.figure, row.call)).collect();
        words.dedup();
        if let [one] = words[..] { one } else { general }
    };
    match verdict {
        Verdict::Equal => {
            let short = |row: &Row| row.figure.name().replace("response ", "");
            let same = with(Call::Same).filter(|row| row.figure.is_time());
            let same: Vec<String> = same
                .filter_map(|row| Some(format!("{} within x {}", short(row), factor(row.interval?.margin()))))
                .collect();
            let open: Vec<String> = with(Call::CannotTell).map(short).collect();
            let open =
                if open.is_empty() { String::new() } else { format!("; cannot tell: {}", open.join(", ")) };
            format!("equal: no difference beyond the spread: {}{open}", same.join(", "))
        }
        Verdict::Worse => format!("{}: {}", kind(Call::Worse, "worse"), named(Call::Worse)),
        Verdict::Better => format!("{}: {}", kind(Call::Better, "better"), named(Call::Better)),
        Verdict::Mixed => format!("mixed: better {}; worse {}", named(Call::Better), named(Call::Worse)),
        Verdict::CannotTell => "cannot tell: the spread is too wide, or the runs are too short".to_owned(),
    }
}
