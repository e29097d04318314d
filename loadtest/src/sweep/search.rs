//! Chooses the next rate. Pure: one answer in, one rate out.
//!
//! ```text
//!  climb: × factor until a rate misses ─▶ bisect: halve the distance, in proportion ─▶ confirm: the same rate again
//!                                                                                    └─ missed: a little lower, again
//! ```
//!
//! A rate that holds does not prove that lower ones do, and the climb ends at the first rate that misses, even if a
//! higher one would hold: an operator needs every rate up to the saturation point. A rate without a verdict misses too. A saturation point
//! counts when a run of its own confirms it.

use serde::{Deserialize, Serialize};

/// The growth of each step down from an unconfirmed rate, so that few steps are enough.
const DESCENT_GROWTH: f64 = 2.0;

/// The bounds of a search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    /// The first rate; above 0.
    pub(crate) start: f64,
    /// The highest rate to try; at least `start`.
    pub(crate) limit: f64,
    /// The climb multiplies the rate by this; above 1.
    pub(crate) factor: f64,
    /// The distance from the saturation point to the next rate that misses, as a share of the saturation point; above 0.
    pub(crate) resolution: f64,
}

/// The reason why a rate does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Limit {
    /// The layout has no more IDs for this time and these worker IDs.
    Layout,
    /// Answers came too late.
    Latency,
    /// The target refused for another reason, stalled or closed connections.
    Target,
    /// This machine, or the generator on it, left no verdict: the target may be able to do more.
    Machine,
}

impl Limit {
    /// Returns the word for it in every output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Layout => "layout",
            Self::Latency => "latency",
            Self::Target => "target",
            Self::Machine => "machine",
        }
    }
}

/// The answer of a run at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The objective holds.
    Holds,
    /// The objective does not hold, or there is no verdict.
    Misses(Limit),
}

/// The purpose of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// Up, until a rate misses.
    Climb,
    /// Between the highest rate that held and the lowest that missed.
    Bisect,
    /// The same rate a second time.
    Confirm,
}

impl Phase {
    /// Returns the word for it in every output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Climb => "climb",
            Self::Bisect => "bisect",
            Self::Confirm => "confirm",
        }
    }
}

/// The next step of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Next {
    /// A run at this rate.
    Try { rate: f64, phase: Phase },
    /// Nothing: the search is over.
    Done(Finding),
}

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Finding {
    /// The highest rate at which the objective held.
    pub(crate) saturation: Option<f64>,
    /// True if a second run at that rate held, too.
    pub(crate) confirmed: bool,
    /// The lowest rate above it that missed, and why; none where every rate up to the limit held.
    pub(crate) missed: Option<(f64, Limit)>,
}

/// A running search.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    bounds: Bounds,
    phase: Phase,
    rate: f64,
    /// Rates that held and were not missed since, ascending.
    held: Vec<f64>,
    missed: Option<(f64, Limit)>,
    /// The number of times that the rate still has to hold.
    holds_needed: u32,
    /// The share by which the next step goes down.
    descent: f64,
    over: Option<Finding>,
}

impl Search {
    /// Returns a search that has not begun.
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            phase: Phase::Climb,
            rate: bounds.start,
            held: Vec::new(),
            missed: None,
            holds_needed: 0,
            descent: bounds.resolution,
            over: None,
        }
    }

    /// Returns its bounds.
    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Returns the next step.
    pub(crate) fn next(&self) -> Next {
        match self.over {
            Some(finding) => Next::Done(finding),
            None => Next::Try { rate: self.rate, phase: self.phase },
        }
    }

    /// Returns the result if the search ended here.
    pub(crate) fn so_far(&self) -> Finding {
        let unconfirmed =
            Finding { saturation: self.held.last().copied(), confirmed: false, missed: self.missed };
        self.over.unwrap_or(unconfirmed)
    }

    /// Takes the answer to the run that [`Search::next`] asked for.
    pub(crate) fn record(&mut self, answer: Answer) {
        match (answer, self.phase) {
            (Answer::Holds, Phase::Climb) => self.climb(),
            (Answer::Holds, Phase::Bisect) => {
                self.hold();
                self.narrow();
            }
            (Answer::Holds, Phase::Confirm) => self.confirm(),
            (Answer::Misses(limit), Phase::Climb | Phase::Bisect) => {
                self.missed = Some((self.rate, limit));
                self.narrow();
            }
            (Answer::Misses(limit), Phase::Confirm) => {
                self.missed = Some((self.rate, limit));
                self.descend();
            }
        }
    }

    fn go_to(&mut self, phase: Phase, rate: f64) {
        (self.phase, self.rate) = (phase, rate);
    }

    fn hold(&mut self) {
        let place = self.held.partition_point(|&held| held < self.rate);
        if self.held.get(place) != Some(&self.rate) {
            self.held.insert(place, self.rate);
        }
    }

    fn climb(&mut self) {
        self.hold();
        if self.rate >= self.bounds.limit {
            self.begin_to_confirm();
        } else {
            let higher = (self.rate * self.bounds.factor).min(self.bounds.limit);
            self.go_to(Phase::Climb, higher);
        }
    }

    /// Goes between the highest rate that held and the lowest that missed, or on to the confirmation once they are
    /// close.
    fn narrow(&mut self) {
        let Some(&held) = self.held.last() else {
            self.over = Some(self.so_far());
            return;
        };
        match self.missed {
            Some((missed, _)) if missed > held * (1.0 + self.bounds.resolution) => {
                self.go_to(Phase::Bisect, between(held, missed));
            }
            _ => self.begin_to_confirm(),
        }
    }

    fn begin_to_confirm(&mut self) {
        match self.held.last() {
            Some(&held) => {
                self.holds_needed = 1;
                self.go_to(Phase::Confirm, held);
            }
            None => self.over = Some(self.so_far()),
        }
    }

    fn confirm(&mut self) {
        self.hold();
        self.holds_needed = self.holds_needed.saturating_sub(1);
        if self.holds_needed == 0 {
            self.over = Some(Finding { saturation: Some(self.rate), confirmed: true, missed: self.missed });
        }
    }

    /// Goes to the next lower rate that held once. If that is further away than the step, goes to a rate that must
    /// hold twice.
    fn descend(&mut self) {
        let missed = self.rate;
        self.held.retain(|&held| held < missed);
        let step_down = rounded(missed / (1.0 + self.descent));
        self.descent *= DESCENT_GROWTH;
        match self.held.last() {
            None if step_down < self.bounds.start => self.over = Some(self.so_far()),
            Some(&held) if held >= step_down => self.begin_to_confirm(),
            _ => {
                self.holds_needed = 2;
                self.go_to(Phase::Confirm, step_down);
            }
        }
    }
}

/// Returns the geometric middle, or a rate between with few digits if there is one.
fn between(low: f64, high: f64) -> f64 {
    let middle = (low * high).sqrt();
    let short = rounded(middle);
    if low < short && short < high { short } else { middle }
}

/// Rounds to three significant digits: as close as any resolution, and readable.
fn rounded(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.log10().floor() - 2.0);
    let rounded = (rate / unit).round() * unit;
    // Powers of ten below 1 are not exact.
    if unit >= 1.0 { rounded.round() } else { rounded }
}

#[cfg(test)]
mod tests;
