use super::*;
use crate::check::Violation;
use crate::machine::stalls::StallSum;
use crate::measure::Refusals;

const TWO_MS: Latency = Latency { quantile: 0.999, limit: Duration::from_millis(2) };

/// Returns the counts of a thousand requests. Each of them took `response_us`, of which the target
/// certainly took `certain_us`.
fn counts(response_us: u64, certain_us: u64) -> Counts {
    let mut counts = Counts::default();
    (counts.requests, counts.answered, counts.ids) = (1_000, 1_000, 1_000);
    counts.response.saturating_record_n(response_us * 1_000, 1_000);
    counts.settling.certain.saturating_record_n(certain_us * 1_000, 1_000);
    counts
}

fn outcome(counts: Counts, faults: &[Fault]) -> Outcome {
    Outcome {
        counts,
        faults: faults.to_vec(),
        stalls: StallSum { count: 3, total: Duration::from_millis(360), ..StallSum::default() },
        elapsed: Duration::from_secs(10),
        undisturbed: Duration::from_secs(10),
        planned: Some(Duration::from_secs(10)),
        ..Outcome::default()
    }
}

fn objectives() -> Objectives {
    Objectives { rate: "10k/s".parse().ok(), latencies: vec![TWO_MS], errors: 0.0 }
}

fn judged(outcome: &Outcome) -> Verdict {
    judge(outcome, &objectives())
}

fn verdict(counts: Counts, faults: &[Fault]) -> Verdict {
    judged(&outcome(counts, faults))
}

/// Returns the stalls of a machine that stood still once, for this long.
fn stood(ms: u64) -> StallSum {
    let longest = Duration::from_millis(ms);
    StallSum { count: 1, total: longest, longest }
}

#[test]
fn a_generator_held_up_by_its_quota_blames_no_target() {
    let of = |counts: Counts, elapsed_s| {
        let held_up = Duration::from_millis(700);
        let elapsed = Duration::from_secs(elapsed_s);
        judged(&Outcome { held_up, elapsed, ..outcome(counts, &[]) })
    };
    let late = of(counts(9_000, 9_000), 10);
    assert_eq!(late.exit_code(), 2);
    let reason = "the generator was the bottleneck: the CPU quota of its control group held it up for 700 ms; raise the \
                  quota";
    assert_eq!(late.reasons(), [reason]);
    assert_eq!(of(counts(100, 100), 20).exit_code(), 2, "the run got half of its rate");
    assert_eq!(of(counts(1_900, 1_900), 10), Verdict::Pass);
    let mut refused = counts(100, 100);
    refused.refused.insert(6, Refusals { count: 7, first_message: "too many".into() });
    let refused = of(refused, 10);
    assert_eq!(refused.exit_code(), 1);
    assert_eq!(refused.reasons()[0], "7 of 1,000 requests were refused: exhausted x 7 (too many)");
}

#[test]
fn late_answers_fail_unless_stalls_may_explain_them() {
    for (certain_us, code, reason) in [
        (2_100, 1, "p99.9 was 9 ms (limit 2 ms), of which the target took at least 2.1 ms"),
        (
            1_900,
            2,
            "this machine stood still 0.36 s of 10 s, and without that p99.9 was at least 1.9 ms; try --runs 5 or another machine",
        ),
    ] {
        let verdict = verdict(counts(9_000, certain_us), &[]);
        assert_eq!(verdict.exit_code(), code);
        assert_eq!(verdict.reasons(), [reason]);
    }
}

#[test]
fn no_more_requests_may_be_late_than_the_objective_allows() {
    let late = |number| {
        let mut counts = counts(500, 500);
        counts.response.saturating_record_n(9_000_000, number);
        counts.settling.certain.saturating_record_n(9_000_000, number);
        verdict(counts, &[]).exit_code()
    };
    assert_eq!([late(1), late(2)], [0, 1], "1 late request of 1,001 passes, and 2 of 1,002 fail");
}

#[test]
fn late_sending_is_the_generators_fault() {
    let with_stalls = |total_ms| {
        let mut late = counts(9_000, 100);
        late.slip.saturating_record_n(8_900_000, 1_000);
        judged(&Outcome { stalls: stood(total_ms), ..outcome(late, &[]) })
    };
    let verdict = with_stalls(0);
    assert_eq!(verdict.exit_code(), 2);
    assert!(verdict.reasons()[0].contains("bottleneck: requests left late by 8.9"), "{verdict:?}");
    // If stalls explain most of the lateness, the machine is at fault.
    assert!(with_stalls(8).reasons()[0].starts_with("this machine stood still"));
}

#[test]
fn an_answer_without_a_judged_time_leaves_no_verdict() {
    let mut uncounted = counts(100, 100);
    uncounted.response.saturating_record(100_000);
    let mut unanswered = counts(100, 100);
    unanswered.answered += 1;
    assert_eq!([uncounted, unanswered].map(|counts| verdict(counts, &[]).exit_code()), [2, 2]);
}

#[test]
fn an_open_loop_must_get_its_rate() {
    let code = |elapsed_ms, stalled_ms| {
        let elapsed = Duration::from_millis(elapsed_ms);
        judged(&Outcome { elapsed, stalls: stood(stalled_ms), ..outcome(counts(100, 100), &[]) }).exit_code()
    };
    assert_eq!([code(10_200, 0), code(10_300, 0), code(10_300, 200)], [0, 1, 2]);
}

#[test]
fn a_closed_loop_must_reach_its_rate_unless_it_lacked_cores() {
    let of = |busiest_thread, ids, stalled_ms| {
        let counts = Counts { busiest_thread, ids, ..counts(100, 100) };
        judged(&Outcome { planned: None, stalls: stood(stalled_ms), ..outcome(counts, &[]) }).exit_code()
    };
    assert_eq!([of(0.5, 90_000, 0), of(0.99, 90_000, 0), of(0.99, 100_000, 0)], [1, 2, 0]);
    assert_eq!(of(0.5, 90_000, 1_000), 2, "the stall may explain the time above the limit");
}

#[test]
fn a_broken_promise_fails_whatever_the_machine_did() {
    let of = |stood_ms, fault| {
        judged(&Outcome { stalls: stood(stood_ms), ..outcome(counts(9_000, 50), &[fault]) }).exit_code()
    };
    assert_eq!(of(5_000, Fault::Violation(Violation::Duplicate { id: 5 })), 1);
    // If the machine stood still for 5 s, the target's idle timeout may have closed the connection.
    let closed = || Fault::Closed { unanswered: 3, reason: None };
    assert_eq!([of(5_000, closed()), of(900, closed())], [2, 1]);
    for (turn_ms, code) in [(5_000, 2), (900, 1)] {
        let longest_turn = Duration::from_millis(turn_ms);
        let verdict = verdict(Counts { longest_turn, ..counts(50, 50) }, &[closed()]);
        assert_eq!(verdict.exit_code(), code, "{turn_ms} ms");
    }
}

#[test]
fn requests_sent_in_a_late_bunch_blame_the_generator() {
    let many = [Fault::TooManyInFlight];
    let behind =
        |late_ms| Counts { unanswered: 9, late_at_fault: Duration::from_millis(late_ms), ..counts(100, 100) };
    assert_eq!(verdict(behind(0), &many).exit_code(), 1);
    assert_eq!(verdict(behind(500), &many).exit_code(), 2, "the generator is at fault");
    assert_eq!(verdict(behind(500), &[]).exit_code(), 1, "the target is at fault");
    let mut refused = Counts { unanswered: 500, ..behind(500) };
    refused.refused.insert(6, Refusals { count: 1, first_message: "too many".into() });
    let budget = Objectives { errors: 0.01, ..objectives() };
    assert_eq!(
        judge(&outcome(refused, &many), &budget).exit_code(),
        2,
        "1 of 1,000 requests is refused, which is allowed"
    );
}
