//! Objectives, and the verdict of a run. In this order:
//!
//! 1. A target that broke a promise fails.
//! 2. A run that did not offer the load asked for, because the generator was the bottleneck, has no verdict.
//! 3. A target that refused, or certainly was too slow, fails.
//! 4. A target that was too slow has no verdict if the generator may have been the cause. Every other run passes.
//!
//! A request counts for the target only until a stall of the machine touches it: see [`crate::machine`]. A bare echo
//! shows the stalls that the watch misses: see [`chance`].
//!
//! Response time counts from the intended instant, so the generator's own delays only make it longer: they
//! cannot hide a miss. A missed objective certainly is the target's fault if the target's part alone misses
//! it ([`Counts::target`]). If not, the generator's part may have been the cause.

mod assessment;
mod chance;
mod words;

use std::time::Duration;

use crate::machine::stalls::StallSum;
use crate::machine::threads::OwnWaits;
use crate::measure::disturbed::Undisturbed;
use crate::measure::{Counts, Fault, TimeHistogram};
use crate::promise::Promise;
use crate::units::{count, counted, ms, rate};
use crate::value::Rate;
pub(crate) use assessment::Assessment;
use assessment::is_overloaded;
pub(crate) use chance::Bunches;
pub(crate) use words::last_line;
use words::{
    describe, doubted_latency, error_figure, missed_latency, refusals, taken_cores, too_few_clean,
    warm_up_refusals,
};

const BOTTLENECK: &str = "the generator was the bottleneck";

/// A generator that stood still for longer did not offer the load. Far above the waits on a busy machine, far
/// below an outage.
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(100);

/// No target has a shorter idle timeout: one that closes although the generator never stood still for this
/// long has another reason.
const SHORTEST_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// A generator that is later than this with more than one request in a hundred did not offer the load. Most
/// objectives do not allow a delay of 10 ms, so there the delay itself prevents a pass. This limit matters only for the few
/// that do.
pub(crate) const MAX_P99_SLIP: Duration = Duration::from_millis(10);

/// The share of requests behind [`MAX_P99_SLIP`].
const MAX_LATE_SHARE: f64 = 0.01;

/// A closed loop is as fast as its own threads if one of them uses a core for more of the time than this: the target
/// may be able to do more. So if a thread used a core, or waited for one, for so long, the target is not blamed for
/// a missed rate.
pub(crate) const MAX_THREAD_SHARE: f64 = 0.95;

/// The share of a core from which a thread of the target is busy, and can do no more.
const BUSY_SHARE: f64 = 0.9;

/// The share of new connections that must be opened. With fewer, the load was not the requested one.
const MIN_OPENED_SHARE: f64 = 0.95;

/// A rate this close to all that the source can hand out is the layout's limit.
const AT_FULL_RATE: f64 = 0.98;

/// A closed loop that a quota holds back for more of the time than this is as fast as the quota allows.
pub(crate) const MAX_THROTTLED_SHARE: f64 = 0.05;

/// A response time, and the share of all requests that must keep to it.
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
    /// The share of requests that may be refused, from 0 to 1.
    pub(crate) errors: f64,
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
    /// The times without the stalls of the machine.
    pub(crate) undisturbed: &'a Undisturbed,
    /// Those of a bare echo under the same load, if it was run.
    pub(crate) echo: Option<&'a Undisturbed>,
    pub(crate) stalls: StallSum,
    /// The generator's waits for a core that were not the machine's fault.
    pub(crate) own_waits: OwnWaits,
    /// False if the target may use this machine's cores unseen.
    pub(crate) is_owner_known: bool,
    /// The largest share of a core that one thread of the target used, if it is on this machine.
    pub(crate) target_busiest: Option<f64>,
    /// The highest rate of all sources together, in IDs per second.
    pub(crate) per_second: Option<u64>,
    /// True if a closed loop is faster with fewer generator threads.
    pub(crate) has_too_many_threads: bool,
    /// The number of runs of the same length, one after the other, that count as one.
    pub(crate) rounds: u32,
    /// True if the run cannot be prolonged: one round has to do.
    pub(crate) is_single: bool,
    /// The length of the measurement.
    pub(crate) elapsed: Duration,
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
    missed.extend(errors(evidence, objectives));
    let too_few = objectives.rate.and_then(|rate| missed_rate(evidence, rate)).filter(|_| missed.is_empty());
    let starved = too_few.as_ref().and_then(|_| starved(evidence));
    missed.extend(too_few);
    let late = stood_or_late(evidence);
    let (by_target, by_itself) =
        if takes_cores(evidence, MAX_LATE_SHARE) { (late, None) } else { (None, late) };
    missed.extend(
        by_target.map(|reason| taken_cores(evidence, &format!("the generator got no core: {reason}"))),
    );
    let mut not_offered = not_offered(evidence, by_itself);
    not_offered.extend(starved.filter(|_| not_offered.is_empty()));
    if !not_offered.is_empty() {
        return Verdict::Unknown(not_offered);
    }
    let mut doubtful = Vec::new();
    for latency in &objectives.latencies {
        match Assessment::of(latency, evidence) {
            Assessment::Met
            | Assessment::MetWithoutStalls
            | Assessment::MetAsByEcho
            | Assessment::MetByTarget => {}
            Assessment::Missed => missed.push(missed_latency(evidence, latency)),
            Assessment::CoresTaken => missed.push(taken_cores(evidence, &missed_latency(evidence, latency))),
            Assessment::Doubtful => doubtful.push(doubted_latency(evidence, latency)),
            Assessment::TooFewClean => doubtful.push(too_few_clean(evidence, latency)),
        }
    }
    match (missed.is_empty(), doubtful.is_empty()) {
        (false, _) => Verdict::Fail(missed),
        (true, false) => Verdict::Unknown(doubtful),
        (true, true) => Verdict::Pass,
    }
}

/// Returns the reasons why more requests failed than may.
fn errors(evidence: &Evidence<'_>, objectives: &Objectives) -> Vec<String> {
    let counts = evidence.counts;
    if counts.error_share() <= objectives.errors {
        return Vec::new();
    }
    // What is still open when the user ends a run was not refused.
    let unanswered = (counts.unanswered > 0 && !evidence.interrupted)
        .then(|| format!("no answer to {}", counted(counts.unanswered, "request")));
    let mut reasons: Vec<_> =
        refusals(counts).into_iter().chain(warm_up_refusals(counts)).chain(unanswered).collect();
    if let (Some(last), true) = (reasons.last_mut(), objectives.errors > 0.0) {
        last.push_str(&format!("; {}", error_figure(counts, objectives)));
    }
    reasons
}

impl Evidence<'_> {
    /// Returns true if a longer run would not change what is found about response times.
    pub(crate) fn is_sure(&self, objectives: &Objectives) -> bool {
        let found = objectives.latencies.iter().map(|latency| (Assessment::of(latency, self), latency));
        let found: Vec<_> = found.collect();
        let is_missed = |found| matches!(found, Assessment::Missed | Assessment::CoresTaken);
        // A longer run does not make up for a load that was not offered.
        let is_lost = stood_or_late(self).is_some() || is_overloaded(self.counts);
        is_lost
            || found.iter().any(|&(found, _)| is_missed(found))
            || found.iter().all(|&(found, latency)| found.is_sure(latency, self))
    }

    /// Returns true if the target may be able to do more than a closed loop got from it: no thread of it was busy,
    /// and its source had more IDs. For a target on another machine, only a busy generator shows that.
    pub(crate) fn is_lower_bound(&self) -> bool {
        let is_busy = self.target_busiest.is_some_and(|share| share >= BUSY_SHARE);
        let at_full_rate =
            self.per_second.is_some_and(|full_rate| self.ids_per_s >= full_rate as f64 * AT_FULL_RATE);
        let has_generator_to_spare = self.counts.busiest_thread <= MAX_THREAD_SHARE;
        let is_elsewhere = self.target_busiest.is_none();
        let is_other_limit = is_busy || at_full_rate || (is_elsewhere && has_generator_to_spare);
        !self.open_loop && (self.has_too_many_threads || !is_other_limit)
    }
}

/// Returns true if the generator waited longer than this share of the time for cores that the target had, and less
/// for its own.
fn takes_cores(evidence: &Evidence<'_>, share: f64) -> bool {
    let OwnWaits { by_target, by_generator } = evidence.own_waits;
    by_target.total > evidence.elapsed.mul_f64(share) && by_target.total > by_generator.total
}

/// Returns true if a generator that stood still may have caused the fault: an idle target may close by its
/// idle timeout.
fn may_be_our_fault(fault: &Fault, counts: &Counts) -> bool {
    match fault {
        Fault::TooManyInFlight { .. } | Fault::FullSocket => true,
        Fault::NotOpened { is_ours, .. } => *is_ours || stood_still(counts) > SHORTEST_IDLE_TIMEOUT,
        Fault::Closed { .. } => stood_still(counts) > SHORTEST_IDLE_TIMEOUT,
        _ => false,
    }
}

/// Returns the longest time for which the generator did nothing: a fault may come before a pause was noted.
fn stood_still(counts: &Counts) -> Duration {
    counts.longest_pause.max(counts.late_at_fault).max(Duration::from_nanos(counts.slip.max()))
}

/// Returns the reasons why the load was not the one that was asked for.
fn not_offered(evidence: &Evidence<'_>, late: Option<String>) -> Vec<String> {
    let mut reasons = Vec::new();
    if evidence.interrupted {
        reasons.push("the run was interrupted".to_owned());
    }
    if evidence.too_scattered {
        reasons.push("the IDs are too scattered to check that each is distinct".to_owned());
    }
    let found = late.into_iter().chain(bottlenecks(evidence).into_iter().flatten());
    reasons.extend(found.map(|reason| format!("{BOTTLENECK}: {reason}")));
    if evidence.counts.requests == 0 && reasons.is_empty() && evidence.faults.is_empty() {
        reasons.push("no request was due in the measurement: use a longer one or a higher rate".to_owned());
    }
    reasons
}

/// Returns the reason if the generator stood still or was late, other than in stalls of the machine. Requests that
/// were due in a stall left after it, so the target had the whole load.
fn stood_or_late(evidence: &Evidence<'_>) -> Option<String> {
    let times = evidence.undisturbed;
    let pause = times.longest_pause.max(Duration::from_nanos(times.slip.max()));
    let p99_slip = times.slip.at(0.99);
    let stood =
        (pause > MAX_PAUSE).then(|| format!("it stood still for {} (at most {MAX_PAUSE:?})", ms(pause)));
    stood.or_else(|| {
        (p99_slip > MAX_P99_SLIP).then(|| {
            format!("one request in 100 left late by {} or more (at most {MAX_P99_SLIP:?})", ms(p99_slip))
        })
    })
}

fn bottlenecks(evidence: &Evidence<'_>) -> [Option<String>; 4] {
    let (counts, closed_loop) = (evidence.counts, !evidence.open_loop);
    let gave_up = evidence.faults.iter().any(|fault| may_be_our_fault(fault, counts));
    let not_opened = evidence.faults.iter().find_map(|fault| match fault {
        Fault::NotOpened { reason, is_ours: true } => Some(reason),
        _ => None,
    });
    let (due, opened) = (counts.churn.due, counts.churn.times.len());
    let behind = counts.late_at_fault;
    [
        not_opened.map(|reason| format!("it could open no more connections: {reason}")),
        ((opened as f64) < due as f64 * MIN_OPENED_SHARE - 1.0)
            .then(|| format!("it opened {} of {} that were due", count(opened), counted(due, "connection"))),
        (gave_up && behind > MAX_P99_SLIP).then(|| {
            format!("it was {} behind its schedule (at most {MAX_P99_SLIP:?}) when it gave up", ms(behind))
        }),
        (closed_loop && counts.throttled_share > MAX_THROTTLED_SHARE).then(|| {
            format!("a processor quota held it back for {:.0} % of the time", counts.throttled_share * 100.0)
        }),
    ]
}

/// Returns the reason why a closed loop may have been too slow for want of a core.
fn starved(evidence: &Evidence<'_>) -> Option<String> {
    let counts = evidence.counts;
    if evidence.has_too_many_threads {
        return Some(format!("{BOTTLENECK}: fewer threads than its --threads are faster"));
    }
    let [wanted, had] = [counts.hungriest_thread, counts.busiest_thread].map(|share| share * 100.0);
    (counts.hungriest_thread > MAX_THREAD_SHARE).then(|| {
        format!("{BOTTLENECK}: a thread of it needed a core for {wanted:.0} % of the time and had one for {had:.0} %")
    })
}

/// Returns a line if a closed loop missed the rate. An open loop offers the rate itself.
fn missed_rate(evidence: &Evidence<'_>, wanted: Rate) -> Option<String> {
    let missed = !evidence.open_loop && evidence.ids_per_s < wanted.per_s();
    missed.then(|| format!("{} IDs/s (objective {})", rate(evidence.ids_per_s), rate(wanted.per_s())))
}

fn is_late(times: &TimeHistogram, latency: &Latency) -> bool {
    times.at(latency.quantile) > latency.limit
}

#[cfg(test)]
mod tests;
