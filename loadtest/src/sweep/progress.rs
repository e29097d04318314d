//! Shows a sweep under way: a bar for the current step, and the row of each step that has ended.

use super::search::Phase;
use super::step::Step;
use super::table::{self, short};
use super::{Begun, Watch};
use crate::cli::print;
use crate::report::progress::Bar;
use crate::run::Progress;
use crate::sweep::machine::Machine;

/// Prints rows to standard output, and the bar to a terminal's standard error.
#[derive(Debug)]
pub(crate) struct Live<'a> {
    pub(crate) bar: Bar,
    pub(crate) machine: &'a Machine,
}

impl Watch for Live<'_> {
    fn begin(&mut self, begun: &Begun<'_>) {
        print(|out| table::begin(begun, self.machine, out));
    }

    fn progress(&mut self, number: usize, rate: f64, phase: Phase, progress: Progress<'_>) {
        self.bar.show(&format!("step {number}, {} {}/s, ", phase.name(), short(rate)), progress);
    }

    fn step(&mut self, step: &Step) {
        self.bar.suspend(|| print(|out| table::row(step, out)));
    }
}
