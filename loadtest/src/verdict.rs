//! Objectives, and whether a run met them.
//!
//! In this order: a target that broke a promise fails, whatever else happened. A run whose load was not the one asked for,
//! because the generator was the bottleneck, says nothing. A target that refused, or was too slow or too few beyond doubt,
//! fails. A target that was too slow unless the generator was says nothing. All else passes.
//!
//! Response time counts from the intended instant, so the generator's own delays only ever make it longer: an objective that
//! is met is met whatever the slip. One that is missed is missed beyond doubt if the target's part alone misses it
//! ([`Counts::target`]); if not, what the generator added may have been the cause.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::measure::{Counts, Fault};
use crate::promise::Promise;
use crate::target::code_name;
use crate::value::{Rate, Time};

/// A generator that did not run for so long did not offer the load that was asked for. Far above what a busy machine's
/// scheduler takes, far below what an operator would call an outage.
pub const MAX_PAUSE: Duration = Duration::from_millis(100);

/// No target that serves people has a shorter idle timeout: one that closes although the generator never stood still for so
/// long closes for another reason.
const SHORTEST_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// A generator that is later than this with more than one request in a hundred did not offer the load that was asked for:
/// hardly any objective of response time is as wide, so it is felt only where an objective could not see the difference.
pub const MAX_P99_SLIP: Duration = Duration::from_millis(10);

/// A thread of a closed loop that uses a core for more of the time than this asks as fast as it can, not as fast as the target
/// can. Nor can a target be blamed for a rate that was missed by one that used a core, or waited for one, for so long.
pub const MAX_THREAD_SHARE: f64 = 0.95;

/// A closed loop that a quota holds back for more of the time than this is as fast as the quota allows.
pub const MAX_THROTTLED_SHARE: f64 = 0.05;

/// A response time that most of all requests may not exceed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// The share of requests, from 0 to 1; 1 is the maximum.
    pub quantile: f64,
    /// What it may be at most.
    pub limit: Duration,
}

/// What a run is held to.
#[derive(Debug, Clone, PartialEq)]
pub struct Objectives {
    /// IDs per second: what an open loop offers, or what a closed loop has to reach.
    pub rate: Option<Rate>,
    /// Response times.
    pub latencies: Vec<Latency>,
}

/// What a run says about its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every objective is met and every ID is as promised.
    Pass,
    /// The target is at fault, for these reasons.
    Fail(Vec<String>),
    /// The run cannot tell, for these reasons.
    Unknown(Vec<String>),
}

/// What a run came to, as far as the verdict needs it.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// What was counted.
    pub counts: &'a Counts,
    /// What the target did wrong.
    pub faults: &'a [Fault],
    /// What its IDs were held to.
    pub promise: &'a Promise,
    /// Whether requests left on a schedule.
    pub open_loop: bool,
    /// IDs per second of the measurement.
    pub ids_per_s: f64,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// Whether more places were scattered than can be kept.
    pub too_scattered: bool,
}

impl Latency {
    /// How the command line calls it.
    #[must_use]
    pub fn name(&self) -> String {
        quantile_name(self.quantile)
    }
}

/// `p99.9`, or `max` for 1.
#[must_use]
pub fn quantile_name(quantile: f64) -> String {
    if quantile >= 1.0 {
        return "max".to_owned();
    }
    // Two decimals are exact for every quantile that an option names.
    let percent = format!("{:.2}", quantile * 100.0);
    format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
}

impl Verdict {
    /// 0 met, 1 the target is at fault, 2 the run cannot tell.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail(_) => 1,
            Self::Unknown(_) => 2,
        }
    }

    /// The word that a report begins with.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::Unknown(_) => "no verdict",
        }
    }

    /// Why it is not a pass.
    #[must_use]
    pub fn reasons(&self) -> &[String] {
        match self {
            Self::Pass => &[],
            Self::Fail(reasons) | Self::Unknown(reasons) => reasons,
        }
    }
}

/// Judges a run.
#[must_use]
pub fn judge(evidence: &Evidence<'_>, objectives: &Objectives) -> Verdict {
    let describe = |fault: &Fault| describe(fault, evidence.promise);
    let (broken, slow): (Vec<_>, Vec<_>) =
        evidence.faults.iter().partition(|fault| !may_be_our_fault(fault, evidence.counts));
    if !broken.is_empty() {
        return Verdict::Fail(broken.into_iter().map(describe).collect());
    }
    let mut missed: Vec<String> = slow.into_iter().map(describe).collect();
    missed.extend(refusals(evidence.counts));
    if evidence.counts.unanswered > 0 && !evidence.interrupted {
        missed.push(format!("{} requests were not answered", evidence.counts.unanswered));
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

/// Whether a generator that stood still could have brought it about. A target that nobody asks anything for long may close by its
/// idle timeout.
fn may_be_our_fault(fault: &Fault, counts: &Counts) -> bool {
    match fault {
        Fault::TooManyInFlight { .. } | Fault::FullSocket => true,
        Fault::Closed { .. } => stood_still(counts) > SHORTEST_IDLE_TIMEOUT,
        _ => false,
    }
}

/// For how long the generator did nothing, as far as it shows: a fault may come before the pause was noted.
fn stood_still(counts: &Counts) -> Duration {
    counts.longest_pause.max(counts.late_at_fault).max(Duration::from_nanos(counts.slip.max()))
}

/// Why the run was not the one that was asked for, if so.
fn not_offered(evidence: &Evidence<'_>) -> Vec<String> {
    let counts = evidence.counts;
    let mut reasons = Vec::new();
    if evidence.interrupted {
        reasons.push("the run was interrupted".to_owned());
    }
    if evidence.too_scattered {
        reasons.push("the IDs are too scattered to tell whether each is distinct".to_owned());
    }
    let pause = counts.longest_pause.max(Duration::from_nanos(counts.slip.max()));
    let p99_slip = Duration::from_nanos(counts.slip.value_at_quantile(0.99));
    if pause > MAX_PAUSE {
        reasons.push(format!(
            "the generator was the bottleneck: it stood still for {} (at most {MAX_PAUSE:?})",
            Figure(pause)
        ));
    } else if p99_slip > MAX_P99_SLIP {
        reasons.push(format!(
            "the generator was the bottleneck: one request in 100 left late by {} or more (at most {MAX_P99_SLIP:?})",
            Figure(p99_slip)
        ));
    }
    if evidence.faults.iter().any(|fault| may_be_our_fault(fault, counts))
        && counts.late_at_fault > MAX_P99_SLIP
    {
        reasons.push(format!(
            "the generator was the bottleneck: it was {} behind its schedule (at most {MAX_P99_SLIP:?}) when it gave up",
            Figure(counts.late_at_fault)
        ));
    }
    if !evidence.open_loop && counts.busiest_thread > MAX_THREAD_SHARE {
        reasons.push(format!(
            "the generator was the bottleneck: a thread of it used {:.0} % of a core (--threads gives it more)",
            counts.busiest_thread * 100.0
        ));
    }
    if !evidence.open_loop && counts.throttled_share > MAX_THROTTLED_SHARE {
        reasons.push(format!(
            "the generator was the bottleneck: a processor quota held it back for {:.0} % of the time",
            counts.throttled_share * 100.0
        ));
    }
    if counts.requests == 0 && reasons.is_empty() && evidence.faults.is_empty() {
        reasons
            .push("no request fell into the measurement: ask for a longer one or a higher rate".to_owned());
    }
    reasons
}

/// Why a closed loop that was too slow may have been so through its own lack of a core.
fn starved(counts: &Counts) -> Option<String> {
    (counts.hungriest_thread > MAX_THREAD_SHARE).then(|| {
        format!(
            "the generator was the bottleneck: a thread of it wanted a core for {:.0} % of the time and had one for {:.0} %",
            counts.hungriest_thread * 100.0,
            counts.busiest_thread * 100.0
        )
    })
}

fn refusals(counts: &Counts) -> Option<String> {
    let codes = counts.refused.iter();
    let codes: Vec<String> = codes
        .map(|(&code, refusals)| {
            format!("{} x {} ({})", code_name(code), refusals.count, refusals.first_message)
        })
        .collect();
    let all = counts.requests;
    (!codes.is_empty())
        .then(|| format!("{} of {all} requests were refused: {}", counts.refused_count(), codes.join(", ")))
}

/// An open loop offers the rate itself; what it can miss is the time in which the answers come.
fn missed_rate(evidence: &Evidence<'_>, rate: Rate) -> Option<String> {
    let missed = !evidence.open_loop && evidence.ids_per_s < rate.per_s();
    missed.then(|| format!("{:.0} IDs/s (objective {:.0})", evidence.ids_per_s, rate.per_s()))
}

fn is_late(times: &Histogram<u64>, latency: &Latency) -> bool {
    Duration::from_nanos(times.value_at_quantile(latency.quantile)) > latency.limit
}

/// The target may have been in time, and the generator was not.
fn doubted_latency(counts: &Counts, latency: &Latency) -> String {
    let at = |times: &Histogram<u64>| Figure(Duration::from_nanos(times.value_at_quantile(latency.quantile)));
    format!(
        "the generator was the bottleneck: response time {} was {} (objective {}), but requests left late by {}, and without \
         the generator's own delays it was {}",
        latency.name(),
        at(&counts.response),
        Figure(latency.limit),
        at(&counts.slip),
        at(&counts.target)
    )
}

fn missed_latency(counts: &Counts, latency: &Latency) -> String {
    let found = Duration::from_nanos(counts.response.value_at_quantile(latency.quantile));
    format!("response time {} was {} (objective {})", latency.name(), Figure(found), Figure(latency.limit))
}

/// One line for a person.
#[must_use]
pub fn describe(fault: &Fault, promise: &Promise) -> String {
    match fault {
        Fault::Violation(violation) => violation.describe(promise),
        Fault::Closed { unanswered, reason } => {
            let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("the target closed a connection{reason}, with {unanswered} requests on it unanswered")
        }
        Fault::Unreadable(what) => format!("the target broke the protocol: {what}"),
        Fault::Silent { waited, unanswered } => {
            format!(
                "the target stalled: no answer within {waited:?}, {unanswered} requests waiting on one connection"
            )
        }
        Fault::TooManyInFlight { bound } => {
            format!(
                "the target fell behind: {bound} requests in flight on one connection, which is the bound"
            )
        }
        Fault::NotRecovered { waited } => {
            format!("the target did not recover within {waited:?} of the announced outage")
        }
        Fault::FullSocket => "the target fell behind: a socket took no more requests".to_owned(),
    }
}

/// A duration in ms, to the microsecond.
pub struct Figure(pub Duration);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.0.as_secs_f64() * 1e3)
    }
}

/// The last line: pass or fail, with the figures.
#[must_use]
pub fn last_line(verdict: &Verdict, evidence: &Evidence<'_>, objectives: &Objectives) -> String {
    let counts = evidence.counts;
    let mut figures = vec![format!("{:.0} IDs/s", evidence.ids_per_s)];
    let response = |quantile| Duration::from_nanos(counts.response.value_at_quantile(quantile));
    for latency in &objectives.latencies {
        let (name, limit) = (latency.name(), Time(latency.limit));
        figures.push(format!("{name} {} (at most {limit})", Figure(response(latency.quantile))));
    }
    if objectives.latencies.is_empty() {
        figures.push(format!("p99.9 {}", Figure(response(0.999))));
    }
    figures.push(format!("{} of {} requests answered", counts.answered, counts.requests));
    let kind = if evidence.open_loop { "response time" } else { "closed loop, response time" };
    let reasons = verdict.reasons().join("; ");
    let because = if reasons.is_empty() { "every ID as promised".to_owned() } else { reasons };
    format!("{}: {kind}: {}: {because}", verdict.word(), figures.join(", "))
}

#[cfg(test)]
mod tests;
