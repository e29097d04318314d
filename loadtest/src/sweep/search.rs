//! Where to look next: pure, one answer in, one rate out.
//!
//! ```text
//!  climb: × factor until a rate misses ─▶ bisect: halve what lies between, in proportion ─▶ confirm: the same rate again
//!                                                                                    └─ missed: a little lower, again
//! ```
//!
//! What holds at a rate is not taken to hold above it, and the climb ends at the first rate that misses, even if a higher
//! one would hold: an operator needs every rate up to the knee. One run that misses may be the machine's noise, so a miss
//! counts when `tries` runs in a row miss; a knee counts when a run of its own confirms it at the first try. A run that says
//! nothing, because the generator was the bottleneck, is tried as often.

use serde::{Deserialize, Serialize};

/// Steps down from a rate that was not confirmed: each twice as long as the one before, so few are enough.
const DESCENT_GROWTH: f64 = 2.0;

/// Where the search looks, and how closely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// The first rate; above 0.
    pub start: f64,
    /// The highest rate to try; at least `start`.
    pub limit: f64,
    /// What the climb multiplies the rate by; above 1.
    pub factor: f64,
    /// How close the knee is to the next rate that misses, as a share of it; above 0.
    pub resolution: f64,
    /// How many runs in a row have to miss; at least 1.
    pub tries: u32,
}

/// What stood in the way at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The layout has no more IDs for this time and these worker IDs.
    Layout,
    /// Answers came too late.
    Latency,
    /// The target refused for another reason, stalled or closed connections.
    Target,
    /// The generator: the target may be able to do more.
    Generator,
}

/// What a run at a rate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The objective holds.
    Holds,
    /// It does not, or cannot be told.
    Misses(Limit),
}

/// What a step is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Up, until a rate misses.
    Climb,
    /// Between the highest rate that held and the lowest that missed.
    Bisect,
    /// Whether it holds again.
    Confirm,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    /// A run at this rate.
    Try {
        /// IDs per second.
        rate: f64,
        /// What for.
        phase: Phase,
    },
    /// Nothing: the search is over.
    Done(Finding),
}

/// What a search has found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Finding {
    /// The highest rate at which the objective held.
    pub knee: Option<f64>,
    /// Whether a second run at that rate held, too.
    pub confirmed: bool,
    /// The lowest rate above it that missed, and why; none where every rate up to the limit held.
    pub missed: Option<(f64, Limit)>,
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct Search {
    bounds: Bounds,
    phase: Phase,
    rate: f64,
    /// Runs in a row that missed at this rate.
    misses: u32,
    /// Rates that held and were not missed since, ascending.
    held: Vec<f64>,
    missed: Option<(f64, Limit)>,
    /// How often the rate has to hold to be confirmed.
    holds_needed: u32,
    /// By what share the next step down goes.
    descent: f64,
    over: Option<Finding>,
}

impl Search {
    /// A search that has not begun.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            phase: Phase::Climb,
            rate: bounds.start,
            misses: 0,
            held: Vec::new(),
            missed: None,
            holds_needed: 0,
            descent: bounds.resolution,
            over: None,
        }
    }

    /// What to do next.
    #[must_use]
    pub fn next(&self) -> Next {
        match self.over {
            Some(finding) => Next::Done(finding),
            None => Next::Try { rate: self.rate, phase: self.phase },
        }
    }

    /// What is known if it ends here.
    #[must_use]
    pub fn so_far(&self) -> Finding {
        let unconfirmed = Finding { knee: self.held.last().copied(), confirmed: false, missed: self.missed };
        self.over.unwrap_or(unconfirmed)
    }

    /// Takes the answer to the run that [`Search::next`] asked for.
    pub fn hear(&mut self, answer: Answer) {
        match (answer, self.phase) {
            (Answer::Holds, Phase::Climb) => self.climb(),
            (Answer::Holds, Phase::Bisect) => {
                self.hold();
                self.narrow();
            }
            (Answer::Holds, Phase::Confirm) => self.confirm(),
            (Answer::Misses(limit), _) if self.is_to_be_repeated(limit) => self.misses += 1,
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

    /// What the layout does not have it will not have the next time. A confirmation is to hold at the first try, but a run that
    /// says nothing is no try.
    fn is_to_be_repeated(&self, limit: Limit) -> bool {
        let may_differ = match (limit, self.phase) {
            (Limit::Layout, _) => false,
            (Limit::Generator, _) | (_, Phase::Climb | Phase::Bisect) => true,
            (_, Phase::Confirm) => false,
        };
        may_differ && self.misses + 1 < self.bounds.tries
    }

    fn go_to(&mut self, phase: Phase, rate: f64) {
        (self.phase, self.rate, self.misses) = (phase, rate, 0);
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

    /// Between the highest rate that held and the lowest that missed, or on to the confirmation once they are close.
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
        self.misses = 0;
        self.holds_needed = self.holds_needed.saturating_sub(1);
        if self.holds_needed == 0 {
            self.over = Some(Finding { knee: Some(self.rate), confirmed: true, missed: self.missed });
        }
    }

    /// To the next rate below that held once, or, where that is further away than the step, to one that has to hold twice.
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

/// The middle in proportion, in few digits if one with few lies between.
fn between(low: f64, high: f64) -> f64 {
    let middle = (low * high).sqrt();
    let short = rounded(middle);
    if low < short && short < high { short } else { middle }
}

/// Three significant digits: as close as any resolution, and readable.
fn rounded(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.log10().floor() - 2.0);
    let rounded = (rate / unit).round() * unit;
    // Powers of ten below 1 are not exact.
    if unit >= 1.0 { rounded.round() } else { rounded }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds =
        Bounds { start: 2_000.0, limit: 10_000_000.0, factor: 2.0, resolution: 0.05, tries: 2 };

    /// Far more steps than any search may take.
    const TOO_MANY_STEPS: usize = 200;

    /// Runs a search against a target that answers by `answer`, and gives every step and what was found.
    fn search(bounds: Bounds, mut answer: impl FnMut(f64) -> Answer) -> (Vec<(f64, Phase, Answer)>, Finding) {
        let mut search = Search::new(bounds);
        let mut steps = Vec::new();
        loop {
            match search.next() {
                Next::Done(finding) => return (steps, finding),
                Next::Try { rate, phase } => {
                    let said = answer(rate);
                    steps.push((rate, phase, said));
                    search.hear(said);
                }
            }
            assert!(steps.len() < TOO_MANY_STEPS, "it does not end: {steps:?}");
        }
    }

    fn knee_at(knee: f64) -> impl Fn(f64) -> Answer {
        move |rate| if rate <= knee { Answer::Holds } else { Answer::Misses(Limit::Latency) }
    }

    #[test]
    fn the_steps_of_a_plain_search() {
        let (steps, found) = search(BOUNDS, knee_at(10_000.0));
        let rates: Vec<f64> = steps.iter().map(|step| step.0).collect();
        let expected = [
            2_000.0, 4_000.0, 8_000.0, 16_000.0, 16_000.0, 11_300.0, 11_300.0, 9_510.0, 10_400.0, 10_400.0,
            9_950.0, 9_950.0,
        ];
        assert_eq!(rates, expected);
        assert_eq!(steps.last().map(|step| step.1), Some(Phase::Confirm));
        let knee = Finding { knee: Some(9_950.0), confirmed: true, missed: Some((10_400.0, Limit::Latency)) };
        assert_eq!(found, knee);
    }

    #[test]
    fn an_objective_that_is_never_met_ends_at_the_first_rate() {
        let (steps, found) = search(BOUNDS, |_| Answer::Misses(Limit::Latency));
        assert_eq!(steps.len(), 2, "{steps:?}");
        assert_eq!(found, Finding { knee: None, confirmed: false, missed: Some((2_000.0, Limit::Latency)) });
    }

    #[test]
    fn a_target_that_holds_everywhere_is_confirmed_at_the_limit() {
        let (_, found) = search(BOUNDS, |_| Answer::Holds);
        assert_eq!(found, Finding { knee: Some(10_000_000.0), confirmed: true, missed: None });
    }

    #[test]
    fn a_generator_at_its_limit_gives_a_lower_bound() {
        let answer = |rate| match rate {
            ..=30_000.0 => Answer::Holds,
            _ => Answer::Misses(Limit::Generator),
        };
        let (_, found) = search(BOUNDS, answer);
        assert!(found.confirmed && found.knee > Some(28_000.0), "{found:?}");
        assert!(matches!(found.missed, Some((_, Limit::Generator))), "{found:?}");
    }

    #[test]
    fn what_the_layout_does_not_have_is_asked_for_once() {
        let answer = |rate| match rate {
            ..=4_096.0 => Answer::Holds,
            _ => Answer::Misses(Limit::Layout),
        };
        let (steps, found) = search(BOUNDS, answer);
        assert_eq!(steps.iter().filter(|step| step.0 == 8_000.0).count(), 1, "{steps:?}");
        assert!(found.confirmed && found.knee >= Some(4_000.0) && found.knee <= Some(4_096.0), "{found:?}");
    }

    #[test]
    fn a_single_miss_is_repeated_and_not_believed() {
        let mut runs = 0;
        let (steps, found) = search(BOUNDS, |rate| {
            runs += 1;
            if runs == 2 { Answer::Misses(Limit::Latency) } else { knee_at(100_000.0)(rate) }
        });
        assert_eq!((steps[1].0, steps[2].0), (4_000.0, 4_000.0));
        assert!(found.knee > Some(95_000.0), "{found:?}");
    }

    /// Holds up to 20,000 and again from 80,000 to 100,000: what lies above the gap is no knee.
    #[test]
    fn a_target_that_holds_again_further_up_has_its_knee_below_the_gap() {
        let answer = |rate: f64| match rate {
            ..=20_000.0 | 80_000.0..=100_000.0 => Answer::Holds,
            _ => Answer::Misses(Limit::Latency),
        };
        let (_, found) = search(BOUNDS, answer);
        assert!(found.confirmed && found.knee <= Some(20_000.0), "{found:?}");
        assert!(found.knee > Some(18_500.0), "{found:?}");
    }

    #[test]
    fn a_knee_that_is_not_confirmed_goes_down_until_one_is() {
        // Holds in the search, and from then on only far below.
        let mut runs = 0;
        let (steps, found) = search(BOUNDS, |rate| {
            runs += 1;
            knee_at(if runs <= 11 { 10_000.0 } else { 5_000.0 })(rate)
        });
        assert!(found.confirmed, "{found:?}");
        assert!(found.knee <= Some(5_000.0) && found.knee >= Some(4_000.0), "{found:?}");
        let knee = found.knee.expect("a knee");
        assert!(steps.iter().filter(|step| step.0 == knee && step.2 == Answer::Holds).count() >= 2);
        assert!(found.missed.is_some_and(|(missed, _)| missed > knee), "{found:?}");
    }

    #[test]
    fn a_target_that_never_holds_again_has_no_confirmed_knee() {
        let mut runs = 0;
        let (steps, found) = search(BOUNDS, |rate| {
            runs += 1;
            knee_at(if runs <= 11 { 10_000.0 } else { 0.0 })(rate)
        });
        assert!(!found.confirmed && steps.len() < 30, "{found:?} {steps:?}");
    }

    /// What every search must keep to, whatever the target does.
    fn is_sound(bounds: Bounds, steps: &[(f64, Phase, Answer)], found: Finding) -> Result<(), TestCaseError> {
        prop_assert!(steps.iter().all(|step| step.0 <= bounds.limit));
        if found.confirmed {
            let knee = found.knee.expect("what is confirmed is a rate");
            let last = steps.last().expect("at least one step");
            prop_assert_eq!((last.0, last.1, last.2), (knee, Phase::Confirm, Answer::Holds));
            let holds = steps.iter().filter(|step| step.0 == knee && step.2 == Answer::Holds);
            prop_assert!(holds.count() >= 2);
        }
        if let (Some(knee), Some((missed, _))) = (found.knee, found.missed) {
            prop_assert!(missed > knee, "{:?}", found);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn a_clean_knee_is_found_within_the_resolution(
            knee in 2_500.0..9_000_000.0_f64, factor in 1.2..8.0_f64, resolution in 0.01..0.3_f64, tries in 1..4_u32
        ) {
            let bounds = Bounds { factor, resolution, tries, ..BOUNDS };
            let (steps, found) = search(bounds, knee_at(knee));
            is_sound(bounds, &steps, found)?;
            let at = found.knee.expect("a knee");
            prop_assert!(found.confirmed && at <= knee, "{found:?}");
            prop_assert!(at * (1.0 + resolution) * 1.001 >= knee, "{found:?}");
        }

        /// Each run's own knee is off by up to a tenth.
        #[test]
        fn a_noisy_knee_is_found_as_far_as_the_noise_allows(
            knee in 5_000.0..5_000_000.0_f64, seed: u64, tries in 1..4_u32
        ) {
            let bounds = Bounds { tries, ..BOUNDS };
            let mut random = fastrand::Rng::with_seed(seed);
            let (steps, found) = search(bounds, |rate| knee_at(knee * (0.9 + 0.2 * random.f64()))(rate));
            is_sound(bounds, &steps, found)?;
            let at = found.knee.expect("a knee");
            prop_assert!(found.confirmed && at <= knee * 1.1, "{found:?}");
            // A descent may pass the lowest knee of any run by the length of one step, the fourth at most.
            prop_assert!(at >= knee * 0.9 / 1.05 / 1.4, "{found:?}");
        }

        /// Each run of the target is quick or slow, as it likes, whatever the rate.
        #[test]
        fn a_target_of_two_minds_ends_the_search(seed: u64, slow in 0.0..1.0_f64, tries in 1..4_u32) {
            let bounds = Bounds { tries, ..BOUNDS };
            let mut random = fastrand::Rng::with_seed(seed);
            let limits = [Limit::Layout, Limit::Latency, Limit::Target, Limit::Generator];
            let (steps, found) = search(bounds, |_| match random.f64() < slow {
                true => Answer::Misses(limits[random.usize(..4)]),
                false => Answer::Holds,
            });
            is_sound(bounds, &steps, found)?;
        }

        #[test]
        fn the_middle_lies_between(low in 0.001..1e9_f64, share in 1.001..9.0_f64) {
            let middle = between(low, low * share);
            prop_assert!(low < middle && middle < low * share);
        }
    }
}
