//! The target's waits for a core.
//!
//! A sleeper hardly runs, so the kernel lets it run soon even where other programs share its core.
//! A thread of the target that works may have to wait until each of them had its turn. The kernel
//! counts that time for each thread.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use super::own::{THREADS_MAX, threads_of};
use super::processor::RunDelay;
use super::stalls::{MIN_STALL_NS, Stall};

/// The time between two looks: short in comparison with any wait that matters.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_millis(4);

/// The number of looks after which new threads are looked for.
pub(super) const LOOKS_PER_SEARCH: u32 = 25;

/// The looks that are remembered: a longer wait counts for four seconds.
const REMEMBERED: usize = 1_024;

/// The processor time used until a look, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) at_ns: u64,
    /// By the target.
    pub(crate) target_ns: u64,
    /// By target and generator.
    pub(crate) own_ns: u64,
}

/// The waits of the target's threads, told from look to look.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    threads: BTreeMap<PathBuf, RunDelay>,
    looks: VecDeque<Look>,
}

impl Waits {
    /// Takes the target's processes, and finds their threads.
    pub(super) fn find_threads<'a>(&mut self, processes: impl Iterator<Item = &'a u32>) {
        let found: Vec<PathBuf> = threads_of(processes).take(THREADS_MAX).collect();
        self.threads.retain(|thread, _| found.contains(thread));
        for thread in found {
            self.threads.entry(thread).or_insert_with_key(|thread| RunDelay::of_thread(thread));
        }
    }

    /// Returns the stall behind the waits since the last look, those of the thread that waited
    /// most.
    pub(super) fn look(&mut self, now: Look, cores: u64) -> Option<Stall> {
        let waited_ns = self.threads.values_mut().map(RunDelay::since_last_ns).max().unwrap_or(0);
        self.stall(now, cores, waited_ns)
    }

    /// A wait ended after the last look, so it began its own length before that at the earliest.
    /// What the target ran meanwhile is not lost: one of its threads may have waited for another.
    /// Nor is more lost than target and generator left of all cores.
    pub(crate) fn stall(&mut self, now: Look, cores: u64, waited_ns: u64) -> Option<Stall> {
        self.looks.push_back(now);
        if self.looks.len() > REMEMBERED {
            self.looks.pop_front();
        }
        let last_ns = self.looks.iter().rev().nth(1)?.at_ns;
        let from_ns = last_ns.saturating_sub(waited_ns).max(self.looks[0].at_ns);
        let before = self.looks[self.looks.partition_point(|look| look.at_ns <= from_ns) - 1];
        let left_ns = (cores * (now.at_ns - from_ns)).saturating_sub(now.own_ns - before.own_ns);
        let lost_ns = waited_ns.saturating_sub(now.target_ns - before.target_ns).min(left_ns);
        let lost_ns = lost_ns.min(now.at_ns - from_ns);
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

    /// Returns the stall of a wait of 7 ms that ended between 12 and 16 ms, on two cores. The
    /// target has used so much at each look, 4 ms apart from 0 on, and the generator as much as is
    /// given.
    fn stall(target_ms: [u64; 5], generator_ms: u64) -> Option<Stall> {
        let mut waits = Waits::default();
        let mut found = None;
        for (number, target_ms) in (0..).zip(target_ms) {
            assert_eq!(found, None, "nothing waited yet");
            let look = look(number * 4, target_ms, target_ms + generator_ms * number / 4);
            found = waits.stall(look, 2, if number == 4 { 7 * MS } else { 0 });
        }
        found
    }

    #[test]
    fn a_wait_for_other_programs_is_a_stall() {
        let found = Stall { from_ns: 5 * MS, until_ns: 16 * MS, lost_ns: 7 * MS };
        assert_eq!(stall([0; 5], 0), Some(found));
        assert_eq!(stall([0, 0, 1, 1, 1], 4).map(|stall| stall.lost_ns), Some(6 * MS));
    }

    #[test]
    fn a_wait_for_the_target_or_the_generator_is_no_stall() {
        assert_eq!((stall([0, 4, 8, 12, 16], 0), stall([0; 5], 32)), (None, None));
    }

    #[test]
    fn a_wait_counts_from_the_first_look_on() {
        let mut waits = Waits::default();
        assert_eq!(waits.stall(look(4, 0, 0), 2, 100 * MS), None, "the first look");
        let found = Stall { from_ns: 4 * MS, until_ns: 8 * MS, lost_ns: 4 * MS };
        assert_eq!(waits.stall(look(8, 0, 0), 2, 100 * MS), Some(found));
    }
}
