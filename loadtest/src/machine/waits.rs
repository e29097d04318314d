//! The target's waits for a core.
//!
//! A sleeper hardly runs, so the kernel lets it run soon even if other programs share its core. A
//! busy thread of the target may have to wait until each of those programs has had its turn. So
//! sleepers do not find the target's waits, but the kernel counts the waits of each thread.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use super::own::{THREADS_MAX, threads_of};
use super::processor::{RunDelay, Since};
use super::stalls::{MIN_STALL_NS, Stall};

/// The time between two looks: short in comparison with any wait that matters.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_millis(4);

/// After this many looks, the target's threads are listed again.
pub(super) const LOOKS_PER_SEARCH: u32 = 25;

/// The number of looks that are kept. They span four seconds, so a longer wait counts as four
/// seconds.
const REMEMBERED: usize = 1_024;

/// A look at the target's waits: its time, and the processor time used until then, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) at_ns: u64,
    /// The processor time of the target.
    pub(crate) target_ns: u64,
    /// The processor time of target and generator.
    pub(crate) own_ns: u64,
}

#[derive(Debug)]
struct Thread {
    run_delay: RunDelay,
    /// The times that were read last.
    since: Since,
    idle: Idle,
}

/// The last interval between two looks in which a thread ran. Since the end of that interval, the
/// thread has been idle or has waited.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Idle {
    /// The start of the interval.
    since_ns: u64,
    /// The time for which the thread ran in the interval.
    ran_ns: u64,
}

/// The waits of the target's threads, found from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    threads: BTreeMap<PathBuf, Thread>,
    pub(crate) looks: VecDeque<Look>,
}

impl Waits {
    /// Finds the threads of the target's processes.
    pub(super) fn find_threads<'a>(&mut self, processes: impl Iterator<Item = &'a u32>) {
        let found: Vec<PathBuf> = threads_of(processes).take(THREADS_MAX).collect();
        self.threads.retain(|thread, _| found.contains(thread));
        for thread in found {
            self.threads.entry(thread).or_insert_with_key(|thread| Thread {
                run_delay: RunDelay::thread(thread),
                since: Since::default(),
                idle: Idle::default(),
            });
        }
    }

    /// Reads how long each thread ran and waited since the last look. Call this before the next
    /// [`look`](Self::look), so that the look includes all processor time that was used during
    /// these waits.
    pub(super) fn read_threads(&mut self) {
        self.threads.values_mut().for_each(|thread| thread.since = thread.run_delay.since_last());
    }

    /// Adds a look. Of the stalls that made the target's threads wait since the last look, returns
    /// the one with the largest loss.
    pub(super) fn look(&mut self, now: Look, cores: u64) -> Option<Stall> {
        self.add(now);
        let looks = &self.looks;
        let stalls = self.threads.values_mut().map(|thread| thread.idle.stall(looks, thread.since, cores));
        stalls.flatten().max_by_key(|stall| stall.lost_ns)
    }

    pub(crate) fn add(&mut self, now: Look) {
        self.looks.push_back(now);
        if self.looks.len() > REMEMBERED {
            self.looks.pop_front();
        }
    }

    /// Returns the time for which the target did not run between two instants. The true time may be
    /// longer, because the processor time is known only at the looks before and after.
    pub(crate) fn not_of_target_ns(&self, from_ns: u64, until_ns: u64) -> u64 {
        let before = last_look(&self.looks, from_ns);
        let after = self.looks.partition_point(|look| look.at_ns < until_ns).min(self.looks.len() - 1);
        let target_ns = self.looks[after].target_ns - before.target_ns;
        // The first look may come later than both instants.
        until_ns.saturating_sub(from_ns.max(before.at_ns)).saturating_sub(target_ns)
    }
}

/// Returns the last look at or before an instant, or else the first look that is kept.
fn last_look(looks: &VecDeque<Look>, until_ns: u64) -> Look {
    looks[looks.partition_point(|look| look.at_ns <= until_ns).saturating_sub(1)]
}

impl Idle {
    /// Returns the stall that made a thread wait, from the thread's times between the last two
    /// looks.
    ///
    /// The waits began at most their own length before the first of these looks, and not before the
    /// thread last ran. Time in which other threads of the target ran is not lost, because the
    /// thread may have waited for them. The loss is at most the processor time, of all cores
    /// together, that neither the target nor the generator used.
    pub(crate) fn stall(&mut self, looks: &VecDeque<Look>, since: Since, cores: u64) -> Option<Stall> {
        let last = looks.iter().rev().nth(1)?;
        let now = looks.back()?;
        let from_ns = last.at_ns.saturating_sub(since.waited_ns).max(self.since_ns).max(looks[0].at_ns);
        let before = last_look(looks, from_ns);
        let ran_ns = since.ran_ns + if before.at_ns == self.since_ns { self.ran_ns } else { 0 };
        if since.ran_ns > 0 {
            *self = Self { since_ns: last.at_ns, ran_ns: since.ran_ns };
        }
        let length_ns = now.at_ns - from_ns;
        let left_ns = (cores * length_ns).saturating_sub(now.own_ns.saturating_sub(before.own_ns));
        let others_ns = (now.target_ns - before.target_ns).saturating_sub(ran_ns);
        let lost_ns = since.waited_ns.min(length_ns).saturating_sub(others_ns).min(left_ns);
        (lost_ns >= MIN_STALL_NS).then_some(Stall { from_ns, until_ns: now.at_ns, lost_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn look(at_ms: u64, target_ms: u64, own_ms: u64) -> Look {
        Look { at_ns: at_ms * MS, target_ns: target_ms * MS, own_ns: own_ms * MS }
    }

    /// Returns the stall of a thread on a machine with two cores. The thread's waits, 7 ms in
    /// total, ended between 12 and 16 ms, and in that time the thread ran for `ran_ms`. The looks
    /// are 4 ms apart, from 0 on. At each look, the target has used the processor time in
    /// `target_ms`. At the last look, the generator has used `generator_ms`.
    fn stall(target_ms: [u64; 5], generator_ms: u64, ran_ms: u64) -> Option<Stall> {
        let mut waits = Waits::default();
        for (number, target_ms) in (0..).zip(target_ms) {
            waits.add(look(number * 4, target_ms, target_ms + generator_ms * number / 4));
        }
        Idle::default().stall(&waits.looks, since(ran_ms, 7), 2)
    }

    fn since(ran_ms: u64, waited_ms: u64) -> Since {
        Since { ran_ns: ran_ms * MS, waited_ns: waited_ms * MS }
    }

    #[test]
    fn a_wait_for_other_programs_is_a_stall() {
        let found = Stall { from_ns: 5 * MS, until_ns: 16 * MS, lost_ns: 7 * MS };
        assert_eq!(stall([0; 5], 0, 0), Some(found));
        assert_eq!(stall([0, 0, 1, 1, 1], 4, 0).map(|stall| stall.lost_ns), Some(6 * MS));
        assert_eq!(
            stall([0, 0, 1, 1, 2], 4, 1).map(|stall| stall.lost_ns),
            Some(6 * MS),
            "the thread's own processor time is not another thread's"
        );
    }

    #[test]
    fn a_wait_for_the_target_or_the_generator_is_no_stall() {
        assert_eq!((stall([0, 4, 8, 12, 16], 0, 0), stall([0; 5], 32, 0)), (None, None));
        // Another thread of the target has the core for half of the time.
        let mut waits = Waits::default();
        let mut idle = Idle::default();
        for turn in 0..9 {
            waits.add(look(turn * 4, turn * 3, turn * 3));
            assert_eq!(idle.stall(&waits.looks, since(1, 2), 2), None);
        }
    }

    #[test]
    fn a_wait_begins_after_the_thread_last_ran() {
        // The thread ran for a quarter of the time. Then no look came for 20 ms, and the thread
        // waited for 16 ms of this time.
        let mut waits = Waits::default();
        let mut idle = Idle::default();
        for turn in 0..=6 {
            waits.add(look(turn * 4, turn, turn));
            assert_eq!(idle.stall(&waits.looks, since(1, 0), 2), None);
        }
        waits.add(look(44, 7, 7));
        let found = Stall { from_ns: 20 * MS, until_ns: 44 * MS, lost_ns: 16 * MS };
        assert_eq!(idle.stall(&waits.looks, since(1, 16), 2), Some(found));
        assert_eq!(waits.not_of_target_ns(26 * MS, 43 * MS), 16 * MS);
        assert_eq!(waits.not_of_target_ns(20 * MS, 24 * MS), 3 * MS);
    }

    #[test]
    fn lateness_before_the_first_look_is_left_out() {
        let mut waits = Waits::default();
        waits.add(look(30, 0, 0));
        assert_eq!([10 * MS, 40 * MS].map(|until_ns| waits.not_of_target_ns(MS, until_ns)), [0, 10 * MS]);
    }

    #[test]
    fn a_wait_counts_from_the_first_look_on() {
        let mut waits = Waits::default();
        let mut idle = Idle::default();
        waits.add(look(4, 0, 0));
        assert_eq!(idle.stall(&waits.looks, since(0, 100), 2), None, "the first look");
        waits.add(look(8, 0, 0));
        let found = Stall { from_ns: 4 * MS, until_ns: 8 * MS, lost_ns: 4 * MS };
        assert_eq!(idle.stall(&waits.looks, since(0, 100), 2), Some(found));
    }
}
