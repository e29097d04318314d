//! Shows a sweep under way: a bar for the current step, and the row of each step that has ended.

use super::Sweep;
use super::search::Phase;
use super::step::Step;
use super::table::{self, short};
use crate::report::print;
use crate::report::progress::Bar;
use crate::run::Progress;

/// Rows on standard output, and the bar on a terminal's standard error.
#[derive(Debug)]
pub(crate) struct Live(pub(crate) Bar);

impl Live {
    pub(super) fn begin(&self, sweep: &Sweep) {
        print(|out| table::begin(sweep, out));
    }

    pub(super) fn progress(&self, number: usize, rate: f64, phase: Phase, progress: Progress<'_>) {
        self.0.show(&format!("step {number}, {} {}/s, ", phase.name(), short(rate)), progress);
    }

    pub(super) fn step(&self, step: &Step) {
        self.0.suspend(|| print(|out| table::row(step, out)));
    }
}
