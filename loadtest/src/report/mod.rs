//! What a run came to, for people and for programs.
//!
//! - [`table`]: the final table. [`json`]: all figures; [`read`] takes them back. [`hdr`]: files for HdrHistogram's viewers.
//! - [`html`]: a page for people, from those figures.
//! - [`progress`]: the bar while the run lasts.

pub mod hdr;
pub mod html;
pub mod json;
pub mod progress;
pub mod read;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;

use crate::run::{Drive, Outcome, Scenario};
use crate::verdict::{Evidence, Objectives, Verdict, judge};

/// The quantiles that every report shows; 1 is the maximum.
pub const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// A run with its verdict.
#[derive(Debug)]
pub struct Report<'a> {
    /// What was asked.
    pub scenario: &'a Scenario,
    /// What it was held to.
    pub objectives: &'a Objectives,
    /// What it came to.
    pub outcome: &'a Outcome,
    /// What that says of the target.
    pub verdict: Verdict,
}

impl<'a> Report<'a> {
    /// Judges a run.
    #[must_use]
    pub fn new(scenario: &'a Scenario, objectives: &'a Objectives, outcome: &'a Outcome) -> Self {
        let mut report = Self { scenario, objectives, outcome, verdict: Verdict::Pass };
        report.verdict = judge(&report.evidence(), objectives);
        report
    }

    /// What the verdict is made from.
    #[must_use]
    pub fn evidence(&self) -> Evidence<'a> {
        Evidence {
            counts: &self.outcome.counts,
            faults: &self.outcome.faults,
            promise: &self.outcome.promise,
            open_loop: matches!(self.scenario.drive, Drive::Open { .. }),
            ids_per_s: self.ids_per_s(),
            interrupted: self.outcome.interrupted,
            too_scattered: self.outcome.too_scattered,
        }
    }

    /// IDs per second of the measurement outside the announced outage, whose IDs do not count either.
    #[must_use]
    pub fn ids_per_s(&self) -> f64 {
        self.outcome.counts.ids as f64 / self.judged_s().max(1e-9)
    }

    /// The seconds of the measurement outside the announced outage.
    #[must_use]
    pub fn judged_s(&self) -> f64 {
        let elapsed = self.outcome.elapsed;
        let outage = self.scenario.outage.map(|outage| {
            // One that began shortly before the end lasted on after it.
            self.outcome.counts.outage.min(elapsed.saturating_sub(outage.at))
        });
        elapsed.saturating_sub(outage.unwrap_or_default()).as_secs_f64()
    }

    /// The share of one core that a daemon of our own used, if it was one.
    #[must_use]
    pub fn target_cpu_share(&self) -> Option<f64> {
        let used = self.outcome.target_cpu?.as_secs_f64();
        Some(used / self.outcome.elapsed.as_secs_f64().max(1e-9))
    }

    /// The generator's processor time as a share of one core, all its threads together.
    #[must_use]
    pub fn own_cpu_share(&self) -> f64 {
        self.outcome.counts.cpu.as_secs_f64() / self.outcome.elapsed.as_secs_f64().max(1e-9)
    }

    /// The loop in words, for every output.
    #[must_use]
    pub fn loop_words(&self) -> &'static str {
        self.scenario.loop_words()
    }
}
