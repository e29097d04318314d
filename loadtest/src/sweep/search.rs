//! Chooses the next rate. Pure: takes an answer, returns a rate.
//!
//! ```text
//!  climb: × 2 until a rate misses ─▶ bisect: the geometric mean ─▶ confirm: the same rate again
//!                                                                    └─ missed: lower, again
//! ```
//!
//! The climb ends at the first rate that misses, even if a higher rate would hold. For an operator,
//! every rate up to the saturation point must hold. A rate that holds does not prove that lower
//! rates hold. A rate without a verdict counts as a miss. A saturation point counts only if a
//! second run at its rate confirms it.

use serde::{Deserialize, Serialize};

/// The climb multiplies the rate by this.
const FACTOR: f64 = 2.0;

/// After each confirmation that misses, the next step down is this many times as large as the step
/// before, so that few steps suffice.
const DESCENT_GROWTH: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    /// The first rate; above 0.
    pub(crate) start: f64,
    /// The highest rate to try; at least `start`.
    pub(crate) limit: f64,
    /// The largest distance from the saturation point to the next rate that misses, as a share of
    /// the saturation point; above 0.
    pub(crate) resolution: f64,
}

/// The reason why a rate does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Limit {
    /// The layout has no more IDs per second for the source's worker IDs.
    Layout,
    /// Answers came too late.
    Latency,
    /// The target refused requests for another reason, stalled, or closed connections.
    Target,
    /// There was no verdict, because of this machine or the generator. The target may be able to do
    /// more.
    Machine,
}

/// The purpose of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// Raises the rate until a rate misses.
    Climb,
    /// Tries a rate between the highest rate that held and the lowest rate that missed.
    Bisect,
    /// Tries the saturation point a second time, or, after that has missed, lower rates.
    Confirm,
}

/// A step of a search: a run at a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Attempt {
    pub(crate) rate: f64,
    pub(crate) phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Missed {
    pub(crate) rate: f64,
    pub(crate) limit: Limit,
}

/// A search, with its results so far.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    pub(crate) bounds: Bounds,
    /// The rates below `missed` that held. A rate that held twice is here twice.
    held: Vec<f64>,
    /// The lowest rate that missed; `None` while every rate held.
    pub(crate) missed: Option<Missed>,
    /// The number of confirmations that missed.
    descents: i32,
}

impl Search {
    /// Returns a search that has not begun.
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, held: Vec::new(), missed: None, descents: 0 }
    }

    /// Returns the highest rate that held, of the rates below the lowest rate that missed.
    pub(crate) fn saturation(&self) -> Option<f64> {
        self.held.iter().copied().reduce(f64::max)
    }

    /// Returns true if the saturation point held twice.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.held.iter().filter(|&&held| Some(held) == self.saturation()).count() >= 2
    }

    /// Returns the next step; `None` when the search is over.
    pub(crate) fn next(&self) -> Option<Attempt> {
        let Bounds { start, limit, resolution } = self.bounds;
        let held = self.saturation();
        match (held, self.missed) {
            (None, None) => Some(Attempt { rate: start, phase: Phase::Climb }),
            (Some(held), None) if held < limit => {
                Some(Attempt { rate: (held * FACTOR).min(limit), phase: Phase::Climb })
            }
            (Some(held), None) => self.confirm(held),
            (_, Some(missed)) if self.descents > 0 => self.descend(missed.rate),
            (Some(held), Some(missed)) if missed.rate > held * (1.0 + resolution) => {
                let middle = short_between((held * missed.rate).sqrt(), held, missed.rate);
                Some(Attempt { rate: middle, phase: Phase::Bisect })
            }
            (Some(held), Some(_)) => self.confirm(held),
            (None, Some(_)) => None,
        }
    }

    fn confirm(&self, rate: f64) -> Option<Attempt> {
        (!self.is_confirmed()).then_some(Attempt { rate, phase: Phase::Confirm })
    }

    /// Goes down by one step. If the highest rate that held lies within the step, confirms that
    /// rate. Otherwise tries the rate one step down, which must hold twice.
    fn descend(&self, missed: f64) -> Option<Attempt> {
        let step = self.bounds.resolution * DESCENT_GROWTH.powi(self.descents - 1);
        let lower = short_between(missed / (1.0 + step), 0.0, missed);
        match self.saturation() {
            Some(held) if held >= lower => self.confirm(held),
            None if lower < self.bounds.start => None,
            _ => Some(Attempt { rate: lower, phase: Phase::Confirm }),
        }
    }

    /// Records the result of an attempt: the limit that it hit, or `None` if the objective held.
    pub(crate) fn record(&mut self, Attempt { rate, phase }: Attempt, limit: Option<Limit>) {
        let Some(limit) = limit else { return self.held.push(rate) };
        self.missed = Some(Missed { rate, limit });
        self.held.retain(|&held| held < rate);
        self.descents += i32::from(phase == Phase::Confirm);
    }
}

/// Rounds the rate if the rounded rate lies between `low` and `high`.
fn short_between(rate: f64, low: f64, high: f64) -> f64 {
    let short = rounded(rate);
    if low < short && short < high { short } else { rate }
}

/// Rounds to three significant digits, for people.
fn rounded(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.log10().floor() - 2.0);
    let rounded = (rate / unit).round() * unit;
    // Powers of ten below 1 are not exact.
    if unit >= 1.0 { rounded.round() } else { rounded }
}

#[cfg(test)]
mod tests;
