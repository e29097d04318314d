use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds = Bounds { start: 2_000.0, limit: 10_000_000.0, factor: 2.0, resolution: 0.05 };

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
                search.record(said);
            }
        }
        assert!(steps.len() < TOO_MANY_STEPS, "it does not end: {steps:?}");
    }
}

fn saturation_at(saturation: f64) -> impl Fn(f64) -> Answer {
    move |rate| if rate <= saturation { Answer::Holds } else { Answer::Misses(Limit::Latency) }
}

#[test]
fn the_steps_of_a_plain_search() {
    let (steps, found) = search(BOUNDS, saturation_at(10_000.0));
    let rates: Vec<f64> = steps.iter().map(|step| step.0).collect();
    let expected = [2_000.0, 4_000.0, 8_000.0, 16_000.0, 11_300.0, 9_510.0, 10_400.0, 9_950.0, 9_950.0];
    assert_eq!(rates, expected);
    assert_eq!(steps.last().map(|step| step.1), Some(Phase::Confirm));
    let saturation =
        Finding { saturation: Some(9_950.0), confirmed: true, missed: Some((10_400.0, Limit::Latency)) };
    assert_eq!(found, saturation);
}

#[test]
fn an_objective_that_is_never_met_ends_at_the_first_rate() {
    let (steps, found) = search(BOUNDS, |_| Answer::Misses(Limit::Latency));
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert_eq!(
        found,
        Finding { saturation: None, confirmed: false, missed: Some((2_000.0, Limit::Latency)) }
    );
}

#[test]
fn a_target_that_holds_everywhere_is_confirmed_at_the_limit() {
    let (_, found) = search(BOUNDS, |_| Answer::Holds);
    assert_eq!(found, Finding { saturation: Some(10_000_000.0), confirmed: true, missed: None });
}

#[test]
fn a_machine_without_a_verdict_gives_a_lower_bound() {
    let answer = |rate| match rate {
        ..=30_000.0 => Answer::Holds,
        _ => Answer::Misses(Limit::Machine),
    };
    let (_, found) = search(BOUNDS, answer);
    assert!(found.confirmed && found.saturation > Some(28_000.0), "{found:?}");
    assert!(matches!(found.missed, Some((_, Limit::Machine))), "{found:?}");
}

/// Holds up to 20,000 and again from 80,000 to 100,000: what lies above the gap is no saturation point.
#[test]
fn a_target_that_holds_again_further_up_has_its_saturation_point_below_the_gap() {
    let answer = |rate: f64| match rate {
        ..=20_000.0 | 80_000.0..=100_000.0 => Answer::Holds,
        _ => Answer::Misses(Limit::Latency),
    };
    let (_, found) = search(BOUNDS, answer);
    assert!(found.confirmed && found.saturation <= Some(20_000.0), "{found:?}");
    assert!(found.saturation > Some(18_500.0), "{found:?}");
}

#[test]
fn a_saturation_point_that_is_not_confirmed_goes_down_until_one_is() {
    // Holds in the search, and from then on only far below.
    let mut runs = 0;
    let (steps, found) = search(BOUNDS, |rate| {
        runs += 1;
        saturation_at(if runs <= 8 { 10_000.0 } else { 5_000.0 })(rate)
    });
    assert!(found.confirmed, "{found:?}");
    assert!(found.saturation <= Some(5_000.0) && found.saturation >= Some(4_000.0), "{found:?}");
    let saturation = found.saturation.expect("a saturation point");
    assert!(steps.iter().filter(|step| step.0 == saturation && step.2 == Answer::Holds).count() >= 2);
    assert!(found.missed.is_some_and(|(missed, _)| missed > saturation), "{found:?}");
}

#[test]
fn a_target_that_never_holds_again_has_no_confirmed_saturation_point() {
    let mut runs = 0;
    let (steps, found) = search(BOUNDS, |rate| {
        runs += 1;
        saturation_at(if runs <= 8 { 10_000.0 } else { 0.0 })(rate)
    });
    assert!(!found.confirmed && steps.len() < 30, "{found:?} {steps:?}");
}

/// Checks the rules of every search, for any target.
fn is_sound(bounds: Bounds, steps: &[(f64, Phase, Answer)], found: Finding) -> Result<(), TestCaseError> {
    prop_assert!(steps.iter().all(|step| step.0 <= bounds.limit));
    if found.confirmed {
        let saturation = found.saturation.expect("what is confirmed is a rate");
        let last = steps.last().expect("at least one step");
        prop_assert_eq!((last.0, last.1, last.2), (saturation, Phase::Confirm, Answer::Holds));
        let holds = steps.iter().filter(|step| step.0 == saturation && step.2 == Answer::Holds);
        prop_assert!(holds.count() >= 2);
    }
    if let (Some(saturation), Some((missed, _))) = (found.saturation, found.missed) {
        prop_assert!(missed > saturation, "{:?}", found);
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_clean_saturation_point_is_found_within_the_resolution(
        saturation in 2_500.0..9_000_000.0_f64, factor in 1.2..8.0_f64, resolution in 0.01..0.3_f64
    ) {
        let bounds = Bounds { factor, resolution, ..BOUNDS };
        let (steps, found) = search(bounds, saturation_at(saturation));
        is_sound(bounds, &steps, found)?;
        let at = found.saturation.expect("a saturation point");
        prop_assert!(found.confirmed && at <= saturation, "{found:?}");
        prop_assert!(at * (1.0 + resolution) * 1.001 >= saturation, "{found:?}");
    }

    /// Each run's own saturation point is off by up to a tenth.
    #[test]
    fn a_noisy_saturation_point_is_found_as_far_as_the_noise_allows(
        saturation in 5_000.0..5_000_000.0_f64, seed: u64
    ) {
        let bounds = BOUNDS;
        let mut random = fastrand::Rng::with_seed(seed);
        let (steps, found) = search(bounds, |rate| saturation_at(saturation * (0.9 + 0.2 * random.f64()))(rate));
        is_sound(bounds, &steps, found)?;
        let at = found.saturation.expect("a saturation point");
        prop_assert!(found.confirmed && at <= saturation * 1.1, "{found:?}");
        // A descent may end below the lowest saturation point of any run, by one step: its fourth at most, which
        // is the longest.
        prop_assert!(at >= saturation * 0.9 / 1.05 / 1.4, "{found:?}");
    }

    /// Each run of the target is quick or slow, as it likes, whatever the rate.
    #[test]
    fn a_target_of_two_minds_ends_the_search(seed: u64, slow in 0.0..1.0_f64) {
        let bounds = BOUNDS;
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = [Limit::Layout, Limit::Latency, Limit::Target, Limit::Machine];
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
