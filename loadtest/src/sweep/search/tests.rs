use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds = Bounds { start: 2_000.0, limit: 10_000_000.0, resolution: 0.05 };

/// Far more steps than any search may take.
const TOO_MANY_STEPS: usize = 200;

/// Runs a search. `answer` returns the limit that a rate hits. Returns every step,
/// and the finished search.
fn search(bounds: Bounds, mut answer: impl FnMut(f64) -> Option<Limit>) -> (Vec<Step>, Search) {
    let mut search = Search::new(bounds);
    let mut steps = Vec::new();
    while let Some(attempt) = search.next() {
        let limit = answer(attempt.rate);
        steps.push(Step { attempt, limit });
        search.record(attempt, limit);
        assert!(steps.len() < TOO_MANY_STEPS, "the search does not end: {steps:?}");
    }
    (steps, search)
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Step {
    attempt: Attempt,
    limit: Option<Limit>,
}

impl Step {
    fn held_at(&self, rate: f64) -> bool {
        self.attempt.rate == rate && self.limit.is_none()
    }
}

fn saturation_at(saturation: f64) -> impl Fn(f64) -> Option<Limit> {
    move |rate| (rate > saturation).then_some(Limit::Latency)
}

#[test]
fn a_search_climbs_bisects_and_confirms() {
    let (steps, found) = search(BOUNDS, saturation_at(10_000.0));
    let rates: Vec<f64> = steps.iter().map(|step| step.attempt.rate).collect();
    let expected = [2_000.0, 4_000.0, 8_000.0, 16_000.0, 11_300.0, 9_510.0, 10_400.0, 9_950.0, 9_950.0];
    assert_eq!(rates, expected);
    assert_eq!(steps.last().map(|step| step.attempt.phase), Some(Phase::Confirm));
    assert_eq!((found.saturation(), found.is_confirmed()), (Some(9_950.0), true));
    assert_eq!(found.missed, Some(Missed { rate: 10_400.0, limit: Limit::Latency }));
}

#[test]
fn a_search_ends_at_its_bounds() {
    let (steps, never) = search(BOUNDS, |_| Some(Limit::Machine));
    assert_eq!((steps.len(), never.saturation(), never.is_confirmed()), (1, None, false));
    assert_eq!(never.missed, Some(Missed { rate: 2_000.0, limit: Limit::Machine }));
    let (_, always) = search(BOUNDS, |_| None);
    let found = (always.saturation(), always.is_confirmed(), always.missed);
    assert_eq!(found, (Some(10_000_000.0), true, None));
}

/// Rates up to 20,000 hold, and so do rates from 80,000 to 100,000. A rate above the gap is no
/// saturation point.
#[test]
fn the_saturation_point_lies_below_the_first_gap() {
    let (_, found) = search(BOUNDS, |rate| match rate {
        ..=20_000.0 | 80_000.0..=100_000.0 => None,
        _ => Some(Limit::Latency),
    });
    assert!(found.is_confirmed() && found.saturation() <= Some(20_000.0), "{found:?}");
    assert!(found.saturation() > Some(18_500.0), "{found:?}");
}

/// Rates up to 10,000 hold until the confirmation. From then on, only rates far below 10,000 hold,
/// or none.
#[test]
fn a_rate_that_is_not_confirmed_makes_the_search_descend() {
    for later in [5_000.0, 0.0] {
        let mut runs = 0;
        let (steps, found) = search(BOUNDS, |rate| {
            runs += 1;
            saturation_at(if runs <= 8 { 10_000.0 } else { later })(rate)
        });
        is_sound(&steps, &found).expect("the rules of every search");
        assert_eq!(found.is_confirmed(), later > 0.0, "{found:?}");
        let is_near = found.saturation().is_some_and(|found| (4_000.0..=5_000.0).contains(&found));
        assert!(is_near || later == 0.0, "{found:?}");
        assert!(steps.len() < 30, "{steps:?}");
    }
}

/// Checks the rules of every search, for any target.
fn is_sound(steps: &[Step], found: &Search) -> Result<(), TestCaseError> {
    prop_assert!(steps.iter().all(|step| step.attempt.rate <= found.bounds.limit));
    if found.is_confirmed() {
        let saturation = found.saturation().expect("a confirmed search has a rate");
        let last = steps.last().expect("at least one step");
        prop_assert!(last.held_at(saturation) && last.attempt.phase == Phase::Confirm);
        prop_assert!(steps.iter().filter(|step| step.held_at(saturation)).count() >= 2);
    }
    if let (Some(saturation), Some(missed)) = (found.saturation(), found.missed) {
        prop_assert!(missed.rate > saturation, "{:?}", found);
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_clean_saturation_point_is_found_within_the_resolution(
        saturation in 2_500.0..9_000_000.0_f64, resolution in 0.01..0.3_f64
    ) {
        let bounds = Bounds { resolution, ..BOUNDS };
        let (steps, found) = search(bounds, saturation_at(saturation));
        is_sound(&steps, &found)?;
        let at = found.saturation().expect("a saturation point");
        prop_assert!(found.is_confirmed() && at <= saturation, "{found:?}");
        prop_assert!(at * (1.0 + resolution) * 1.001 >= saturation, "{found:?}");
    }

    /// In each run, the saturation point is up to a tenth higher or lower.
    #[test]
    fn a_noisy_saturation_point_is_found_within_the_noise(
        saturation in 5_000.0..5_000_000.0_f64, seed: u64
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (steps, found) = search(BOUNDS, |rate| saturation_at(saturation * (0.9 + 0.2 * random.f64()))(rate));
        is_sound(&steps, &found)?;
        let at = found.saturation().expect("a saturation point");
        prop_assert!(found.is_confirmed() && at <= saturation * 1.1, "{found:?}");
        // A descent may end one step below the lowest saturation point of any run. The longest step
        // of a descent is the fourth one, of 40 %.
        prop_assert!(at >= saturation * 0.9 / 1.05 / 1.4, "{found:?}");
    }

    /// Each run is quick or slow by chance, whatever the rate.
    #[test]
    fn a_search_ends_whatever_the_answers(seed: u64, slow in 0.0..1.0_f64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = [Limit::Layout, Limit::Latency, Limit::Target, Limit::Machine];
        let (steps, found) = search(BOUNDS, |_| (random.f64() < slow).then(|| limits[random.usize(..4)]));
        is_sound(&steps, &found)?;
    }

    #[test]
    fn the_rounded_middle_lies_between_its_bounds(low in 0.001..1e9_f64, share in 1.001..9.0_f64) {
        let high = low * share;
        let middle = short_between((low * high).sqrt(), low, high);
        prop_assert!(low < middle && middle < high);
    }
}
