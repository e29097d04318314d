use super::*;
use crate::check::Violation;
use crate::measure::Refusals;

const TWO_MS: Latency = Latency { quantile: 0.999, limit: Duration::from_millis(2) };

fn counts(response_us: u64, slip_us: u64) -> Counts {
    let mut counts = Counts::default();
    (counts.requests, counts.answered, counts.ids) = (1_000, 1_000, 1_000);
    counts.response.saturating_record_n(response_us * 1_000, 1_000);
    counts.slip.saturating_record_n(slip_us * 1_000, 1_000);
    counts.target.saturating_record_n(response_us.saturating_sub(slip_us) * 1_000, 1_000);
    counts
}

/// Ten seconds of an open loop, with the default objective.
fn evidence<'a>(
    counts: &'a Counts,
    faults: &'a [Fault],
    promise: &'a Promise,
    undisturbed: &'a Undisturbed,
) -> Evidence<'a> {
    Evidence {
        counts,
        faults,
        undisturbed,
        echo: None,
        has_too_many_threads: false,
        rounds: 1,
        is_single: false,
        stalls: StallSum::default(),
        own_waits: OwnWaits::default(),
        is_owner_known: false,
        target_busiest: None,
        per_second: None,
        elapsed: Duration::from_secs(10),
        promise,
        open_loop: true,
        ids_per_s: 10_000.0,
        interrupted: false,
        too_scattered: false,
    }
}

fn objectives() -> Objectives {
    Objectives { rate: "10k/s".parse().ok(), latencies: vec![TWO_MS], errors: 0.0 }
}

fn verdict(counts: &Counts, faults: &[Fault], open_loop: bool) -> Verdict {
    let (promise, undisturbed) = (Promise::of_counter(), Undisturbed::with_all(counts));
    judge(&Evidence { open_loop, ..evidence(counts, faults, &promise, &undisturbed) }, &objectives())
}

#[test]
fn objectives_met_pass() {
    assert_eq!(verdict(&counts(1_900, 50), &[], true), Verdict::Pass);
}

#[test]
fn too_slow_fails() {
    let verdict = verdict(&counts(2_100, 50), &[], true);
    assert_eq!(verdict.exit_code(), 1);
    assert!(verdict.reasons()[0].starts_with("response time p99.9 was 2.1"), "{verdict:?}");
}

#[test]
fn late_requests_are_the_generators_fault() {
    let verdict = verdict(&counts(2_100, 1_500), &[], true);
    assert_eq!(verdict.exit_code(), 2);
    assert!(verdict.reasons()[0].contains("bottleneck"), "{verdict:?}");
}

#[test]
fn an_objective_met_in_spite_of_the_slip_is_met() {
    assert_eq!(verdict(&counts(1_900, 1_800), &[], true), Verdict::Pass);
}

#[test]
fn a_target_too_slow_by_itself_fails_whatever_the_slip() {
    let verdict = verdict(&counts(9_000, 4_000), &[], true);
    assert_eq!(verdict.exit_code(), 1, "{verdict:?}");
}

#[test]
fn a_load_that_was_not_offered_never_passes() {
    let mut late = counts(1_000, 0);
    late.slip.saturating_record_n(11_000_000, 11);
    let verdict = verdict(&late, &[], true);
    assert_eq!(verdict.exit_code(), 2);
    assert!(verdict.reasons()[0].contains("one request in 100 left late by 11"), "{verdict:?}");
}

#[test]
fn a_refusal_fails_though_requests_left_late() {
    let mut refused = counts(2_100, 1_500);
    refused.refused.insert(6, Refusals { count: 7, first_message: "too many".into() });
    assert_eq!(verdict(&refused, &[], true).exit_code(), 1);
}

#[test]
fn a_generator_that_stood_still_never_passes() {
    let mut stood = counts(1_000, 50);
    stood.longest_pause = Duration::from_millis(150);
    assert_eq!(verdict(&stood, &[], true).exit_code(), 2);
    let mut slipped = counts(1_000, 50);
    slipped.slip.saturating_record(150_000_000);
    assert_eq!(verdict(&slipped, &[], true).exit_code(), 2);
    assert_eq!(verdict(&slipped, &[Fault::FullSocket], true).exit_code(), 2);
    let mut behind = counts(1_000, 50);
    let full = [Fault::TooManyInFlight { bound: 1 }];
    assert_eq!(verdict(&behind, &full, true).exit_code(), 1);
    behind.late_at_fault = Duration::from_millis(500);
    assert_eq!(verdict(&behind, &full, true).exit_code(), 2);
}

#[test]
fn a_broken_promise_fails_whatever_the_generator_did() {
    let mut stood = counts(1_000, 50);
    stood.longest_pause = Duration::from_secs(1);
    let fault = Fault::Violation(Violation::Duplicate { id: 5 });
    assert_eq!(verdict(&stood, &[fault], true).exit_code(), 1);
    let closed = || [Fault::Closed { unanswered: 3, reason: None }];
    assert_eq!(verdict(&stood, &closed(), true).exit_code(), 1);
    // So long that the target's idle timeout may have closed it. It is no pass either way.
    for late in [Duration::ZERO, Duration::from_secs(5)] {
        (stood.longest_pause, stood.late_at_fault) = (Duration::from_secs(5) - late, late);
        let verdict = verdict(&stood, &closed(), true);
        assert_eq!(verdict.exit_code(), 2);
        assert!(verdict.reasons()[0].contains("the generator was the bottleneck"), "{verdict:?}");
    }
}

#[test]
fn a_refusal_fails() {
    let mut refused = counts(100, 50);
    refused.refused.insert(6, Refusals { count: 7, first_message: "too many".into() });
    let verdict = verdict(&refused, &[], true);
    assert_eq!(verdict.exit_code(), 1);
    assert_eq!(verdict.reasons()[0], "7 of 1,000 requests were refused: exhausted x 7 (too many)");
}

#[test]
fn a_closed_loop_says_at_least_where_the_target_was_not_busy() {
    let mut counts = counts(100, 0);
    let line = |counts: &Counts, target_busiest| {
        let (promise, undisturbed) = (Promise::of_counter(), Undisturbed::with_all(counts));
        let evidence = evidence(counts, &[], &promise, &undisturbed);
        let evidence = Evidence { open_loop: false, target_busiest, ..evidence };
        last_line(&judge(&evidence, &objectives()), &evidence, &objectives())
    };
    let is_bound =
        |counts: &Counts, busiest| line(counts, busiest).contains("response time: at least 10,000");
    assert_eq!([Some(0.5), Some(0.95), None].map(|busiest| is_bound(&counts, busiest)), [true, false, false]);
    counts.busiest_thread = 0.99;
    assert_eq!([Some(0.5), Some(0.95), None].map(|busiest| is_bound(&counts, busiest)), [true, false, true]);
    assert!(line(&counts, None).starts_with("pass: "), "the figure itself is right");
}

#[test]
fn a_closed_loop_under_a_quota_says_nothing() {
    let mut held = counts(100, 0);
    held.throttled_share = 0.8;
    assert_eq!(verdict(&held, &[], false).exit_code(), 2);
    assert_eq!(verdict(&held, &[], true).exit_code(), 0);
}

#[test]
fn a_rate_missed_for_want_of_a_core_is_not_the_targets() {
    let of = |hungriest_thread, ids_per_s| {
        let mut counts = counts(100, 0);
        counts.hungriest_thread = hungriest_thread;
        let (promise, undisturbed) = (Promise::of_counter(), Undisturbed::with_all(&counts));
        let evidence = evidence(&counts, &[], &promise, &undisturbed);
        let objectives = Objectives { latencies: Vec::new(), ..objectives() };
        judge(&Evidence { open_loop: false, ids_per_s, ..evidence }, &objectives).exit_code()
    };
    assert_eq!([of(0.5, 9_000.0), of(0.99, 9_000.0), of(0.99, 10_000.0)], [1, 2, 0]);
}

#[test]
fn a_closed_loop_that_fewer_threads_make_faster_says_at_least_and_fails_no_target() {
    let (counts, promise) = (counts(100, 0), Promise::of_counter());
    let undisturbed = Undisturbed::with_all(&counts);
    let of = |has_too_many_threads, ids_per_s| {
        let evidence = evidence(&counts, &[], &promise, &undisturbed);
        let closed = Evidence { open_loop: false, target_busiest: Some(0.99), ids_per_s, ..evidence };
        let evidence = Evidence { has_too_many_threads, ..closed };
        (judge(&evidence, &objectives()).exit_code(), evidence.is_lower_bound())
    };
    assert_eq!([of(true, 9_000.0), of(true, 10_000.0)], [(2, true), (0, true)]);
    assert_eq!([of(false, 9_000.0), of(false, 10_000.0)], [(1, false), (0, false)]);
}

#[test]
fn quantiles_have_their_usual_names() {
    let names = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0].map(quantile_name);
    assert_eq!(names, ["p50", "p90", "p99", "p99.9", "p99.99", "max"]);
}

/// Nearly all requests are quick; `late` more came late. The target took what the generator's slip does not
/// explain.
fn with_late(late: u64, late_us: u64, slip_us: u64) -> Counts {
    let mut all = counts(300, 50);
    for (times, us) in
        [(&mut all.response, late_us), (&mut all.slip, slip_us), (&mut all.target, late_us - slip_us)]
    {
        times.saturating_record_n(us * 1_000, late);
    }
    all
}

fn of_machine(all: &Counts, undisturbed: &Undisturbed, own_waits: OwnWaits) -> (Verdict, String) {
    let promise = Promise::of_counter();
    let [total, longest] = [41, 20].map(Duration::from_millis);
    let stalls = StallSum { count: 3, total, longest, ..StallSum::default() };
    let known = evidence(all, &[], &promise, undisturbed);
    let evidence = Evidence { stalls, own_waits, is_owner_known: true, ..known };
    let verdict = judge(&evidence, &objectives());
    let line = last_line(&verdict, &evidence, &objectives());
    (verdict, line)
}

#[test]
fn a_target_is_judged_without_the_stalls_of_the_machine() {
    let (all, quiet) = (with_late(10, 11_000, 0), with_late(0, 11_000, 0));
    let without = Undisturbed { disturbed_share: 0.01, ..Undisturbed::with_all(&quiet) };
    let (verdict, line) = of_machine(&all, &without, OwnWaits::default());
    assert_eq!(verdict, Verdict::Pass);
    assert!(line.contains("p99.9 0.300 ms without 3 stalls of the machine, 41.000 ms in all"), "{line}");
    // One that is slow without them as well fails.
    let (slow, _) = of_machine(&all, &Undisturbed::with_all(&all), OwnWaits::default());
    assert_eq!(slow.exit_code(), 1, "{slow:?}");
    // Where hardly anything is left, there is no verdict.
    let promise = Promise::of_counter();
    let stopped = Undisturbed { clean_requests: 900.0, ..without };
    let stopped = evidence(&all, &[], &promise, &stopped);
    assert_eq!(judge(&stopped, &objectives()).exit_code(), 2);
}

#[test]
fn a_target_in_time_passes_if_other_programs_delayed_the_generator() {
    let all = with_late(5, 9_000, 8_000);
    let waits = |by_target: u64, by_generator: u64| {
        let of = |ms| StallSum { total: Duration::from_millis(ms), ..StallSum::default() };
        OwnWaits { by_target: of(by_target), by_generator: of(by_generator) }
    };
    let code = |all: &Counts, waits| of_machine(all, &Undisturbed::with_all(all), waits).0.exit_code();
    assert_eq!(code(&all, waits(0, 0)), 0);
    assert_eq!(code(&all, waits(40, 5)), 1, "the target had the cores");
    assert_eq!(code(&all, waits(5, 40)), 2, "the generator had them itself");
    assert_eq!(code(&with_late(50, 9_000, 8_000), waits(0, 0)), 2, "too many for a chance");
}

#[test]
fn a_generator_that_stood_still_in_a_stall_of_the_machine_has_a_verdict() {
    let mut stood = counts(1_000, 50);
    stood.longest_pause = Duration::from_millis(250);
    stood.slip.saturating_record(250_000_000);
    let all = Undisturbed::with_all(&stood);
    let quiet =
        Undisturbed { longest_pause: Duration::from_millis(3), ..Undisturbed::with_all(&counts(1_000, 50)) };
    let code = |times: &Undisturbed, waits| of_machine(&stood, times, waits).0.exit_code();
    assert_eq!([code(&quiet, OwnWaits::default()), code(&all, OwnWaits::default())], [0, 2]);
    // A target that took the cores meanwhile fails.
    let of = |ms| StallSum { total: Duration::from_millis(ms), ..StallSum::default() };
    let waits =
        |by_target, by_generator| OwnWaits { by_target: of(by_target), by_generator: of(by_generator) };
    assert_eq!([code(&all, waits(300, 5)), code(&all, waits(300, 400)), code(&all, waits(50, 5))], [1, 2, 2]);
}
