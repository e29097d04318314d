//! The results of a run, for people and for programs.
//!
//! - [`json`]: the file of a run, with the list of figures from which the reports are made.
//! - [`table`]: the terminal. [`html`]: a page with charts.
//! - [`terminal`]: lines, the progress bar and Ctrl-C.

pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod table;
pub(crate) mod terminal;

use crate::judge::{Found, Objectives, Verdict};
use crate::outcome::Outcome;
use crate::units::{duration, ids_per_s, stood_still};

/// The quantiles that every report shows; 1 is the maximum.
pub(crate) const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// The rows of quantiles: first of the time from the due instant to the receipt, then of the
/// target's part of that time.
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

/// The rows below the quantiles, in this order. The terminal shows the first [`TERMINAL_ROWS`], and
/// the page shows all.
pub(crate) const ROWS: [&str; 9] = [IDS, PROCESSOR, NOTE, "outage", "clocks", MACHINE, TARGET, LOAD, ORIGIN];
pub(crate) const TERMINAL_ROWS: usize = 5;

/// Returns the first line, of at most 100 characters: the verdict, the rate, an objective, and how
/// long the machine stood still. The objective is the first that is not met or, if all are met, the
/// first.
pub(crate) fn headline(verdict: &Verdict, objectives: &Objectives, outcome: &Outcome) -> String {
    let verdict = verdict.word().to_uppercase();
    let counts = &outcome.counts;
    if counts.response.is_empty() {
        return format!("{verdict}  nothing was measured");
    }
    let at_least = if outcome.is_lower_bound() { "≥ " } else { "" };
    let latencies = &objectives.latencies;
    let missed = latencies.iter().find(|latency| latency.judge(counts) != Found::Met);
    let found = match missed.or(latencies.first()) {
        Some(latency) => {
            let found = duration(counts.response.at(latency.quantile));
            format!("{} {found} (limit {})", latency.name(), duration(latency.limit))
        }
        None => format!("p99.9 {}", duration(counts.response.at(0.999))),
    };
    let stood = stood_still(outcome.stalls.total, outcome.elapsed);
    format!("{verdict}  {at_least}{}  {found}  machine stood still {stood}", ids_per_s(outcome.ids_per_s()))
}

#[cfg(test)]
pub(crate) mod tests;
