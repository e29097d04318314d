//! The terminal: the verdict first, then the figures behind it.

use std::io::{self, Write};

use super::QUANTILES;
use super::json::Run;
use super::lines::{Line, lines, quantiles};
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
    lines(run).iter().try_for_each(|line| line.write(out))
}

impl Line {
    /// Writes it, in several lines if it is long.
    ///
    /// # Errors
    /// The writer's.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = format!("{:<INDENT$}", self.name);
        let mut columns = INDENT;
        for (index, word) in self.text.split(' ').enumerate() {
            let space = usize::from(index > 0);
            let word_columns = word.chars().count() + space;
            if index > 0 && columns + word_columns > WIDTH {
                writeln!(out, "{line}")?;
                line = format!("{:<INDENT$}{word}", "");
                columns = INDENT + word_columns - space;
            } else {
                line += &" "[..space];
                line += word;
                columns += word_columns;
            }
        }
        writeln!(out, "{line}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_go_on_below() {
        let mut out = Vec::new();
        let text = "at most a hundred columns ".repeat(8);
        let line = Line { name: "label", text: text.trim_end().to_owned() };
        line.write(&mut out).expect("memory");
        let out = String::from_utf8(out).expect("UTF-8");
        assert!(out.lines().all(|line| line.len() <= WIDTH && !line.ends_with(' ')), "{out}");
        let words: Vec<&str> = out.split_whitespace().skip(1).collect();
        assert_eq!(words, text.split_whitespace().collect::<Vec<_>>());
    }
}
