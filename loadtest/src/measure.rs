//! Histograms, seconds, counters and faults.
//!
//! Times are nanoseconds with three significant digits, from 1 ns to an hour. So times under 1 ms
//! are exact to the microsecond.

mod histogram;
pub(crate) mod settling;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::check::Violation;
pub(crate) use histogram::TimeHistogram;
use settling::Settling;

/// Requests that were refused with one error code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    pub(crate) count: u64,
    /// The target's message in the first of these refusals.
    pub(crate) first_message: String,
}

pub(crate) type RefusalsByCode = BTreeMap<u16, Refusals>;

/// The results that one thread, or all threads, received in one second of the measurement.
#[derive(Debug, Default)]
pub(crate) struct Second {
    pub(crate) ids: u64,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    pub(crate) response: TimeHistogram,
}

impl Second {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.ids += other.ids;
        self.answered += other.answered;
        self.refused += other.refused;
        self.response.merge(&other.response);
    }
}

/// The figures of a second, for tables and charts.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct SecondFigures {
    /// The number of the second, from 0.
    pub(crate) second: u64,
    pub(crate) ids: u64,
    /// The number of requests that were answered with IDs in this second. The response times below
    /// include those of requests that ended without an answer.
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    /// The median of the response times, in microseconds; `None` for a second without a response
    /// time.
    pub(crate) p50_us: Option<f64>,
    /// 90 % of the response times were at most this.
    pub(crate) p90_us: Option<f64>,
    /// 99 % of them were at most this.
    pub(crate) p99_us: Option<f64>,
    /// 99.9 % of them were at most this.
    pub(crate) p999_us: Option<f64>,
    /// The longest response time.
    pub(crate) max_us: Option<f64>,
    /// The target's processor time as a share of one core; `None` if the target's processes cannot
    /// be seen.
    pub(crate) target_cpu_share: Option<f64>,
    /// The target's resident memory at the end of the second.
    pub(crate) target_memory_bytes: Option<u64>,
}

impl SecondFigures {
    /// Returns the figures of second `number`.
    pub(crate) fn of(number: u64, second: &Second) -> Self {
        let response = &second.response;
        Self {
            second: number,
            ids: second.ids,
            answered: second.answered,
            refused: second.refused,
            p50_us: response.known_at(0.5).map(micros),
            p90_us: response.known_at(0.9).map(micros),
            p99_us: response.known_at(0.99).map(micros),
            p999_us: response.known_at(0.999).map(micros),
            max_us: response.known_at(1.0).map(micros),
            ..Self::default()
        }
    }
}

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// A fault after the target was greeted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The target broke a promise.
    Violation(Violation),
    /// A connection ended.
    Closed { unanswered: usize, reason: Option<String> },
    /// Bytes that are not a reply, or a reply without a request.
    Unreadable(String),
    /// A request had no answer for [`ANSWER_TIMEOUT`](crate::load::ANSWER_TIMEOUT).
    Silent { unanswered: usize },
    /// A request was due on a connection that had [`MAX_IN_FLIGHT`](crate::load::MAX_IN_FLIGHT)
    /// requests in flight.
    TooManyInFlight,
    /// Connections were not open again within [`RECOVERY_TIMEOUT`](crate::load::RECOVERY_TIMEOUT)
    /// of an outage.
    NotRecovered,
    /// A later run or a thread could not begin, or the run's own daemon did not start again.
    /// `is_ours` is false if the target is to blame.
    NotBegun { reason: String, is_ours: bool },
}

/// The counters of one thread, or of all threads together.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// The requests that were due in the measurement and were sent.
    pub(crate) requests: u64,
    /// The number of these requests that were answered with IDs.
    pub(crate) answered: u64,
    /// The IDs in these answers.
    pub(crate) ids: u64,
    /// IDs of the whole run, the warm-up included. Each was checked.
    pub(crate) checked_ids: u64,
    /// Requests that were refused, by code.
    pub(crate) refused: RefusalsByCode,
    /// Requests that were sent in the warm-up.
    pub(crate) warm_up_requests: u64,
    /// Requests of the warm-up that were refused, by code.
    pub(crate) warm_up_refused: RefusalsByCode,
    /// Requests without an answer at the end.
    pub(crate) unanswered: u64,
    /// Requests that the outage took away. There are three kinds. The outage ended the connection
    /// on which a request was in flight. Or a request was due while no connection was open. Or the
    /// daemon refused a request because it was stopping.
    pub(crate) lost: u64,
    /// The length of the outage. For a thread, the outage lasts until all its connections are open
    /// again and one of them has had an answer. For all threads together, the length is the longest
    /// of theirs.
    pub(crate) outage: Duration,
    /// The times from the intended instant to the receipt.
    pub(crate) response: TimeHistogram,
    /// The target's parts: the times from the sending until the answer could be read.
    pub(crate) target: TimeHistogram,
    /// The times from the intended instant to the sending.
    pub(crate) slip: TimeHistogram,
    /// The target's part that no stall of the machine explains.
    pub(crate) settling: Settling,
    /// The generator's delay behind its schedules when a fault ended the thread. It shows whether a
    /// target that fell behind had got its requests on schedule.
    pub(crate) late_at_fault: Duration,
    /// The longest turn of a generator thread, from the instant at which it was due.
    pub(crate) longest_turn: Duration,
    /// Processor time of the generator's threads.
    pub(crate) cpu: Duration,
    /// The largest share of the time for which one generator thread used a core or waited for one,
    /// from 0 to 1.
    pub(crate) busiest_thread: f64,
    /// The time from the start of the measurement to the last receipt that counts.
    pub(crate) last_receipt: Duration,
    /// The largest distance seen between the clocks of target and generator; 0 if they have the
    /// same clock.
    pub(crate) clock_offset_us: i64,
}

impl Counts {
    pub(crate) fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.answered += other.answered;
        self.ids += other.ids;
        self.checked_ids += other.checked_ids;
        self.unanswered += other.unanswered;
        self.lost += other.lost;
        self.outage = self.outage.max(other.outage);
        merge_refusals(&mut self.refused, other.refused);
        self.warm_up_requests += other.warm_up_requests;
        merge_refusals(&mut self.warm_up_refused, other.warm_up_refused);
        self.response.merge(&other.response);
        self.target.merge(&other.target);
        self.slip.merge(&other.slip);
        self.settling.merge(other.settling);
        self.late_at_fault = self.late_at_fault.max(other.late_at_fault);
        self.longest_turn = self.longest_turn.max(other.longest_turn);
        self.cpu += other.cpu;
        self.busiest_thread = self.busiest_thread.max(other.busiest_thread);
        self.last_receipt = self.last_receipt.max(other.last_receipt);
        if other.clock_offset_us.abs() > self.clock_offset_us.abs() {
            self.clock_offset_us = other.clock_offset_us;
        }
    }

    /// Returns the refused and the `unanswered` requests as a share of all requests. Requests of
    /// the warm-up count, too.
    pub(crate) fn error_share(&self, unanswered: u64) -> f64 {
        let errors = count_of(&self.refused) + count_of(&self.warm_up_refused) + unanswered;
        errors as f64 / (self.requests + self.warm_up_requests).max(1) as f64
    }
}

pub(crate) fn count_of(refused: &RefusalsByCode) -> u64 {
    refused.values().map(|refusals| refusals.count).sum()
}

fn merge_refusals(all: &mut RefusalsByCode, others: RefusalsByCode) {
    for (code, refusals) in others {
        let known = all.entry(code).or_default();
        known.count += refusals.count;
        if known.first_message.is_empty() {
            known.first_message = refusals.first_message;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_threads_add_up() {
        let counted = |ids, code| {
            let mut counts = Counts { ids, ..Counts::default() };
            counts.response.saturating_record(ids);
            counts.refused.insert(code, Refusals { count: 1, first_message: format!("code {code}") });
            counts
        };
        let mut all = counted(5, 6);
        all.merge(counted(7, 6));
        all.merge(counted(9, 8));
        assert_eq!((all.ids, count_of(&all.refused), all.response.len()), (21, 3, 3));
        assert_eq!(all.refused[&6], Refusals { count: 2, first_message: "code 6".into() });
        // Refusals of the warm-up count, and so do its requests.
        (all.requests, all.warm_up_requests) = (15, 5);
        all.warm_up_refused.entry(6).or_default().count = 1;
        assert_eq!([0, 1].map(|unanswered| all.error_share(unanswered)), [0.2, 0.25]);
    }
}
