//! What is seen of a sweep while it lasts: a bar for the step under way, and the row of each that is over.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};

use super::search::Phase;
use super::step::Step;
use super::table::{self, short};
use super::{Begun, Watch};
use crate::run::Progress;
use crate::sweep::machine::Machine;

/// Rows on standard output, the bar on a terminal's standard error.
#[derive(Debug)]
pub struct Live<'a> {
    bar: ProgressBar,
    machine: &'a Machine,
}

impl<'a> Live<'a> {
    /// Nothing yet, of a sweep on that machine.
    #[must_use]
    pub fn new(machine: &'a Machine) -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:20}] {msg}");
        let bar = style.map_or(bar.clone(), |style| bar.with_style(style.progress_chars("=> ")));
        Self { bar, machine }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watch for Live<'_> {
    fn begin(&mut self, begun: &Begun<'_>) {
        let mut out = io::stdout().lock();
        // Who reads the table may leave early; the exit code stays.
        let _ = table::begin(begun, self.machine, &mut out).and_then(|()| out.flush());
    }

    fn progress(&mut self, number: usize, rate: f64, phase: Phase, progress: Progress<'_>) {
        if let Some(total) = progress.total {
            self.bar.set_length(total.as_millis() as u64);
            self.bar.set_position(progress.elapsed.min(total).as_millis() as u64);
        }
        let purpose = match phase {
            Phase::Climb => "climb",
            Phase::Bisect => "bisect",
            Phase::Confirm => "confirm",
        };
        let figures = match progress.last_second {
            None => "warming up".to_owned(),
            Some(second) => format!("{} IDs/s, p99 {:.3} ms", short(second.ids as f64), second.p99_us / 1e3),
        };
        self.bar.set_message(format!("step {number}, {purpose} {}/s: {figures}", short(rate)));
        self.bar.tick();
    }

    fn step(&mut self, step: &Step) {
        self.bar.suspend(|| {
            let mut out = io::stdout().lock();
            let _ = table::row(step, &mut out).and_then(|()| out.flush());
        });
    }
}
