//! Describes verdicts in words.

use super::{Latency, MIN_RATE_SHARE, Objectives};
use crate::load::{ANSWER_TIMEOUT, MAX_IN_FLIGHT, RECOVERY_TIMEOUT};
use crate::measure::{Counts, Fault, RefusalsByCode, count_of};
use crate::outcome::Outcome;
use crate::promise::Promise;
use crate::target::code_name;
use crate::units::{count, counted, duration, grouped, ids_per_s, percent, stood_still};

/// Returns a reason that blames the generator.
pub(super) fn by_generator(reason: &str) -> String {
    format!("the generator was the bottleneck: {reason}")
}

/// If more requests failed than the objective allows, returns the reasons.
pub(super) fn errors(outcome: &Outcome, objectives: &Objectives) -> Vec<String> {
    let counts = &outcome.counts;
    // If the user or a fault ended the run early, requests without an answer are no errors.
    let unanswered = if outcome.is_cut_short() { 0 } else { counts.unanswered };
    let share = counts.error_share(unanswered);
    if share <= objectives.errors {
        return Vec::new();
    }
    let mut reasons = Vec::new();
    let refused = count_of(&counts.refused);
    if refused > 0 {
        let refused = count(refused);
        let all = counted(counts.requests, "request");
        reasons.push(format!("{refused} of {all} were refused: {}", codes(&counts.refused)));
    }
    // The warm-up has the same rate: a target that refuses requests in the warm-up does not keep
    // the rate.
    let in_warm_up = count_of(&counts.warm_up_refused);
    if in_warm_up > 0 {
        let requests = counted(in_warm_up, "request");
        reasons.push(format!("{requests} of the warm-up were refused: {}", codes(&counts.warm_up_refused)));
    }
    if unanswered > 0 {
        reasons.push(format!("no answer to {}", counted(unanswered, "request")));
    }
    if let (Some(last), true) = (reasons.last_mut(), objectives.errors > 0.0) {
        let [found, limit] = [share, objectives.errors].map(|share| grouped(share * 100.0));
        last.push_str(&format!("; {found} % errors (limit {limit} %)"));
    }
    reasons
}

fn codes(refused: &RefusalsByCode) -> String {
    let codes = refused.iter().map(|(&code, refusals)| {
        format!("{} x {} ({})", code_name(code), count(refusals.count), refusals.first_message)
    });
    codes.collect::<Vec<_>>().join(", ")
}

/// Describes an objective that the target missed.
pub(super) fn missed(counts: &Counts, latency: &Latency) -> String {
    let name = latency.name();
    let limit = duration(latency.limit);
    let found = duration(counts.response.at(latency.quantile));
    let certain = duration(counts.settling.certain.at(latency.quantile));
    format!("{name} was {found} (limit {limit}), of which the target took at least {certain}")
}

/// Describes an objective that is undecided: the machine or the generator may have caused the miss.
pub(super) fn open(outcome: &Outcome, latency: &Latency) -> String {
    let counts = &outcome.counts;
    let slip = counts.slip.at(latency.quantile);
    let stood = stood_still(outcome.stalls.total, outcome.elapsed);
    // If stalls explain half of the lateness, the machine is at fault. Half is enough, because the
    // threads that find stalls do not wake at the same instants as the generator's threads. If
    // there was no stall, only the generator's lateness can excuse a late answer.
    let by_lateness = slip > latency.limit / 2 && outcome.stalls.total < slip / 2;
    if by_lateness || outcome.stalls.total.is_zero() {
        let slip = duration(slip);
        return by_generator(&format!(
            "requests left late by {slip} at {}; try --threads or another machine",
            latency.name()
        ));
    }
    let certain = duration(counts.settling.certain.at(latency.quantile));
    let name = latency.name();
    format!(
        "this machine stood still {stood}, and without that {name} was at least {certain}; try --runs 5 or another machine"
    )
}

/// Describes a quota that held up the load test.
pub(super) fn held_up(outcome: &Outcome) -> String {
    let held_up = duration(outcome.held_up);
    by_generator(&format!("the CPU quota of its control group held it up for {held_up}; raise the quota"))
}

/// Describes a rate that the target missed.
pub(super) fn missed_rate(outcome: &Outcome, objectives: &Objectives) -> String {
    match (outcome.planned, objectives.rate) {
        (None, Some(wanted)) => {
            format!("{} (objective {})", ids_per_s(outcome.ids_per_s()), grouped(wanted.per_s()))
        }
        _ => {
            let planned_s = outcome.planned.unwrap_or_default().as_secs_f64();
            let share = percent(planned_s / outcome.elapsed.as_secs_f64().max(1e-9));
            let least = percent(MIN_RATE_SHARE);
            format!(
                "the target got {share} of the requested rate in time (limit {least}), and the rest after the end"
            )
        }
    }
}

/// Describes a rate that is undecided: the machine or the generator may have caused the miss.
pub(super) fn open_rate(outcome: &Outcome, objectives: &Objectives) -> String {
    let missed = missed_rate(outcome, objectives);
    let busy = outcome.counts.busiest_thread;
    if busy > super::MAX_THREAD_SHARE {
        return by_generator(&format!(
            "{missed}; one of its threads needed a core for {} of the time",
            percent(busy)
        ));
    }
    let stood = stood_still(outcome.stalls.total, outcome.elapsed);
    format!("{missed}; this machine stood still {stood}, or the generator sent late")
}

pub(crate) fn describe(fault: &Fault, promise: &Promise) -> String {
    match fault {
        Fault::Violation(violation) => violation.describe(promise),
        Fault::Closed { unanswered, reason } => {
            let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            let unanswered = counted(*unanswered as u64, "request");
            format!("the target closed a connection{reason} with {unanswered} unanswered")
        }
        Fault::Unreadable(reason) => format!("the target broke the protocol: {reason}"),
        Fault::Silent { unanswered } => {
            let unanswered = counted(*unanswered as u64, "request");
            format!(
                "the target stalled: no answer within {ANSWER_TIMEOUT:?}, {unanswered} waiting on one connection"
            )
        }
        Fault::TooManyInFlight => format!(
            "the target fell behind: {} in flight on one connection, the limit",
            counted(MAX_IN_FLIGHT as u64, "request")
        ),
        Fault::NotRecovered => format!("the target did not recover within {RECOVERY_TIMEOUT:?}"),
        Fault::NotBegun { reason, is_ours: true } => reason.clone(),
        Fault::NotBegun { reason, is_ours: false } => format!("the target could not be reached: {reason}"),
    }
}
