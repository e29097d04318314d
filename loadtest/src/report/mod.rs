//! The results of a run, for people and for programs.
//!
//! - [`json`]: all figures of a run; [`read`] reads them from a file. Every other report is made from them.
//! - [`table`]: the final table. [`html`]: a page with charts. [`hdr`]: files for HdrHistogram's viewers.
//! - [`progress`]: the progress bar.

pub(crate) mod hdr;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod progress;
pub(crate) mod read;
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod testing;

use std::io::{self, Write};

use crate::run::Outcome;
use crate::scenario::{Drive, Scenario};
use crate::verdict::{Evidence, Objectives, Verdict, judge};

/// The quantiles that every report shows; 1 is the maximum.
pub(crate) const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// A run with its verdict.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) objectives: &'a Objectives,
    pub(crate) outcome: &'a Outcome,
    pub(crate) verdict: Verdict,
}

impl<'a> Report<'a> {
    /// Judges a run.
    pub(crate) fn new(scenario: &'a Scenario, objectives: &'a Objectives, outcome: &'a Outcome) -> Self {
        let mut report = Self { scenario, objectives, outcome, verdict: Verdict::Pass };
        report.verdict = judge(&report.evidence(), objectives);
        report
    }

    /// Returns the figures that the verdict depends on.
    pub(crate) fn evidence(&self) -> Evidence<'a> {
        let collected = &self.outcome.collected;
        Evidence {
            counts: &collected.counts,
            faults: &collected.faults,
            promise: &self.outcome.promise,
            open_loop: matches!(self.scenario.drive, Drive::Open { .. }),
            ids_per_s: self.ids_per_s(),
            interrupted: collected.interrupted,
            too_scattered: collected.too_scattered,
        }
    }

    /// Returns the rate outside the announced outage; neither its IDs nor its time count.
    pub(crate) fn ids_per_s(&self) -> f64 {
        let (elapsed, counts) = (self.outcome.elapsed, &self.outcome.collected.counts);
        // An outage that began shortly before the end lasted on after it.
        let outage = self.scenario.outage.map(|outage| counts.outage.min(elapsed.saturating_sub(outage.at)));
        let judged = elapsed.saturating_sub(outage.unwrap_or_default());
        counts.ids as f64 / judged.as_secs_f64().max(1e-9)
    }
}

/// Prints to standard output. Its reader may leave early; the exit code stays.
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut out = io::stdout().lock();
    let _ = write(&mut out).and_then(|()| out.flush());
}
