//! The terminal: the verdict first, then the figures behind it.

use std::io::{self, Write};

use super::figure::UNKNOWN;
use super::json::Run;
use super::{ECHO, LATENCIES, QUANTILES, ROWS};
use crate::judge::quantile_name;

/// Words that go on beyond this column go on below.
const WIDTH: usize = 100;

/// The column at which a line's words begin.
const INDENT: usize = 14;

/// Writes the report.
///
/// # Errors
/// The writer's.
pub(crate) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", run.summary)?;
    run.reasons.iter().try_for_each(|reason| writeln!(out, "{}: {reason}", run.verdict))?;
    write!(out, "\n{:<INDENT$}", "ms")?;
    QUANTILES.iter().try_for_each(|&quantile| write!(out, "{:>11}", quantile_name(quantile)))?;
    writeln!(out)?;
    for (name, row) in quantiles(run) {
        write!(out, "{name:<INDENT$}")?;
        row.iter().try_for_each(|text| write!(out, "{text:>11}"))?;
        writeln!(out)?;
    }
    for row in ROWS {
        if let Some(text) = run.figures.row_text(row) {
            line(row, &text, out)?;
        }
    }
    Ok(())
}

/// Returns the rows of quantiles, each with its name and its times in ms.
pub(crate) fn quantiles(run: &Run) -> Vec<(&'static str, [String; QUANTILES.len()])> {
    let has_echo = run.figures.of_row(ECHO).next().is_some();
    let rows = LATENCIES.into_iter().chain(has_echo.then_some(ECHO));
    let rows = rows.map(|row| {
        let times = QUANTILES.map(|quantile| {
            let found = run.figures.number(row, &quantile_name(quantile));
            found.map_or(UNKNOWN.to_owned(), |us| format!("{:.3}", us / 1e3))
        });
        (row, times)
    });
    rows.collect()
}

/// Writes a name and its text, in several lines if it is long.
///
/// # Errors
/// The writer's.
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
    use crate::report::testing;

    #[test]
    fn long_texts_go_on_below() {
        let mut out = Vec::new();
        let text = "at most a hundred columns ".repeat(8);
        line("label", text.trim_end(), &mut out).expect("memory");
        let out = String::from_utf8(out).expect("UTF-8");
        assert!(out.lines().all(|line| line.len() <= WIDTH && !line.ends_with(' ')), "{out}");
        let words: Vec<&str> = out.split_whitespace().skip(1).collect();
        assert_eq!(words, text.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let run = testing::run(&[]);
        assert!(quantiles(&run).iter().all(|(_, row)| row.iter().all(|text| text == UNKNOWN)));
    }
}
