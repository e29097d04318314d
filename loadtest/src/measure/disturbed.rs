//! Requests that a stall of the machine touched: the time lost in it does not count for the target.
//!
//! A stall is known only after it is over, so slow requests are kept until then. Quick ones are not: no stall
//! made them late.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Counts, TimeHistogram};
use crate::machine::stalls::{MIN_STALL_NS, Stalls};

/// The times of a request that was answered slowly, in nanoseconds from the begin of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slow {
    pub(crate) intended_ns: u64,
    pub(crate) sent_ns: u64,
    pub(crate) received_ns: u64,
    /// The least that the target took for it.
    pub(crate) target_ns: u64,
}

/// The longest stall that excuses a pause of the generator. Hosts stop a machine for up to some ten milliseconds. After a
/// longer one, the generator alone may have been stopped: a signal stops its sleepers too.
const LONGEST_EXCUSED_NS: u64 = 100_000_000;

/// Slow requests, and the times of those that a stall touched.
#[derive(Debug, Default)]
pub(crate) struct Disturbed {
    /// In the order of their receipt, on each thread.
    slow: VecDeque<Slow>,
    /// The times as they were.
    with: Parts,
    /// The same without the time lost in stalls.
    without: Parts,
    /// Pauses of the thread, each from and until, in its order.
    pauses: VecDeque<(u64, u64)>,
    /// The longest of those settled, without the time lost in stalls.
    longest_pause_ns: u64,
}

/// The times of requests.
#[derive(Debug, Default)]
struct Parts {
    response: TimeHistogram,
    target: TimeHistogram,
    slip: TimeHistogram,
}

/// The times of all requests without the time that they lost in stalls.
#[derive(Debug, Default)]
pub(crate) struct Undisturbed {
    pub(crate) response: TimeHistogram,
    pub(crate) target: TimeHistogram,
    pub(crate) slip: TimeHistogram,
    /// The longest pause of a thread of the generator, without the time that it lost in stalls.
    pub(crate) longest_pause: Duration,
    /// The share of answered requests that a stall touched, from 0 to 1.
    pub(crate) disturbed_share: f64,
}

impl Disturbed {
    /// Keeps a request if it was slow.
    pub(crate) fn note(&mut self, request: Slow) {
        if request.received_ns.saturating_sub(request.intended_ns) >= MIN_STALL_NS {
            self.slow.push_back(request);
        }
    }

    /// Keeps a pause of the thread if it was long.
    pub(crate) fn note_pause(&mut self, from_ns: u64, until_ns: u64) {
        if until_ns - from_ns >= MIN_STALL_NS {
            self.pauses.push_back((from_ns, until_ns));
        }
    }

    /// Decides about the requests that were answered, and the pauses that ended, before an instant: later stalls
    /// cannot have touched them.
    pub(crate) fn settle(&mut self, before_ns: u64, stalls: &Stalls) {
        self.settle_pauses(before_ns, stalls);
        if self.slow.front().is_none_or(|first| first.received_ns >= before_ns) {
            return;
        }
        stalls.with_lost(|lost| {
            while let Some(&slow) = self.slow.front().filter(|slow| slow.received_ns < before_ns) {
                self.slow.pop_front();
                let (lost_ns, late_ns) =
                    (lost(slow.intended_ns, slow.received_ns), lost(slow.intended_ns, slow.sent_ns));
                if lost_ns > 0 {
                    self.with.add(slow, 0, 0);
                    self.without.add(slow, lost_ns, late_ns);
                }
            }
        });
    }

    fn settle_pauses(&mut self, before_ns: u64, stalls: &Stalls) {
        while let Some(&(from_ns, until_ns)) = self.pauses.front().filter(|pause| pause.1 < before_ns) {
            self.pauses.pop_front();
            let lost_ns = stalls.with_lost(|lost| lost(from_ns, until_ns));
            let excused_ns = if lost_ns <= LONGEST_EXCUSED_NS { lost_ns } else { 0 };
            let own_ns = until_ns - from_ns - excused_ns;
            self.longest_pause_ns = self.longest_pause_ns.max(own_ns);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.slow.extend(other.slow);
        self.pauses.extend(other.pauses);
        self.longest_pause_ns = self.longest_pause_ns.max(other.longest_pause_ns);
        self.with.merge(&other.with);
        self.without.merge(&other.without);
    }
}

impl Parts {
    /// Adds a request, less the time that it lost in all and before it was sent.
    fn add(&mut self, slow: Slow, lost_ns: u64, late_ns: u64) {
        self.response.saturating_record(slow.received_ns - slow.intended_ns - lost_ns);
        self.target.saturating_record(slow.target_ns.saturating_sub(lost_ns));
        self.slip.saturating_record(slow.sent_ns.saturating_sub(slow.intended_ns + late_ns));
    }

    fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.target.merge(&other.target);
        self.slip.merge(&other.slip);
    }
}

impl Undisturbed {
    /// Takes all counts, as if there had been no stall.
    pub(crate) fn with_all(counts: &Counts) -> Self {
        let (response, target, slip) = (counts.response.clone(), counts.target.clone(), counts.slip.clone());
        Self { response, target, slip, longest_pause: counts.longest_pause, disturbed_share: 0.0 }
    }

    /// Takes the counts of all threads, with every slow request settled.
    pub(crate) fn of(counts: &Counts) -> Self {
        let Disturbed { with, without, .. } = &counts.disturbed;
        Self {
            response: counts.response.with_replaced(&with.response, &without.response),
            target: counts.target.with_replaced(&with.target, &without.target),
            slip: counts.slip.with_replaced(&with.slip, &without.slip),
            longest_pause: Duration::from_nanos(counts.disturbed.longest_pause_ns),
            disturbed_share: with.response.len() as f64 / counts.response.len().max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::stalls::Stall;

    #[test]
    fn what_a_request_lost_in_a_stall_does_not_count() {
        let (stalls, mut counts) = (Stalls::default(), Counts::default());
        stalls.add(Stall { from_ns: 10_000_000, until_ns: 20_000_000, lost_ns: 10_000_000 });
        for intended_ns in [5_000_000, 12_000_000, 300_000_000] {
            let received_ns = intended_ns + 9_000_000;
            counts.response.saturating_record(9_000_000);
            counts.target.saturating_record(8_000_000);
            counts.slip.saturating_record(1_000_000);
            let sent_ns = intended_ns + 1_000_000;
            counts.disturbed.note(Slow { intended_ns, sent_ns, received_ns, target_ns: 8_000_000 });
        }
        counts.disturbed.settle(100_000_000, &stalls);
        assert_eq!(counts.disturbed.slow.len(), 1, "a stall may still touch the last");
        counts.disturbed.settle(u64::MAX, &stalls);
        let undisturbed = Undisturbed::of(&counts);
        let ms = |times: &TimeHistogram| [0.1, 0.5, 1.0].map(|quantile| times.at(quantile).as_millis());
        // The first shared 4 ms with the stall, the second 8 and the queue after it.
        assert_eq!(ms(&undisturbed.response), [0, 5, 9]);
        assert_eq!(ms(&undisturbed.target), [0, 4, 8]);
        assert_eq!(undisturbed.slip.len(), 3);
        assert!((undisturbed.disturbed_share - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn only_the_part_of_a_pause_outside_stalls_is_the_generators() {
        let (stalls, mut counts) = (Stalls::default(), Counts::default());
        stalls.add(Stall { from_ns: 10_000_000, until_ns: 90_000_000, lost_ns: 80_000_000 });
        stalls.add(Stall { from_ns: 1_000_000_000, until_ns: 1_200_000_000, lost_ns: 200_000_000 });
        let longest_ms = |counts: &mut Counts, from_ms: u64, until_ms: u64| {
            counts.disturbed.note_pause(from_ms * 1_000_000, until_ms * 1_000_000);
            counts.disturbed.settle(u64::MAX, &stalls);
            Undisturbed::of(counts).longest_pause.as_millis()
        };
        let in_order = [(5, 95), (5, 110), (999, 1_201)];
        let longest = in_order.map(|(from_ms, until_ms)| longest_ms(&mut counts, from_ms, until_ms));
        assert_eq!(longest, [10, 25, 202], "a stall of 200 ms may be a stopped generator");
    }
}
