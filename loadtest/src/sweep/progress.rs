//! Shows a running sweep: a bar for the current step, and the row of each step that has ended.

use std::io::{self, Write};

use super::Settings;
use super::search::{Bounds, Phase};
use super::step::Step;
use super::table;
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
    pub(super) fn begin(&self, settings: &Settings, bounds: Bounds) {
        self.print(|out| table::begin(settings, bounds, out));
    }

    pub(super) fn progress(&self, number: usize, asked: f64, phase: Phase, progress: Progress<'_>) {
        self.bar.show(&format!("step {number}, {} {}/s, ", phase.name(), grouped(asked)), progress);
    }

    pub(super) fn step(&self, step: &Step) {
        self.bar.suspend(|| self.print(|out| table::row(step, out)));
    }

    pub(crate) fn print(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        print(self.is_beside, write);
    }
}
