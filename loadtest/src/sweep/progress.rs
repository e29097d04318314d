//! Shows a running sweep: a bar for the current step, and the row of each step that has ended.

use std::io::{self, Write};

use super::search::Attempt;
use crate::report::print;
use crate::report::progress::Bar;
use crate::run::Progress;
use crate::units::grouped;

/// Rows on standard output, or on standard error beside JSON, and the bar on a terminal's standard error.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) bar: Bar,
    /// True if standard output is for the JSON.
    pub(crate) is_beside: bool,
}

impl Live {
    pub(super) fn progress(&self, number: usize, attempt: Attempt, progress: Progress<'_>) {
        self.bar.show(
            &format!("step {number}, {} {}/s, ", attempt.phase.name(), grouped(attempt.rate)),
            progress,
        );
    }

    /// Prints lines where the bar stands.
    pub(crate) fn print(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        self.bar.suspend(|| print(self.is_beside, write));
    }
}
