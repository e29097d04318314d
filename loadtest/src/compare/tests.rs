//! Runs made up: equal ones, slower ones, and ones that carry no answer.

use proptest::prelude::*;

use super::*;
use crate::report::testing::run;

/// Seconds that spread by some per cent around a median; each seed its own.
fn seconds(seed: u64, number: usize, median_us: f64, spread: f64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    // The sum of twelve evenly spread numbers is close to a normal distribution of deviation 1.
    let mut normal = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    (0..number).map(|_| median_us * (spread * normal()).exp()).collect()
}

fn verdict_of(a: &Run, b: &Run) -> Verdict {
    compare(std::slice::from_ref(a), std::slice::from_ref(b)).expect("they may be compared").verdict
}

fn call(comparison: &Comparison, figure: Figure) -> Call {
    comparison.rows.iter().find(|row| row.figure == figure).expect("a row").call
}

#[test]
fn equal_runs_are_equal() {
    // Of this many pairs of equal runs, none is called different.
    for seed in 0..500 {
        let [a, b] = [seed, seed + 10_000].map(|seed| run(&seconds(seed, 10, 60.0, 0.08)));
        assert_eq!(verdict_of(&a, &b), Verdict::Equal, "seed {seed}");
    }
}

/// A whole run that is off by as much as its seconds are spread: the worst that the seconds can vouch for.
#[test]
fn runs_that_differ_as_much_as_their_seconds_do_are_seldom_called_different() {
    let different = (0..1_000).filter(|&seed| {
        let offsets = seconds(seed + 50_000, 2, 1.0, 0.08);
        let [a, b] = [(seed, offsets[0]), (seed + 10_000, offsets[1])]
            .map(|(seed, offset)| run(&seconds(seed, 10, 60.0 * offset, 0.08)));
        verdict_of(&a, &b) != Verdict::Equal
    });
    let different = different.count();
    // 1 % by design, more because a typical second is itself only estimated.
    assert!(different < 40, "{different} of 1000");
}

#[test]
fn a_slower_target_is_slower() {
    for seed in 0..200 {
        let [a, b] = [(seed, 60.0), (seed + 10_000, 120.0)]
            .map(|(seed, median)| run(&seconds(seed, 10, median, 0.08)));
        let comparison = compare(std::slice::from_ref(&a), std::slice::from_ref(&b)).expect("a comparison");
        assert_eq!(comparison.verdict, Verdict::Worse, "seed {seed}: {comparison:?}");
        assert!(comparison.summary.starts_with("slower: response p50 x "), "{}", comparison.summary);
        assert_eq!(verdict_of(&b, &a), Verdict::Better);
    }
}

#[test]
fn each_verdict_has_its_exit_code() {
    let of = |median, spread| run(&seconds(1, 10, median, spread));
    let code = |a, b| verdict_of(&a, &b).exit_code();
    assert_eq!(code(of(60.0, 0.08), run(&seconds(2, 10, 120.0, 0.08))), 1, "worse");
    assert_eq!(code(of(60.0, 0.08), run(&seconds(2, 10, 30.0, 0.08))), 0, "better");
    assert_eq!(code(of(60.0, 0.08), run(&seconds(2, 10, 60.0, 0.08))), 0, "the same");
    let wild = || run(&seconds(3, 10, 60.0, 3.0));
    assert_eq!(verdict_of(&wild(), &wild()), Verdict::CannotTell);
    assert_eq!(code(wild(), wild()), 2, "not even equal files are the same where every figure is a `?`");
}

#[test]
fn an_interval_that_holds_a_doubling_is_not_the_same() {
    let judged = |low, ratio, high| judge(Interval { low, ratio, high }, ratio, Figure::Response("p50"));
    assert_eq!(judged(0.96, 1.61, 2.68), Err("the spread is too wide"));
    assert_eq!(judged(0.37, 0.62, 1.04), Err("the spread is too wide"));
    assert_eq!(judged(0.7, 1.0, 1.4), Ok(Call::Same));
    assert_eq!(judged(1.02, 1.7, 2.8), Ok(Call::Worse));
}

#[test]
fn a_tail_that_a_second_does_not_resolve_is_left_open() {
    let [a, b] = [1, 2].map(|seed| run(&seconds(seed, 10, 60.0, 0.05)));
    let comparison = compare(&[a], &[b]).expect("a comparison");
    for open in ["p99.99", "max"] {
        assert_eq!(call(&comparison, Figure::Response(open)), Call::CannotTell);
    }
    assert_eq!(call(&comparison, Figure::Response("p99.9")), Call::Same);
    assert!(
        comparison.summary.ends_with("cannot tell: p99.99, max, CPU per request"),
        "{}",
        comparison.summary
    );
}

#[test]
fn a_quantile_needs_requests_above_it_in_each_second() {
    let mut thin = run(&seconds(1, 10, 60.0, 0.05));
    thin.seconds.iter_mut().for_each(|second| second.answered = 1_000);
    let told = |quantile| Figure::Response(quantile).seconds(&thin).is_ok();
    assert_eq!(["p50", "p90", "p99", "p99.9"].map(told), [true, true, true, false]);
}

#[test]
fn a_figure_that_one_second_made_is_left_open() {
    let [a, mut b] = [1, 2].map(|seed| run(&seconds(seed, 10, 60.0, 0.05)));
    b.response_time.quantiles_us.insert("p99.9".to_owned(), 44_000.0);
    let comparison = compare(&[a], &[b]).expect("a comparison");
    assert_eq!(call(&comparison, Figure::Response("p99.9")), Call::CannotTell);
    assert_eq!(comparison.verdict, Verdict::Equal);
}

#[test]
fn short_and_unsteady_runs_tell_nothing() {
    let short = run(&[60.0; 4]);
    assert_eq!(verdict_of(&short, &short), Verdict::CannotTell);
    let [a, b] = [1, 2].map(|seed| run(&seconds(seed, 10, 60.0, 1.0)));
    assert_eq!(verdict_of(&a, &b), Verdict::CannotTell);
}

#[test]
fn several_runs_bring_their_own_spread() {
    let of = |medians: [f64; 3]| medians.map(|median| run(&[median; 10]));
    let steady = compare(&of([60.0, 61.0, 59.0]), &of([70.0, 71.0, 69.0])).expect("a comparison");
    assert_eq!((steady.verdict, steady.spread_from), (Verdict::Worse, SpreadFrom::Runs));
    assert_eq!(call(&steady, Figure::Response("max")), Call::Worse);
    // The same difference among runs that are further apart than that.
    let apart = compare(&of([60.0, 64.0, 62.0]), &of([63.0, 66.0, 61.0])).expect("a comparison");
    assert_eq!(apart.verdict, Verdict::Equal, "{apart:?}");
    assert!(apart.warnings.iter().any(|warning| warning.contains("came first")), "{apart:?}");
}

#[test]
fn a_late_generator_is_not_the_targets_doing() {
    let (a, mut b) = (run(&[60.0; 10]), run(&[120.0; 10]));
    b.target_time = a.target_time.clone();
    let comparison = compare(&[a], &[b]).expect("a comparison");
    assert_eq!(call(&comparison, Figure::Response("p50")), Call::CannotTell, "{comparison:?}");
}

/// Runs whose requests cost this many microseconds of the target.
fn with_cost<const N: usize>(us_per_request: [f64; N]) -> [Run; N] {
    us_per_request.map(|us| {
        let mut run = run(&[60.0, 61.0, 59.0, 60.0, 62.0]);
        run.target_cpu_share = Some(us * run.answered as f64 / run.elapsed_s / 1e6);
        run
    })
}

#[test]
fn more_processor_time_per_request_is_worse() {
    let a = with_cost([10.0, 10.2, 9.8, 10.1, 9.9]);
    let b = with_cost([11.5, 11.7, 11.3, 11.6, 11.4]);
    let comparison = compare(&a, &b).expect("a comparison");
    assert_eq!((comparison.verdict.exit_code(), call(&comparison, Figure::Cpu)), (1, Call::Worse));
    assert_eq!(comparison.summary, "more CPU: CPU per request x 1.15");
    let same = compare(&a, &with_cost([10.3, 9.7, 10.0, 10.2, 9.9])).expect("a comparison");
    assert_eq!(call(&same, Figure::Cpu), Call::Same, "{same:?}");
}

#[test]
fn errors_on_one_side_only_are_a_difference() {
    let (a, mut b) = (run(&[60.0; 10]), run(&[60.0; 10]));
    b.refused.insert("exhausted".to_owned(), 3);
    let comparison = compare(std::slice::from_ref(&a), std::slice::from_ref(&b)).expect("a comparison");
    assert_eq!(comparison.summary, "more errors: more errors");
    assert_eq!(verdict_of(&b, &a), Verdict::Better);
    assert_eq!(verdict_of(&b, &b), Verdict::Equal);
}

#[test]
fn what_sets_runs_apart_is_named() {
    let a = run(&[60.0; 10]);
    let changed = |change: fn(&mut Run)| {
        let mut b = a.clone();
        change(&mut b);
        compare(std::slice::from_ref(&a), &[b]).map(|comparison| comparison.warnings.join("; "))
    };
    assert_eq!(changed(|_| {}), Ok(String::new()));
    assert_eq!(changed(|run| run.batch = "100".into()), Ok("IDs per request: A 1; B 100".into()));
    assert_eq!(changed(|run| run.protocol = "resp".into()), Ok("protocol: A snowbank; B resp".into()));
    assert_eq!(
        changed(|run| run.wanted_ids_per_s = Some(2e4)),
        Ok("rate offered: A 10000/s; B 20000/s".into())
    );
    let bottleneck = changed(|run| {
        run.verdict = "no verdict".into();
        run.reasons = vec!["the generator was the bottleneck".into()];
    });
    assert_eq!(bottleneck, Ok("B has no verdict: the generator was the bottleneck".into()));
    let closed = changed(|run| run.loop_kind = "closed loop".into());
    assert_eq!(
        closed,
        Err("A is open loop, B is closed loop: the times of one are not those of the other".into())
    );
}

#[test]
fn seconds_of_an_announced_outage_do_not_count() {
    let mut b = run(&[60.0, 60.0, 60.0, 9_000.0, 9_000.0, 60.0, 60.0, 60.0]);
    b.outage = Some(crate::report::json::OutageFigures {
        ending: "kill".into(),
        at_s: 3.5,
        window_us: None,
        length_us: 1_000_000.0,
        longest_gap_us: 1_000_000.0,
        lost: 5,
    });
    let seconds = Figure::Response("p50").seconds(&b).expect("seconds");
    assert_eq!(seconds, [60.0; 6]);
}

proptest! {
    /// Whatever the seconds are: no panic, a run is never different from itself, and the other way round is
    /// the opposite.
    #[test]
    fn turned_round_it_says_the_opposite(
        a in proptest::collection::vec(0.0..1e6_f64, 0..15),
        b in proptest::collection::vec(0.0..1e6_f64, 0..15),
    ) {
        let (a, b) = (run(&a), run(&b));
        let opposite = match verdict_of(&a, &b) {
            Verdict::Worse => Verdict::Better,
            Verdict::Better => Verdict::Worse,
            other => other,
        };
        prop_assert_eq!(verdict_of(&b, &a), opposite);
        prop_assert!(matches!(verdict_of(&a, &a), Verdict::Equal | Verdict::CannotTell));
    }
}
