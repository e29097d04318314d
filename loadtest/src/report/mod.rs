//! The results of a run, for people and for programs.
//!
//! - [`figure`]: the list of figures that every output is made from. [`json`]: the file of a run.
//! - [`table`]: the terminal. [`html`]: a page with charts. [`csv`]: seconds for spreadsheets.
//! - [`terminal`]: lines, the progress bar and Ctrl-C.

pub(crate) mod csv;
pub(crate) mod figure;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod table;
pub(crate) mod terminal;
#[cfg(test)]
pub(crate) mod testing;

use std::time::Duration;

use crate::judge::{Evidence, Found, Objectives, Verdict, judge};
use crate::run::Outcome;
use crate::scenario::Scenario;
use crate::units::{ids_per_s, short_ms, stood_still};

/// The quantiles that every report shows; 1 is the maximum.
pub(crate) const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// The rows of quantiles: from the due instant to the receipt, and the target's own part of that.
pub(crate) const LATENCIES: [&str; 2] = ["response time", "target's part"];

/// The row of a bare echo's quantiles.
pub(crate) const ECHO: &str = "a bare echo";

/// The rows of the other figures.
pub(crate) const IDS: &str = "IDs";
pub(crate) const PROCESSOR: &str = "CPU, memory";
pub(crate) const NOTE: &str = "note";
pub(crate) const MACHINE: &str = "machine";
pub(crate) const TARGET: &str = "target";
pub(crate) const LOAD: &str = "load";
pub(crate) const ORIGIN: &str = "origin";

/// The rows that the terminal shows below the quantiles, in this order. The page has the others,
/// too.
pub(crate) const ROWS: [&str; 5] = [IDS, PROCESSOR, NOTE, "outage", "clocks"];

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
    pub(crate) fn evidence(&self) -> Evidence<'_> {
        let collected = &self.outcome.collected;
        let planned = self.scenario.is_open_loop().then_some(self.scenario.length);
        Evidence {
            counts: &collected.counts,
            faults: &collected.faults,
            stalls: self.outcome.stalls,
            held_up: self.outcome.held_up,
            elapsed: self.outcome.elapsed,
            planned: planned.map(|planned| planned * self.outcome.rounds),
            promise: &self.outcome.promise,
            ids_per_s: self.ids_per_s(),
            interrupted: collected.interrupted,
            too_scattered: collected.too_scattered,
        }
    }

    /// Returns the rate outside the outage; neither its IDs nor its time count.
    pub(crate) fn ids_per_s(&self) -> f64 {
        let elapsed = self.outcome.elapsed;
        let counts = &self.outcome.collected.counts;
        // An outage that began shortly before the end lasted on after it.
        let after = self.scenario.outage.map_or(Duration::ZERO, |outage| elapsed.saturating_sub(outage.at));
        let judged = elapsed - counts.outage.min(after);
        counts.ids as f64 / judged.as_secs_f64().max(1e-9)
    }

    /// Returns the first line: verdict, rate, the objective that was missed or else the first, and
    /// for how long the machine stood still.
    pub(crate) fn headline(&self) -> String {
        let verdict = self.verdict.word().to_uppercase();
        let counts = &self.outcome.collected.counts;
        if counts.response.is_empty() {
            return format!("{verdict}  nothing was measured");
        }
        let at_least = if self.evidence().is_lower_bound() { "≥ " } else { "" };
        let latencies = &self.objectives.latencies;
        let missed = latencies.iter().find(|latency| latency.judge(counts) != Found::Met);
        let found = match missed.or(latencies.first()) {
            Some(latency) => {
                let found = short_ms(counts.response.at(latency.quantile));
                format!("{} {found} (limit {})", latency.name(), short_ms(latency.limit))
            }
            None => format!("p99.9 {}", short_ms(counts.response.at(0.999))),
        };
        let stood = stood_still(self.outcome.stalls.total, self.outcome.elapsed);
        format!("{verdict}  {at_least}{}  {found}  machine stood still {stood}", ids_per_s(self.ids_per_s()))
    }
}
