//! The stalls of a run, as intervals of its time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A shorter stall is not noted: half of it is the usual lateness of a timer on a virtual machine.
pub(crate) const MIN_STALL_NS: u64 = 500_000;

/// Stalls are kept for so long. Every request that they touched has been answered, or has failed, by then.
const KEPT_NS: u64 = 20_000_000_000;

/// The longest queue after a stall: that of one which leaves the run without a verdict.
const REACH_NS: u64 = 1_000_000_000;

/// A time in which the machine kept threads from running, in nanoseconds from the begin of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// The time lost in it: at most its length, less where its begin is not known exactly.
    pub(crate) lost_ns: u64,
}

impl Stall {
    /// Joins what two threads saw at the same time.
    fn joined(self, other: Self) -> Self {
        let (from_ns, until_ns) = (self.from_ns.min(other.from_ns), self.until_ns.max(other.until_ns));
        let lost_ns = (self.lost_ns + other.lost_ns).min(until_ns - from_ns);
        Self { from_ns, until_ns, lost_ns }
    }

    /// Returns the time that a request lost to it, at most.
    fn lost_within(self, from_ns: u64, until_ns: u64) -> u64 {
        // A queue that a stall left is worked off in half its length, by a target that is a third busy.
        let end_ns = self.until_ns + self.lost_ns / 2;
        end_ns.min(until_ns).saturating_sub(self.from_ns.max(from_ns)).min(self.lost_ns)
    }
}

/// The sum of stalls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StallSum {
    pub(crate) count: u64,
    pub(crate) total: Duration,
    pub(crate) longest: Duration,
}

/// The stalls found so far; several threads add to them.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Mutex<Record>);

#[derive(Debug, Default)]
struct Record {
    /// Ascending; no two overlap or touch.
    recent: VecDeque<Stall>,
    /// The sum of those that are no longer kept.
    past: StallSum,
}

impl Stalls {
    fn record(&self) -> std::sync::MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stall. What several threads saw at the same time is one.
    pub(crate) fn add(&self, stall: Stall) {
        let mut record = self.record();
        let begin = record.recent.partition_point(|known| known.until_ns < stall.from_ns);
        let end = record.recent.partition_point(|known| known.from_ns <= stall.until_ns);
        let overlapped = record.recent.drain(begin..end);
        let joined = overlapped.fold(stall, Stall::joined);
        record.recent.insert(begin, joined);
        while record.recent.front().is_some_and(|first| first.until_ns + KEPT_NS < stall.until_ns) {
            let first = record.recent.pop_front();
            record.past = first.into_iter().fold(record.past, StallSum::with);
        }
    }

    /// Gives a function of the time that a request lost to stalls: from its due time to its answer.
    pub(crate) fn with_lost<T>(&self, run: impl FnOnce(&dyn Fn(u64, u64) -> u64) -> T) -> T {
        let record = self.record();
        run(&|from_ns, until_ns| record.lost(from_ns, until_ns))
    }

    /// Returns the sum of the stalls that ended at `from_ns` or later.
    pub(crate) fn sum(&self, from_ns: u64) -> StallSum {
        let record = self.record();
        let recent = record.recent.iter().filter(|stall| stall.until_ns >= from_ns);
        recent.copied().fold(record.past, StallSum::with)
    }
}

impl Record {
    fn lost(&self, from_ns: u64, until_ns: u64) -> u64 {
        let before = self.recent.partition_point(|stall| stall.from_ns < until_ns);
        // They do not overlap, so earlier ones ended earlier; only the queues after them may.
        let near = self.recent.range(..before).rev().take_while(|stall| stall.until_ns + REACH_NS > from_ns);
        near.map(|stall| stall.lost_within(from_ns, until_ns)).sum::<u64>().min(until_ns - from_ns)
    }
}

impl StallSum {
    fn with(self, stall: Stall) -> Self {
        self.with_length(stall.lost_ns)
    }

    pub(super) fn with_length(self, length_ns: u64) -> Self {
        let length = Duration::from_nanos(length_ns);
        Self { count: self.count + 1, total: self.total + length, longest: self.longest.max(length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalls(all: &[(u64, u64)]) -> Stalls {
        let stalls = Stalls::default();
        let whole =
            |&(from_ns, until_ns): &(u64, u64)| Stall { from_ns, until_ns, lost_ns: until_ns - from_ns };
        all.iter().map(whole).for_each(|stall| stalls.add(stall));
        stalls
    }

    #[test]
    fn several_threads_see_one_stall() {
        let sum = stalls(&[(10, 20), (40, 50), (15, 25), (24, 41)]).sum(0);
        let all = Duration::from_nanos(40);
        assert_eq!((sum.count, sum.total, sum.longest), (1, all, all));
        assert_eq!(stalls(&[(10, 20), (40, 50)]).sum(21).count, 1, "one was over before");
    }

    #[test]
    fn a_request_loses_the_time_that_it_shared_with_a_stall_or_with_the_queue_after_it() {
        let stalls = stalls(&[(100, 120), (500, 510)]);
        let lost = |from_ns, until_ns| stalls.with_lost(|lost| lost(from_ns, until_ns));
        assert_eq!([lost(90, 101), lost(90, 200), lost(110, 115), lost(50, 600)], [1, 20, 5, 30]);
        assert_eq!([lost(120, 150), lost(125, 150), lost(130, 150)], [10, 5, 0], "the queue takes 10 ns");
        assert_eq!([lost(90, 100), lost(131, 500), lost(515, 900)], [0, 0, 0]);
    }

    #[test]
    fn a_stall_whose_begin_is_not_known_takes_no_more_than_was_lost_in_it() {
        let stalls = Stalls::default();
        stalls.add(Stall { from_ns: 100, until_ns: 150, lost_ns: 10 });
        assert_eq!(stalls.with_lost(|lost| lost(90, 200)), 10);
    }

    #[test]
    fn old_stalls_only_add_up() {
        let stalls = stalls(&[(0, 10), (KEPT_NS, KEPT_NS + 5), (2 * KEPT_NS + 100, 2 * KEPT_NS + 101)]);
        assert_eq!(stalls.record().recent.len(), 1);
        assert_eq!(stalls.sum(0).count, 3);
    }
}
