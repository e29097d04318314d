//! Writes a run for the terminal: first the verdict, then the figures.

use std::io::{self, Write};

use super::json::Run;
use super::{ECHO, LATENCIES, QUANTILES, ROWS, TERMINAL_ROWS};
use crate::figure::UNKNOWN;
use crate::judge::quantile_name;

/// The width of the terminal. A word that would reach its last column begins a new line.
const WIDTH: usize = 100;

/// The column at which a line's words begin.
const INDENT: usize = 14;

/// Writes the report.
///
/// # Errors
/// The writer's error.
pub(crate) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", run.summary)?;
    run.reasons.iter().try_for_each(|reason| writeln!(out, "{}: {reason}", run.verdict))?;
    writeln!(out)?;
    figures(run, &ROWS[..TERMINAL_ROWS], out)
}

/// Writes the quantiles in ms, and rows of other figures below them.
///
/// # Errors
/// The writer's error.
pub(crate) fn figures(run: &Run, rows: &[&str], out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{:<INDENT$}", "ms")?;
    QUANTILES.iter().try_for_each(|&quantile| write!(out, "{:>11}", quantile_name(quantile)))?;
    writeln!(out)?;
    for row in times(run) {
        write!(out, "{row:<INDENT$}")?;
        quantiles(run, row).iter().try_for_each(|text| write!(out, "{text:>11}"))?;
        writeln!(out)?;
    }
    for row in rows {
        if let Some(text) = run.figures.row_text(row) {
            line(row, &text, out)?;
        }
    }
    Ok(())
}

/// Returns the rows that have quantiles of times.
pub(super) fn times(run: &Run) -> impl Iterator<Item = &'static str> {
    let has_echo = run.figures.row(ECHO).next().is_some();
    LATENCIES.into_iter().chain(has_echo.then_some(ECHO))
}

/// Returns the quantiles of a row in ms.
pub(super) fn quantiles(run: &Run, row: &str) -> [String; QUANTILES.len()] {
    QUANTILES.map(|quantile| {
        let found = run.figures.number(row, &quantile_name(quantile));
        found.map_or_else(|| UNKNOWN.to_owned(), |us| format!("{:.3}", us / 1e3))
    })
}

/// Writes a name and its text. Long texts wrap.
///
/// # Errors
/// The writer's error.
pub(crate) fn line(name: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut line = format!("{name:<INDENT$}");
    let mut columns = INDENT;
    for (index, word) in text.split(' ').enumerate() {
        let word_columns = word.chars().count() + 1;
        if index > 0 && columns + word_columns > WIDTH {
            writeln!(out, "{}", line.trim_end())?;
            (line, columns) = (format!("{:<INDENT$}", ""), INDENT);
        }
        line += &format!("{word} ");
        columns += word_columns;
    }
    writeln!(out, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests as invented;

    #[test]
    fn long_texts_wrap() {
        let mut out = Vec::new();
        let text = "at most a hundred columns ".repeat(8);
        line("label", text.trim_end(), &mut out).expect("memory");
        let out = String::from_utf8(out).expect("UTF-8");
        assert!(out.lines().all(|line| line.len() <= WIDTH && !line.ends_with(' ')), "{out}");
        let words: Vec<&str> = out.split_whitespace().skip(1).collect();
        assert_eq!(words, text.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn unknown_quantiles_are_dashes() {
        let mut out = Vec::new();
        figures(&invented::run(&[]), &[], &mut out).expect("memory");
        let out = String::from_utf8(out).expect("UTF-8");
        assert_eq!(out.matches(UNKNOWN).count(), LATENCIES.len() * QUANTILES.len(), "{out}");
    }
}
