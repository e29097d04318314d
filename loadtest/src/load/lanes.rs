//! The schedules of an open loop's threads. A thread also sends the overdue requests of other
//! threads.
//!
//! A thread that waits for a core sends its requests late, and then a run measures the generator
//! instead of the target. So each thread also looks at the schedules of the other threads, and
//! sends their overdue requests on its own connections. A kernel thread, another program or a host
//! that has other guests may take a single core. Then requests are late by little more than
//! [`GRACE_NS`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::schedule::Schedule;

/// If a request is late by at least this, any thread may send it. A thread that is not held up
/// wakes within a fifth of this time. If threads are often held up, the run cannot show a p99.9
/// below this time.
const GRACE_NS: u64 = 100_000;

/// One schedule for each thread of an open loop.
#[derive(Debug)]
pub(crate) struct Lanes(Vec<Lane>);

#[derive(Debug)]
struct Lane {
    /// The due time of the next request in `schedule`. A thread can read it without the lock.
    due_ns: AtomicU64,
    schedule: Mutex<Schedule>,
}

impl Lanes {
    /// Returns lanes for these schedules, which come in the order of their threads.
    pub(crate) fn new(schedules: impl Iterator<Item = Schedule>) -> Self {
        let lanes = schedules.map(|schedule| Lane {
            due_ns: AtomicU64::new(schedule.due_ns()),
            schedule: Mutex::new(schedule),
        });
        Self(lanes.collect())
    }

    /// Takes a request that is due before `end_ns`. It is due on the thread's own schedule, or else
    /// overdue on the schedule of another thread. Returns the instant at which the request was due.
    pub(super) fn take(&self, thread: usize, now_ns: u64, end_ns: u64) -> Option<u64> {
        let last_ns = end_ns.checked_sub(1)?;
        let own = self.0[thread].take(now_ns.min(last_ns));
        own.or_else(|| {
            let overdue_ns = now_ns.checked_sub(GRACE_NS)?.min(last_ns);
            self.0.iter().find_map(|lane| lane.take(overdue_ns))
        })
    }

    /// Returns the instant at which the thread must look for requests again.
    pub(super) fn next_ns(&self, thread: usize) -> u64 {
        let mine_ns = self.0[thread].due_ns.load(Ordering::Relaxed);
        self.first_due_ns().saturating_add(GRACE_NS).min(mine_ns)
    }

    /// Returns the due time of the earliest request that no thread has taken.
    pub(super) fn first_due_ns(&self) -> u64 {
        self.0.iter().map(|lane| lane.due_ns.load(Ordering::Relaxed)).min().unwrap_or(u64::MAX)
    }
}

impl Lane {
    fn take(&self, until_ns: u64) -> Option<u64> {
        if self.due_ns.load(Ordering::Relaxed) > until_ns {
            return None;
        }
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let due_ns = schedule.due_ns();
        if due_ns > until_ns {
            return None;
        }
        schedule.advance();
        self.due_ns.store(schedule.due_ns(), Ordering::Relaxed);
        Some(due_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Arrivals;

    /// Returns the schedules of `threads` threads that send in turn, one request every 100 us.
    fn lanes(threads: usize) -> Lanes {
        Lanes::new((0..threads).map(|thread| schedule(thread, threads)))
    }

    fn schedule(thread: usize, threads: usize) -> Schedule {
        Schedule::new(1e4, Arrivals::Even, thread, threads)
    }

    #[test]
    fn a_thread_takes_its_due_and_other_threads_overdue_requests() {
        let lanes = lanes(2);
        let take = |thread, now_ns| lanes.take(thread, now_ns, u64::MAX);
        assert_eq!(take(1, 99_999), None, "the request due at 0 is the first thread's, and not overdue");
        assert_eq!([take(1, 100_000), take(1, 100_000), take(1, 100_000)], [Some(100_000), Some(0), None]);
        assert_eq!((take(1, 299_999), take(0, 299_999)), (None, Some(200_000)));
        assert_eq!(
            [take(0, 400_000), take(0, 400_000), take(0, 400_000)],
            [Some(400_000), Some(300_000), None]
        );
    }

    #[test]
    fn requests_due_at_or_after_the_end_are_not_taken() {
        let lanes = lanes(2);
        let taken: Vec<u64> = std::iter::from_fn(|| lanes.take(1, 1_000_000, 400_000)).collect();
        assert_eq!(taken, [100_000, 300_000, 0, 200_000]);
        assert_eq!((lanes.first_due_ns(), lanes.take(0, 1_000_000, 0)), (400_000, None));
    }

    #[test]
    fn a_thread_wakes_for_its_due_or_an_overdue_request() {
        let lanes = lanes(2);
        assert_eq!((lanes.next_ns(0), lanes.next_ns(1)), (0, 100_000));
        assert_eq!(lanes.take(1, 150_000, u64::MAX), Some(100_000));
        assert_eq!((lanes.next_ns(1), lanes.first_due_ns()), (100_000, 0), "the first thread is late");
        assert_eq!((lanes.take(0, 150_000, u64::MAX), lanes.next_ns(1)), (Some(0), 300_000));
    }

    #[test]
    fn racing_threads_take_each_request_once() {
        let lanes = &lanes(3);
        let now_ns = 1_000_000_000;
        // The first thread never runs, and the other two race for its requests.
        let mut taken: Vec<u64> = std::thread::scope(|scope| {
            let racing = [1, 2].map(|thread| {
                let requests = std::iter::from_fn(move || lanes.take(thread, now_ns, u64::MAX));
                scope.spawn(move || requests.collect::<Vec<_>>())
            });
            racing.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        taken.sort_unstable();
        let mut due = Vec::new();
        for (thread, until_ns) in [(0, now_ns - GRACE_NS), (1, now_ns), (2, now_ns)] {
            let mut schedule = schedule(thread, 3);
            while schedule.due_ns() <= until_ns {
                due.push(schedule.due_ns());
                schedule.advance();
            }
        }
        due.sort_unstable();
        assert!(due.len() > 9_998);
        assert_eq!(taken, due);
    }
}
