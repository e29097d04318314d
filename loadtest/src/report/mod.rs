//! The results of a run, for people and for programs.
//!
//! - [`json`]: all figures of a run; [`read`] reads them from a file. Every other report is made from them.
//! - [`lines`]: the figures in words, once for all. [`table`]: the terminal. [`html`]: a page with charts. [`hdr`]: files for HdrHistogram's viewers.
//!   [`csv`]: seconds for spreadsheets.
//! - [`progress`]: the progress bar.

pub(crate) mod csv;
pub(crate) mod hdr;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod lines;
pub(crate) mod progress;
pub(crate) mod read;
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod testing;

use std::io::{self, Write};

use crate::judge::{Evidence, Objectives, Verdict, judge};
use crate::measure::TimeHistogram;
use crate::run::Outcome;
use crate::scenario::{Cause, Drive, Outage, Scenario};

/// The quantiles that every report shows; 1 is the maximum.
pub(crate) const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// A run with its verdict.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) objectives: &'a Objectives,
    pub(crate) outcome: &'a Outcome,
    pub(crate) verdict: Verdict,
    /// The response times of a bare echo under the same load, if it was run.
    pub(crate) echo: Option<&'a TimeHistogram>,
}

impl<'a> Report<'a> {
    /// Judges a run. A bare echo is shown beside it.
    pub(crate) fn new(
        scenario: &'a Scenario,
        objectives: &'a Objectives,
        outcome: &'a Outcome,
        echo: Option<&'a Outcome>,
    ) -> Self {
        let echo = echo.map(|echo| &echo.collected.counts.response);
        let mut report = Self { scenario, objectives, outcome, verdict: Verdict::Pass, echo };
        report.verdict = judge(&report.evidence(), objectives);
        report
    }

    /// Returns the figures that the verdict depends on.
    pub(crate) fn evidence(&self) -> Evidence<'_> {
        let collected = &self.outcome.collected;
        let planned = self.scenario.measured_for().filter(|_| self.is_open_loop());
        Evidence {
            counts: &collected.counts,
            faults: &collected.faults,
            stalls: self.outcome.stalls,
            elapsed: self.outcome.elapsed,
            planned: planned.map(|planned| planned * self.outcome.rounds),
            promise: &self.outcome.promise,
            ids_per_s: self.ids_per_s(),
            interrupted: collected.interrupted,
            too_scattered: collected.too_scattered,
        }
    }

    /// Returns true if requests left on a schedule.
    pub(crate) fn is_open_loop(&self) -> bool {
        matches!(self.scenario.drive, Drive::Open { .. })
    }

    /// Returns the rate outside the announced outage; neither its IDs nor its time count.
    pub(crate) fn ids_per_s(&self) -> f64 {
        let (elapsed, counts) = (self.outcome.elapsed, &self.outcome.collected.counts);
        let length = |outage: Outage| match outage.cause {
            // One that began shortly before the end lasted on after it.
            Cause::Own(_) => counts.outage.min(elapsed.saturating_sub(outage.at)),
            Cause::Others { within } => within,
        };
        let judged = elapsed.saturating_sub(self.scenario.outage.map(length).unwrap_or_default());
        counts.ids as f64 / judged.as_secs_f64().max(1e-9)
    }
}

/// Prints to standard error, where standard output is for programs.
pub(crate) fn print_aside(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut out = io::stderr().lock();
    let _ = write(&mut out).and_then(|()| out.flush());
}

/// Prints to standard output. Its reader may leave early; the exit code stays.
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut out = io::stdout().lock();
    let _ = write(&mut out).and_then(|()| out.flush());
}
