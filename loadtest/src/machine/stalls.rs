//! The stalls of a run, as intervals of its time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A shorter stall is not noted: half of this time is the usual lateness of a timer on a virtual
/// machine.
pub(crate) const MIN_STALL_NS: u64 = 500_000;

/// The time for which stalls are kept. Every request that they touched has been answered, or has failed,
/// by then.
const KEPT_NS: u64 = 20_000_000_000;

/// The time after a stall in which its queue is looked for.
const REACH_NS: u64 = 1_000_000_000;

/// A time in which the machine kept threads from running, in nanoseconds from the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// The time lost in it: at most its length, less where its start is not known exactly.
    pub(crate) lost_ns: u64,
}

impl Stall {
    /// Joins what two threads saw at the same time.
    fn joined(self, other: Self) -> Self {
        let (from_ns, until_ns) = (self.from_ns.min(other.from_ns), self.until_ns.max(other.until_ns));
        let lost_ns = (self.lost_ns + other.lost_ns).min(until_ns - from_ns);
        Self { from_ns, until_ns, lost_ns }
    }

    /// Returns the end of the queue that it left, for a target that is half busy.
    fn over_ns(self) -> u64 {
        self.until_ns + self.lost_ns
    }

    /// Returns the time that a pause lost to it, at most.
    fn lost_within(self, from_ns: u64, until_ns: u64) -> u64 {
        self.until_ns.min(until_ns).saturating_sub(self.from_ns.max(from_ns)).min(self.lost_ns)
    }
}

/// The effect of the machine's stalls on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// No stall touched it.
    Clean,
    /// A stall began this many nanoseconds after the request was due, and before its end.
    CutAfter(u64),
    /// It was due in a stall, or in the queue after one.
    Excluded,
}

/// The sum of stalls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StallSum {
    pub(crate) count: u64,
    pub(crate) total: Duration,
    pub(crate) longest: Duration,
    /// The time in which a request is [`Fate::Excluded`].
    pub(crate) excluded: Duration,
}

/// The stalls found so far; several threads add to them.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Mutex<Record>);

#[derive(Debug, Default)]
struct Record {
    /// The start of the measurement. Stalls that ended before it are not in the sum.
    counts_from_ns: u64,
    /// Ascending; no two overlap or touch.
    recent: VecDeque<Stall>,
    /// The sum of those that count and are no longer kept.
    past: StallSum,
}

impl Stalls {
    /// Returns a record whose sum begins with the stalls that end at `from_ns` or later.
    pub(crate) fn counting_from(from_ns: u64) -> Self {
        Self(Mutex::new(Record { counts_from_ns: from_ns, ..Record::default() }))
    }

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
        while let [Some(first), Some(next)] = [0, 1].map(|index| record.recent.get(index).copied())
            && first.until_ns + KEPT_NS < stall.until_ns
        {
            if first.until_ns >= record.counts_from_ns {
                record.past = record.past.with(first, Some(next));
            }
            record.recent.pop_front();
        }
    }

    /// Returns the time of a pause that was lost to stalls.
    pub(crate) fn lost(&self, from_ns: u64, until_ns: u64) -> u64 {
        self.record().lost(from_ns, until_ns)
    }

    /// Returns a function that decides a request's fate, from its due time and the time of its answer.
    pub(crate) fn with_fate<T>(&self, run: impl FnOnce(&dyn Fn(u64, u64) -> Fate) -> T) -> T {
        let record = self.record();
        run(&|from_ns, until_ns| record.fate(from_ns, until_ns))
    }

    /// Returns true if a stall that ends then counts.
    pub(super) fn counts(&self, until_ns: u64) -> bool {
        until_ns >= self.record().counts_from_ns
    }

    /// Returns the sum of the stalls that count.
    pub(crate) fn sum(&self) -> StallSum {
        let record = self.record();
        let begin = record.recent.partition_point(|stall| stall.until_ns < record.counts_from_ns);
        let next = |index: usize| record.recent.get(index + 1).copied();
        let recent = record.recent.iter().enumerate().skip(begin);
        recent.fold(record.past, |sum, (index, &stall)| sum.with(stall, next(index)))
    }
}

impl Record {
    fn lost(&self, from_ns: u64, until_ns: u64) -> u64 {
        let before = self.recent.partition_point(|stall| stall.from_ns < until_ns);
        // They do not overlap, so earlier ones ended earlier.
        let near = self.recent.range(..before).rev().take_while(|stall| stall.until_ns > from_ns);
        near.map(|stall| stall.lost_within(from_ns, until_ns)).sum::<u64>().min(until_ns - from_ns)
    }

    fn fate(&self, from_ns: u64, until_ns: u64) -> Fate {
        let next = self.recent.partition_point(|stall| stall.from_ns <= from_ns);
        // Earlier ones ended earlier; only the queues after them may not have.
        let mut near =
            self.recent.range(..next).rev().take_while(|stall| stall.until_ns + REACH_NS > from_ns);
        if near.any(|stall| stall.over_ns() > from_ns) {
            return Fate::Excluded;
        }
        let cut = self.recent.get(next).filter(|stall| stall.from_ns < until_ns);
        cut.map_or(Fate::Clean, |stall| Fate::CutAfter(stall.from_ns - from_ns))
    }
}

impl StallSum {
    /// Adds a stall, with the queue after it until the next.
    fn with(self, stall: Stall, next: Option<Stall>) -> Self {
        let over_ns = next.map_or(u64::MAX, |next| next.from_ns).min(stall.over_ns());
        let excluded = self.excluded + Duration::from_nanos(over_ns - stall.from_ns);
        Self { excluded, ..self.with_length(stall.lost_ns) }
    }

    pub(super) fn with_length(self, length_ns: u64) -> Self {
        let length = Duration::from_nanos(length_ns);
        Self { count: self.count + 1, total: self.total + length, longest: self.longest.max(length), ..self }
    }

    /// Adds the sum of another run.
    pub(crate) fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
        self.excluded += other.excluded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalls(all: &[(u64, u64)]) -> Stalls {
        stalls_from(0, all)
    }

    fn stalls_from(from_ns: u64, all: &[(u64, u64)]) -> Stalls {
        let stalls = Stalls::counting_from(from_ns);
        let whole =
            |&(from_ns, until_ns): &(u64, u64)| Stall { from_ns, until_ns, lost_ns: until_ns - from_ns };
        all.iter().map(whole).for_each(|stall| stalls.add(stall));
        stalls
    }

    #[test]
    fn several_threads_see_one_stall() {
        let sum = stalls(&[(10, 20), (40, 50), (15, 25), (24, 41)]).sum();
        let all = Duration::from_nanos(40);
        assert_eq!((sum.count, sum.total, sum.longest), (1, all, all));
        assert_eq!(stalls_from(21, &[(10, 20), (40, 50)]).sum().count, 1, "one was over before");
    }

    #[test]
    fn a_pause_loses_the_time_that_it_shared_with_stalls() {
        let stalls = stalls(&[(100, 120), (500, 510)]);
        let lost = |from_ns, until_ns| stalls.lost(from_ns, until_ns);
        assert_eq!([lost(90, 101), lost(90, 200), lost(110, 115), lost(50, 600)], [1, 20, 5, 30]);
        assert_eq!([lost(90, 100), lost(120, 500), lost(515, 900)], [0, 0, 0]);
        // One whose begin is not known takes no more than was lost in it.
        stalls.add(Stall { from_ns: 1_100, until_ns: 1_150, lost_ns: 10 });
        assert_eq!(stalls.lost(1_090, 1_200), 10);
    }

    #[test]
    fn a_request_is_clean_unless_a_stall_or_the_queue_after_one_touched_it() {
        use Fate::{Clean, CutAfter, Excluded};
        let stalls = stalls(&[(100, 120), (500, 510)]);
        let fate = |from_ns, until_ns| stalls.with_fate(|fate| fate(from_ns, until_ns));
        assert_eq!([fate(90, 100), fate(140, 500), fate(520, 900)], [Clean; 3]);
        assert_eq!(
            [fate(90, 101), fate(50, 600), fate(140, 501)],
            [CutAfter(10), CutAfter(50), CutAfter(360)]
        );
        assert_eq!([fate(100, 101), fate(119, 200), fate(139, 150), fate(519, 600)], [Excluded; 4]);
        assert_eq!(stalls.sum().excluded, Duration::from_nanos(60));
    }

    #[test]
    fn old_stalls_only_add_up() {
        let all = [(0, 10), (KEPT_NS, KEPT_NS + 5), (2 * KEPT_NS + 100, 2 * KEPT_NS + 101)];
        for (from_ns, count) in [(0, 3), (10, 3), (11, 2)] {
            let stalls = stalls_from(from_ns, &all);
            assert_eq!(stalls.record().recent.len(), 1);
            assert_eq!(stalls.sum().count, count, "from {from_ns}");
        }
    }
}
