//! The stalls of a run, as intervals on the run's clock.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The shortest stall that is recorded. On a virtual machine, a timer is usually late by half of
/// this time.
pub(crate) const MIN_STALL_NS: u64 = 500_000;

/// The requests that queue behind a stall are excused for this part of it, besides the stall itself.
pub(crate) const QUEUE_PART: u32 = 4;

/// A target that is up to 80 % busy serves the queue behind a stall within this multiple of the
/// stall's length.
const QUEUE_LENGTHS: u64 = 4;

/// The longest time for which a queue excuses requests.
const MAX_QUEUE_NS: u64 = 250_000_000;

/// Stalls are kept for this long. By then, every request that they delayed has been answered or has
/// failed.
const KEPT_NS: u64 = 20_000_000_000;

/// A time in which the machine did not run a thread of the target or of the load test although the
/// thread was due. Instants are nanoseconds from the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// The part of this time that is lost: [`super`] says what is subtracted from the length.
    pub(crate) lost_ns: u64,
}

/// The sum of the stalls of a measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StallSum {
    pub(crate) count: u64,
    pub(crate) total: Duration,
    pub(crate) longest: Duration,
}

/// The stalls so far, and the bunches of requests that the generator sent late.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Mutex<Record>);

#[derive(Debug, Default)]
struct Record {
    from_ns: u64,
    /// The stalls that are kept, in ascending order. No two of them overlap.
    recent: VecDeque<Stall>,
    /// Bunches of requests that the generator sent late, all at once. These requests queue at the
    /// target as they do after a stall. So each bunch is kept, in ascending order, as a stall that
    /// begins and ends when the bunch is sent.
    bunches: VecDeque<Stall>,
    /// The sum of the stalls that are no longer kept.
    past: StallSum,
}

impl Stall {
    /// Joins two stalls that overlap. The loss is at most the time from the first start to the last
    /// end.
    fn joined(self, other: Self) -> Self {
        let from_ns = self.from_ns.min(other.from_ns);
        let until_ns = self.until_ns.max(other.until_ns);
        Self { from_ns, until_ns, lost_ns: (self.lost_ns + other.lost_ns).min(until_ns - from_ns) }
    }

    /// Returns the end of the queue behind the stall.
    fn queue_until_ns(self) -> u64 {
        self.until_ns + (QUEUE_LENGTHS * self.lost_ns).min(MAX_QUEUE_NS)
    }
}

/// Returns the loss of each stall that touches a request, or whose queue touches the request.
/// `stalls` is in ascending order: a stall that begins later never ends earlier.
fn touching(stalls: &VecDeque<Stall>, sent_ns: u64, received_ns: u64) -> impl Iterator<Item = u64> {
    let before = stalls.partition_point(|stall| stall.from_ns < received_ns);
    let near = stalls.range(..before).rev().take_while(move |stall| stall.until_ns + MAX_QUEUE_NS > sent_ns);
    near.filter(move |stall| stall.queue_until_ns() > sent_ns).map(|stall| stall.lost_ns)
}

impl Stalls {
    /// Returns the record of a run whose measurement begins at this instant.
    pub(crate) fn from_measurement(from_ns: u64) -> Self {
        Self(Mutex::new(Record { from_ns, ..Record::default() }))
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stall, joined with the recorded stalls that overlap it.
    pub(crate) fn add(&self, stall: Stall) {
        let mut record = self.record();
        let begin = record.recent.partition_point(|known| known.until_ns <= stall.from_ns);
        let end = record.recent.partition_point(|known| known.from_ns < stall.until_ns).max(begin);
        let joined = record.recent.drain(begin..end).fold(stall, Stall::joined);
        record.recent.insert(begin, joined);
        while let Some(&first) = record.recent.front()
            && first.until_ns + KEPT_NS < stall.until_ns
        {
            record.past = record.with(record.past, first, u64::MAX);
            record.recent.pop_front();
        }
    }

    /// Returns the sum of the stalls in the measurement, which ended at `until_ns`.
    pub(crate) fn sum(&self, until_ns: u64) -> StallSum {
        let record = self.record();
        record.recent.iter().fold(record.past, |sum, &stall| record.with(sum, stall, until_ns))
    }

    /// Adds a bunch of requests that the generator sent at once. `late_ns` is the lateness of the
    /// first of them, less the time for which the target ran.
    pub(crate) fn add_bunch(&self, sent_ns: u64, late_ns: u64) {
        if late_ns < MIN_STALL_NS {
            return;
        }
        let late_ns = late_ns.min(MAX_QUEUE_NS);
        let mut record = self.record();
        let at = record.bunches.partition_point(|known| known.until_ns <= sent_ns);
        record.bunches.insert(at, Stall { from_ns: sent_ns, until_ns: sent_ns, lost_ns: late_ns });
        while record.bunches[0].until_ns + KEPT_NS < sent_ns {
            record.bunches.pop_front();
        }
    }

    /// Returns the delay that the machine may have caused to a request that was sent and answered
    /// at these instants. The delay is the sum of the stalls that touch the request, or whose queue
    /// does. A quarter of this sum is added for the queue. If the lateness of a bunch is longer
    /// than the sum, a quarter of the lateness is added instead.
    pub(crate) fn excuse_ns(&self, sent_ns: u64, received_ns: u64) -> u64 {
        let record = self.record();
        let lost_ns: u64 = touching(&record.recent, sent_ns, received_ns).sum();
        let late_ns = touching(&record.bunches, sent_ns, received_ns).max().unwrap_or(0);
        lost_ns + lost_ns.max(late_ns) / u64::from(QUEUE_PART)
    }
}

impl Record {
    /// Adds to `sum` the part of a stall that lies in the measurement.
    fn with(&self, sum: StallSum, stall: Stall, until_ns: u64) -> StallSum {
        let width_ns = stall.until_ns.min(until_ns).saturating_sub(stall.from_ns.max(self.from_ns));
        let length = Duration::from_nanos(width_ns.min(stall.lost_ns));
        StallSum {
            count: sum.count + u64::from(!length.is_zero()),
            total: sum.total + length,
            longest: sum.longest.max(length),
        }
    }
}

impl StallSum {
    pub(crate) fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalls(from_ns: u64, all: &[(u64, u64)]) -> Stalls {
        let stalls = Stalls::from_measurement(from_ns);
        for &(from_ns, until_ns) in all {
            stalls.add(Stall { from_ns, until_ns, lost_ns: until_ns - from_ns });
        }
        stalls
    }

    #[test]
    fn stalls_that_overlap_count_once() {
        let all = stalls(0, &[(10, 20), (40, 50), (15, 25), (45, 48)]).sum(u64::MAX);
        assert_eq!((all.count, all.total.as_nanos(), all.longest.as_nanos()), (2, 25, 15));
        // Stalls that touch but do not overlap are not joined.
        let all = stalls(0, &[(10, 20), (20, 30), (31, 41)]).sum(u64::MAX);
        assert_eq!((all.count, all.longest.as_nanos()), (3, 10));
    }

    #[test]
    fn only_the_part_in_the_measurement_counts() {
        // The measurement ends with the last answer, which a stall may have delayed beyond the
        // planned end.
        let stalls = stalls(15, &[(0, 10), (10, 20), (40, 50)]);
        assert_eq!([u64::MAX, 44, 30].map(|until_ns| stalls.sum(until_ns).total.as_nanos()), [15, 9, 5]);
    }

    #[test]
    fn a_stall_excuses_requests_in_it_and_in_its_queue() {
        let stalls = stalls(0, &[(1_000, 1_100), (5_000, 5_020)]);
        let excuse = |sent_ns, received_ns| stalls.excuse_ns(sent_ns, received_ns);
        assert_eq!([excuse(900, 1_000), excuse(900, 1_001), excuse(1_050, 1_060)], [0, 125, 125]);
        // The queue behind the first stall is over after four times the stall's length.
        assert_eq!([excuse(1_499, 1_600), excuse(1_500, 1_600)], [125, 0]);
        assert_eq!([excuse(900, 9_000), excuse(5_080, 5_090), excuse(5_100, 5_200)], [150, 25, 0]);
    }

    #[test]
    fn a_late_bunch_excuses_only_the_queue_behind_it() {
        const MS: u64 = 1_000_000;
        let stalls = stalls(0, &[(90 * MS, 91 * MS)]);
        stalls.add_bunch(14 * MS, 2 * MS);
        stalls.add_bunch(13 * MS, 4 * MS);
        let excuse = |sent_ns| stalls.excuse_ns(sent_ns, sent_ns + MS);
        assert_eq!([excuse(12 * MS), excuse(12 * MS + 1), excuse(22 * MS)], [0, MS, MS]);
        assert_eq!([excuse(29 * MS - 1), excuse(29 * MS)], [MS, 0]);
        // Of the queues behind the stall and behind the bunch, only the longer one counts.
        stalls.add_bunch(90 * MS, 8 * MS);
        assert_eq!(excuse(90 * MS), 3 * MS);
        stalls.add_bunch(95 * MS, MIN_STALL_NS - 1);
        assert_eq!(stalls.sum(u64::MAX).count, 1, "a bunch is no stall of the machine");
        assert_eq!(stalls.record().bunches.len(), 3);
    }

    #[test]
    fn old_stalls_stay_only_in_the_sum() {
        let all = [(0, 10), (KEPT_NS, KEPT_NS + 5), (2 * KEPT_NS + 100, 2 * KEPT_NS + 101)];
        let stalls = stalls(0, &all);
        assert_eq!(stalls.record().recent.len(), 1);
        assert_eq!(stalls.sum(u64::MAX).count, 3);
    }
}
