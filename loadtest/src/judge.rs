//! Decides the verdict: pass, fail or no verdict.
//!
//! 1. As measured, enough requests were in time: **pass**. An objective of p99.9 allows 1 in 1,000
//!    to be late.
//! 2. Too many requests were late, even without the time for which the machine stood still:
//!    **fail**. A request is certainly late if the target's part of its response time, minus an
//!    excuse, is above the limit. The excuse is the sum of the stalls that touch the request, or
//!    whose queue does, plus a quarter of this sum for the queue. If the generator's lateness is
//!    longer than the sum, a quarter of the lateness is added instead. A late generator sends all
//!    overdue requests at once, and these requests queue, too. Time in which the target ran counts
//!    neither as a stall nor as lateness.
//! 3. Otherwise the machine decides the result: **no verdict**.
//!
//! If a CPU quota held up the load test, late answers are not the target's fault.
//!
//! A pass rests on measured times alone. Too many refusals or a broken promise fail the run,
//! whatever the machine did. A closed connection fails the run, too, unless the machine or the
//! generator stood still for over a second.
//!
//! [`reasons`] has the verdicts in words.

pub(crate) mod reasons;

use std::time::Duration;

use crate::machine::stalls::QUEUE_PART;
use crate::measure::{Counts, Fault};
use crate::outcome::Outcome;
use crate::value::Rate;

/// No target has a shorter idle timeout. If neither the machine nor the generator stood still for
/// this long, the target closed a connection for another reason.
const SHORTEST_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The generator may be further behind its schedule than this when a fault ends the run. Then it
/// may have sent too many requests at once.
const MAX_BEHIND: Duration = Duration::from_millis(10);

/// A closed loop is limited by its own threads if one of them needed a core for more than this
/// share of the time.
pub(crate) const MAX_THREAD_SHARE: f64 = 0.95;

/// The share of its planned rate that an open loop must get.
const MIN_RATE_SHARE: f64 = 0.98;

/// If a CPU quota held up the load test for longer than this, the quota may be the reason for every
/// late answer.
const MAX_HELD_UP: Duration = Duration::from_millis(1);

/// The last answers of a short run may arrive this long after the run's end. So one late answer
/// does not lower the rate.
const TAIL_S: f64 = 0.1;

/// A response time, and the share of requests that must not take longer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Latency {
    /// The share of requests, from 0 to 1; 1 is the maximum.
    pub(crate) quantile: f64,
    pub(crate) limit: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Objectives {
    /// IDs per second: the rate that an open loop offers, or that a closed loop has to reach.
    pub(crate) rate: Option<Rate>,
    pub(crate) latencies: Vec<Latency>,
    /// The share of requests that may be refused, from 0 to 1.
    pub(crate) errors: f64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every objective is met, and no promise is broken.
    Pass,
    /// The target is at fault, for these reasons.
    Fail(Vec<String>),
    /// The run has no verdict, for these reasons.
    Unknown(Vec<String>),
}

/// The result for one objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Met as measured.
    Met,
    /// Missed even without the machine's stalls.
    Missed,
    /// The machine or the generator decides the result.
    Open,
}

impl Latency {
    /// Returns the name of the quantile on the command line.
    pub(crate) fn name(&self) -> String {
        quantile_name(self.quantile)
    }

    pub(crate) fn judge(&self, counts: &Counts) -> Found {
        if counts.response.at(self.quantile) <= self.limit {
            Found::Met
        } else if counts.settling.certain.at(self.quantile) > self.limit {
            Found::Missed
        } else {
            Found::Open
        }
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
    /// Returns 0 for a pass, 1 if the target is at fault, 2 for no verdict.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail(_) => 1,
            Self::Unknown(_) => 2,
        }
    }

    /// Returns the word for the verdict, the same in every output.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::Unknown(_) => "no verdict",
        }
    }

    /// Returns the reasons why the verdict is not a pass.
    pub(crate) fn reasons(&self) -> &[String] {
        match self {
            Self::Pass => &[],
            Self::Fail(reasons) | Self::Unknown(reasons) => reasons,
        }
    }
}

pub(crate) fn judge(outcome: &Outcome, objectives: &Objectives) -> Verdict {
    let (ours, theirs): (Vec<_>, Vec<_>) =
        outcome.faults.iter().partition(|fault| outcome.may_have_caused(fault));
    if !theirs.is_empty() {
        let described = theirs.into_iter().map(|fault| reasons::describe(fault, &outcome.promise));
        return Verdict::Fail(described.collect());
    }
    let mut open = outcome.not_measured();
    for fault in ours {
        open.push(reasons::by_generator(&reasons::describe(fault, &outcome.promise)));
    }
    let mut missed = reasons::errors(outcome, objectives);
    let mut late = Vec::new();
    if open.is_empty() {
        for latency in &objectives.latencies {
            match latency.judge(&outcome.counts) {
                Found::Met => {}
                Found::Missed => late.push(reasons::missed(&outcome.counts, latency)),
                Found::Open => open.push(reasons::open(outcome, latency)),
            }
        }
        match outcome.rate(objectives) {
            Found::Met => {}
            Found::Missed => late.push(reasons::missed_rate(outcome, objectives)),
            Found::Open => open.push(reasons::open_rate(outcome, objectives)),
        }
    }
    if outcome.held_up <= MAX_HELD_UP {
        missed.extend(late);
    } else if !late.is_empty() || !open.is_empty() {
        open.insert(0, reasons::held_up(outcome));
    }
    if !missed.is_empty() && !outcome.interrupted {
        Verdict::Fail(missed)
    } else if open.is_empty() {
        Verdict::Pass
    } else {
        Verdict::Unknown(open)
    }
}

impl Outcome {
    /// Returns true if a machine or a generator that stood still may have caused the fault. After a
    /// standstill, a target may close a connection that was idle, and the generator may send too
    /// many requests at once.
    fn may_have_caused(&self, fault: &Fault) -> bool {
        let counts = &self.counts;
        let stood = self.stalls.longest.max(counts.longest_turn);
        match fault {
            Fault::TooManyInFlight => counts.late_at_fault > MAX_BEHIND,
            Fault::NotBegun { is_ours, .. } => *is_ours || stood > SHORTEST_IDLE_TIMEOUT,
            Fault::Closed { .. } => stood > SHORTEST_IDLE_TIMEOUT,
            _ => false,
        }
    }

    /// Returns the reasons why the run says nothing about the objectives.
    fn not_measured(&self) -> Vec<String> {
        let counts = &self.counts;
        let mut reasons = Vec::new();
        if self.interrupted {
            reasons.push("the run was interrupted".to_owned());
        }
        if self.too_scattered {
            reasons.push("the IDs are too scattered to find duplicates".to_owned());
        }
        if counts.requests == 0 && counts.response.is_empty() && self.faults.is_empty() && !self.interrupted {
            reasons
                .push("no request was due in the measurement: use a longer one or a higher rate".to_owned());
        }
        let judged = counts.settling.certain.len();
        let answered = counts.response.len();
        if judged != answered || judged < counts.answered {
            reasons.push(format!("{judged} response times of {} answers were judged", counts.answered));
        }
        reasons
    }

    /// Judges the rate. An open loop may take only a little longer than planned. A closed loop may
    /// take as long as its IDs take at the rate that it has to reach. If the run took longer, the
    /// result is open if the machine's stalls, the generator's lateness or a busy thread may
    /// explain the difference.
    fn rate(&self, objectives: &Objectives) -> Found {
        let elapsed_s = self.elapsed.as_secs_f64();
        let (allowed_s, late_s) = match (self.planned.as_ref().map(Duration::as_secs_f64), objectives.rate) {
            (Some(planned_s), _) => {
                ((planned_s / MIN_RATE_SHARE).max(planned_s + TAIL_S), self.counts.slip.max() as f64 / 1e9)
            }
            (None, Some(rate)) => (self.ids_per_s() * elapsed_s / rate.per_s(), 0.0),
            (None, None) => return Found::Met,
        };
        let stalls = self.stalls.total + self.stalls.total / QUEUE_PART;
        if elapsed_s <= allowed_s {
            Found::Met
        } else if self.is_lower_bound() || elapsed_s - stalls.as_secs_f64() - late_s <= allowed_s {
            Found::Open
        } else {
            Found::Missed
        }
    }

    /// Returns true if a closed loop's own threads limited its rate.
    pub(crate) fn is_lower_bound(&self) -> bool {
        self.planned.is_none() && self.counts.busiest_thread > MAX_THREAD_SHARE
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
