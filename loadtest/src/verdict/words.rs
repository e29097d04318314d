//! Verdicts in words.

use super::{Assessment, BOTTLENECK, Evidence, Latency, Objectives, Verdict};
use crate::machine::stalls::StallSum;
use crate::measure::{Counts, Fault, RefusalsByCode, TimeHistogram};
use crate::promise::Promise;
use crate::target::code_name;
use crate::units::{count, counted, grouped, ms, rate};
use crate::value::Time;

pub(super) fn refusals(counts: &Counts) -> Option<String> {
    let all = counted(counts.requests, "request");
    (counts.refused_count() > 0).then(|| {
        format!("{} of {all} were refused: {}", count(counts.refused_count()), codes(&counts.refused))
    })
}

/// Describes refusals in the warm-up: it has the same rate as the measurement, and a target that cannot keep
/// that rate there may only seem to keep it later.
pub(super) fn warm_up_refusals(counts: &Counts) -> Option<String> {
    let refused = counts.warm_up_refused.values().map(|refusals| refusals.count).sum();
    let requests = counted(refused, "request");
    (refused > 0).then(|| format!("{requests} of the warm-up refused: {}", codes(&counts.warm_up_refused)))
}

/// Returns the share of requests that failed, with the objective.
pub(super) fn error_figure(counts: &Counts, objectives: &Objectives) -> String {
    let [found, limit] = [counts.error_share(), objectives.errors].map(|share| grouped(share * 100.0));
    format!("{found} % errors (at most {limit} %)")
}

fn codes(refused: &RefusalsByCode) -> String {
    let codes = refused.iter().map(|(&code, refusals)| {
        format!("{} x {} ({})", code_name(code), count(refusals.count), refusals.first_message)
    });
    codes.collect::<Vec<_>>().join(", ")
}

/// Describes a miss by a target that may have been in time, and a generator that was not.
pub(super) fn doubted_latency(evidence: &Evidence<'_>, latency: &Latency) -> String {
    let at = |times: &TimeHistogram| ms(times.at(latency.quantile));
    let (slip, least) = (at(&evidence.undisturbed.slip), at(&evidence.undisturbed.target));
    let missed = missed_latency(evidence, latency);
    format!(
        "{BOTTLENECK}: {missed}, but requests left late by {slip}, and without the generator's own delays it was {least}"
    )
}

/// Describes a run of which hardly anything was outside the stalls of the machine.
pub(super) fn too_few_clean(evidence: &Evidence<'_>, latency: &Latency) -> String {
    let (clean, stalls) = (evidence.undisturbed.clean_requests, evidence.stalls);
    format!(
        "{BOTTLENECK}: the machine stalled for {}, and {} requests between its stalls are too few for {}",
        ms(stalls.total),
        count(clean as u64),
        latency.name()
    )
}

/// Describes a miss by a target that left the generator no cores.
pub(super) fn taken_cores(evidence: &Evidence<'_>, missed: &str) -> String {
    let waited = ms(evidence.own_waits.by_target.total);
    format!("{missed}: the target had the cores while the generator waited for them, {waited} in all")
}

pub(super) fn missed_latency(evidence: &Evidence<'_>, latency: &Latency) -> String {
    let found = ms(evidence.undisturbed.response.at(latency.quantile));
    format!("response time {} was {found} (objective {})", latency.name(), ms(latency.limit))
}

/// Returns one line about a fault.
pub(crate) fn describe(fault: &Fault, promise: &Promise) -> String {
    match fault {
        Fault::Violation(violation) => violation.describe(promise),
        Fault::Closed { unanswered, reason } => {
            let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            let unanswered = counted(*unanswered as u64, "request");
            format!("the target closed a connection{reason}, with {unanswered} on it unanswered")
        }
        Fault::Unreadable(reason) => format!("the target broke the protocol: {reason}"),
        Fault::Silent { waited, unanswered } => {
            let unanswered = counted(*unanswered as u64, "request");
            format!("the target stalled: no answer within {waited:?}, {unanswered} waiting on one connection")
        }
        Fault::TooManyInFlight { bound } => {
            let bound = counted(*bound as u64, "request");
            format!("the target fell behind: {bound} in flight on one connection, which is the limit")
        }
        Fault::NotRecovered { waited } => {
            format!("the target did not recover within {waited:?}")
        }
        Fault::NotOpened { reason, .. } => format!("the target took no new connection: {reason}"),
        Fault::FullSocket => "the target fell behind: a socket took no more requests".to_owned(),
    }
}

/// Returns the last line of a report: pass or fail, with the figures.
pub(crate) fn last_line(verdict: &Verdict, evidence: &Evidence<'_>, objectives: &Objectives) -> String {
    let counts = evidence.counts;
    let reasons = verdict.reasons().join("; ");
    let because = if reasons.is_empty() { "every ID as promised" } else { &reasons };
    if counts.requests == 0 {
        return format!("{}: nothing was measured: {because}", verdict.word());
    }
    let at_least = if evidence.is_lower_bound() { "at least " } else { "" };
    let mut figures = vec![format!("{at_least}{} IDs/s", rate(evidence.ids_per_s))];
    for latency in &objectives.latencies {
        figures.push(figure(evidence, latency));
    }
    if objectives.latencies.is_empty() {
        figures.push(format!("p99.9 {}", ms(counts.response.at(0.999))));
    }
    if objectives.errors > 0.0 && counts.error_share() <= objectives.errors {
        figures.push(error_figure(counts, objectives));
    }
    figures.push(format!("{} of {} answered", count(counts.answered), counted(counts.requests, "request")));
    let kind = if evidence.open_loop { "response time" } else { "closed loop, response time" };
    format!("{}: {kind}: {}: {because}", verdict.word(), figures.join(", "))
}

/// Returns an objective with the value that the verdict is about.
fn figure(evidence: &Evidence<'_>, latency: &Latency) -> String {
    let (name, limit) = (latency.name(), Time(latency.limit));
    let at = |times: &TimeHistogram| ms(times.at(latency.quantile));
    let (all, undisturbed) = (at(&evidence.counts.response), evidence.undisturbed);
    match Assessment::of(latency, evidence) {
        Assessment::MetWithoutStalls => {
            let StallSum { count, total, .. } = evidence.stalls;
            let (found, stalls) = (at(&undisturbed.response), counted(count, "stall"));
            format!(
                "{name} {found} without {stalls} of the machine, {} in all (at most {limit}; with them {all})",
                ms(total)
            )
        }
        Assessment::MetAsByEcho => {
            let found = at(&undisturbed.target);
            format!(
                "{name} {found}, late no more often than a bare echo (at most {limit}; with stalls {all})"
            )
        }
        Assessment::MetByTarget => {
            let found = at(&undisturbed.target);
            format!("{name} {found} without delays by other programs (at most {limit}; with them {all})")
        }
        _ => format!("{name} {all} (at most {limit})"),
    }
}
