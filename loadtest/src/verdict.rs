//! Objectives, and the verdict of a run. In this order:
//!
//! 1. A target that broke a promise fails.
//! 2. A run that did not offer the load asked for, because the generator was the bottleneck, has no verdict.
//! 3. A target that refused, or certainly was too slow, fails.
//! 4. A target that was too slow, unless the generator was, has no verdict. All else passes.
//!
//! Response time counts from the intended instant, so the generator's own delays only make it longer: they
//! cannot hide a miss. A missed objective certainly is the target's fault if the target's part alone misses
//! it ([`Counts::target`]). If not, the generator's part may have been the cause.

use std::time::Duration;

use crate::measure::{Counts, Fault, TimeHistogram};
use crate::promise::Promise;
use crate::target::code_name;
use crate::units::{count, counted, ms, rate};
use crate::value::{Rate, Time};

const BOTTLENECK: &str = "the generator was the bottleneck";

/// A generator that stood still for longer did not offer the load. Far above the waits on a busy machine, far
/// below an outage.
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(100);

/// No target has a shorter idle timeout: one that closes although the generator never stood still for this
/// long has another reason.
const SHORTEST_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// A generator that is later than this with more than one request in a hundred did not offer the load. Few
/// objectives are as wide, so this decides only where an objective would not see the difference.
pub(crate) const MAX_P99_SLIP: Duration = Duration::from_millis(10);

/// A thread of a closed loop that uses a core for more of the time than this measures itself, not the target.
/// The same holds for a missed rate while a thread used a core, or waited for one, for so long.
pub(crate) const MAX_THREAD_SHARE: f64 = 0.95;

/// A closed loop that a quota holds back for more of the time than this is as fast as the quota allows.
pub(crate) const MAX_THROTTLED_SHARE: f64 = 0.05;

/// A response time that most of all requests may not exceed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Latency {
    /// The share of requests, from 0 to 1; 1 is the maximum.
    pub(crate) quantile: f64,
    pub(crate) limit: Duration,
}

/// The objectives of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Objectives {
    /// IDs per second: the rate that an open loop offers, or that a closed loop has to reach.
    pub(crate) rate: Option<Rate>,
    /// Response times.
    pub(crate) latencies: Vec<Latency>,
}

/// The judgement of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every objective is met and every ID is as promised.
    Pass,
    /// The target is at fault, for these reasons.
    Fail(Vec<String>),
    /// The run has no verdict, for these reasons.
    Unknown(Vec<String>),
}

/// The results of a run that the verdict depends on.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) counts: &'a Counts,
    pub(crate) faults: &'a [Fault],
    pub(crate) promise: &'a Promise,
    /// True if requests left on a schedule.
    pub(crate) open_loop: bool,
    /// IDs per second of the measurement.
    pub(crate) ids_per_s: f64,
    /// True if the user ended it early.
    pub(crate) interrupted: bool,
    /// True if the positions of the IDs were too scattered to keep.
    pub(crate) too_scattered: bool,
}

impl Latency {
    /// Returns the name of the quantile on the command line.
    pub(crate) fn name(&self) -> String {
        quantile_name(self.quantile)
    }
}

/// Returns `p99.9`, or `max` for 1.
pub(crate) fn quantile_name(quantile: f64) -> String {
    if quantile >= 1.0 {
        return "max".to_owned();
    }
    // Two decimals are exact for every quantile that an option names.
    let percent = format!("{:.2}", quantile * 100.0);
    format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
}

impl Verdict {
    /// Returns 0 for met, 1 if the target is at fault, 2 without a verdict.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail(_) => 1,
            Self::Unknown(_) => 2,
        }
    }

    /// Returns the word that a report begins with.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::Unknown(_) => "no verdict",
        }
    }

    /// Returns the reasons why it is not a pass.
    pub(crate) fn reasons(&self) -> &[String] {
        match self {
            Self::Pass => &[],
            Self::Fail(reasons) | Self::Unknown(reasons) => reasons,
        }
    }
}

/// Judges a run.
pub(crate) fn judge(evidence: &Evidence<'_>, objectives: &Objectives) -> Verdict {
    let describe = |fault: &Fault| describe(fault, evidence.promise);
    let (broken, slow): (Vec<_>, Vec<_>) =
        evidence.faults.iter().partition(|fault| !may_be_our_fault(fault, evidence.counts));
    if !broken.is_empty() {
        return Verdict::Fail(broken.into_iter().map(describe).collect());
    }
    let mut missed: Vec<String> = slow.into_iter().map(describe).collect();
    missed.extend(refusals(evidence.counts));
    if evidence.counts.unanswered > 0 && !evidence.interrupted {
        missed.push(format!("no answer to {}", counted(evidence.counts.unanswered, "request")));
    }
    let too_few = objectives.rate.and_then(|rate| missed_rate(evidence, rate)).filter(|_| missed.is_empty());
    let starved = too_few.as_ref().and_then(|_| starved(evidence.counts));
    missed.extend(too_few);
    let late = objectives.latencies.iter().filter(|latency| is_late(&evidence.counts.response, latency));
    let (certain, doubtful): (Vec<_>, Vec<_>) =
        late.partition(|latency| is_late(&evidence.counts.target, latency));
    let mut not_offered = not_offered(evidence);
    not_offered.extend(starved.filter(|_| not_offered.is_empty()));
    if !not_offered.is_empty() {
        return Verdict::Unknown(not_offered);
    }
    missed.extend(certain.into_iter().map(|latency| missed_latency(evidence.counts, latency)));
    if !missed.is_empty() {
        return Verdict::Fail(missed);
    }
    if doubtful.is_empty() {
        return Verdict::Pass;
    }
    Verdict::Unknown(doubtful.into_iter().map(|latency| doubted_latency(evidence.counts, latency)).collect())
}

/// Returns true if a generator that stood still may have caused the fault: an idle target may close by its
/// idle timeout.
fn may_be_our_fault(fault: &Fault, counts: &Counts) -> bool {
    match fault {
        Fault::TooManyInFlight { .. } | Fault::FullSocket => true,
        Fault::Closed { .. } => stood_still(counts) > SHORTEST_IDLE_TIMEOUT,
        _ => false,
    }
}

/// Returns the longest time for which the generator did nothing: a fault may come before a pause was noted.
fn stood_still(counts: &Counts) -> Duration {
    counts.longest_pause.max(counts.late_at_fault).max(Duration::from_nanos(counts.slip.max()))
}

/// Returns the reasons why the load was not the one that was asked for.
fn not_offered(evidence: &Evidence<'_>) -> Vec<String> {
    let mut reasons = Vec::new();
    if evidence.interrupted {
        reasons.push("the run was interrupted".to_owned());
    }
    if evidence.too_scattered {
        reasons.push("the IDs are too scattered to check that each is distinct".to_owned());
    }
    let found = bottlenecks(evidence).into_iter().flatten();
    reasons.extend(found.map(|reason| format!("{BOTTLENECK}: {reason}")));
    if evidence.counts.requests == 0 && reasons.is_empty() && evidence.faults.is_empty() {
        reasons.push("no request was due in the measurement: use a longer one or a higher rate".to_owned());
    }
    reasons
}

fn bottlenecks(evidence: &Evidence<'_>) -> [Option<String>; 4] {
    let (counts, closed_loop) = (evidence.counts, !evidence.open_loop);
    let pause = counts.longest_pause.max(Duration::from_nanos(counts.slip.max()));
    let p99_slip = counts.slip.at(0.99);
    let stalled =
        (pause > MAX_PAUSE).then(|| format!("it stood still for {} (at most {MAX_PAUSE:?})", ms(pause)));
    let late = (p99_slip > MAX_P99_SLIP).then(|| {
        format!("one request in 100 left late by {} or more (at most {MAX_P99_SLIP:?})", ms(p99_slip))
    });
    let gave_up = evidence.faults.iter().any(|fault| may_be_our_fault(fault, counts));
    let behind = counts.late_at_fault;
    [
        stalled.or(late),
        (gave_up && behind > MAX_P99_SLIP).then(|| {
            format!("it was {} behind its schedule (at most {MAX_P99_SLIP:?}) when it gave up", ms(behind))
        }),
        (closed_loop && counts.busiest_thread > MAX_THREAD_SHARE).then(|| {
            let percent = counts.busiest_thread * 100.0;
            format!("a thread of it used {percent:.0} % of a core (--threads gives it more)")
        }),
        (closed_loop && counts.throttled_share > MAX_THROTTLED_SHARE).then(|| {
            format!("a processor quota held it back for {:.0} % of the time", counts.throttled_share * 100.0)
        }),
    ]
}

/// Returns the reason why a closed loop may have been too slow for want of a core.
fn starved(counts: &Counts) -> Option<String> {
    let [wanted, had] = [counts.hungriest_thread, counts.busiest_thread].map(|share| share * 100.0);
    (counts.hungriest_thread > MAX_THREAD_SHARE).then(|| {
        format!("{BOTTLENECK}: a thread of it needed a core for {wanted:.0} % of the time and had one for {had:.0} %")
    })
}

fn refusals(counts: &Counts) -> Option<String> {
    let (refused, all) = (counts.refused_count(), counted(counts.requests, "request"));
    let codes = counts.refused.iter().map(|(&code, refusals)| {
        format!("{} x {} ({})", code_name(code), count(refusals.count), refusals.first_message)
    });
    let codes = codes.collect::<Vec<_>>().join(", ");
    (refused > 0).then(|| format!("{} of {all} were refused: {codes}", count(refused)))
}

/// Returns a line if a closed loop missed the rate. An open loop offers the rate itself.
fn missed_rate(evidence: &Evidence<'_>, wanted: Rate) -> Option<String> {
    let missed = !evidence.open_loop && evidence.ids_per_s < wanted.per_s();
    missed.then(|| format!("{} IDs/s (objective {})", rate(evidence.ids_per_s), rate(wanted.per_s())))
}

fn is_late(times: &TimeHistogram, latency: &Latency) -> bool {
    times.at(latency.quantile) > latency.limit
}

/// Describes a miss by a target that may have been in time, and a generator that was not.
fn doubted_latency(counts: &Counts, latency: &Latency) -> String {
    let at = |times: &TimeHistogram| ms(times.at(latency.quantile));
    let (slip, least) = (at(&counts.slip), at(&counts.target));
    let missed = missed_latency(counts, latency);
    format!(
        "{BOTTLENECK}: {missed}, but requests left late by {slip}, and without the generator's own delays it was {least}"
    )
}

fn missed_latency(counts: &Counts, latency: &Latency) -> String {
    let found = ms(counts.response.at(latency.quantile));
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
            format!("the target did not recover within {waited:?} of the announced outage")
        }
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
    let mut figures = vec![format!("{} IDs/s", rate(evidence.ids_per_s))];
    for latency in &objectives.latencies {
        let (found, limit) = (ms(counts.response.at(latency.quantile)), Time(latency.limit));
        figures.push(format!("{} {found} (at most {limit})", latency.name()));
    }
    if objectives.latencies.is_empty() {
        figures.push(format!("p99.9 {}", ms(counts.response.at(0.999))));
    }
    figures.push(format!("{} of {} answered", count(counts.answered), counted(counts.requests, "request")));
    let kind = if evidence.open_loop { "response time" } else { "closed loop, response time" };
    format!("{}: {kind}: {}: {because}", verdict.word(), figures.join(", "))
}

#[cfg(test)]
mod tests;
