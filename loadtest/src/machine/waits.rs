//! The target's waits for a core.
//!
//! A sleeper hardly runs, so the kernel lets it run soon even where other programs share its core. A thread of the
//! target that works may have to wait until each of them had its turn. The kernel counts that time for each thread.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use super::processor::RunDelay;
use super::stalls::{MIN_STALL_NS, Stall};

/// The time between two looks: short in comparison with any wait that matters.
pub(super) const LOOK_PERIOD: Duration = Duration::from_millis(4);

/// The number of looks after which new threads are looked for.
pub(super) const LOOKS_PER_SEARCH: u32 = 25;

/// The looks that are remembered: a longer wait counts for a quarter of a second.
const REMEMBERED: usize = 64;

/// The waits of the target's threads, told from look to look.
#[derive(Debug, Default)]
pub(super) struct Waits {
    threads: BTreeMap<PathBuf, RunDelay>,
    /// The target's processor time at each look, by the time of the look.
    used_ns: VecDeque<(u64, u64)>,
}

impl Waits {
    /// Takes the threads that the target has now.
    pub(super) fn set_threads(&mut self, found: Vec<PathBuf>) {
        self.threads.retain(|thread, _| found.contains(thread));
        for thread in found {
            self.threads.entry(thread).or_insert_with_key(|thread| RunDelay::of_thread(thread));
        }
    }

    /// Returns the stall behind the longest wait that has ended since the last look.
    pub(super) fn look(&mut self, now_ns: u64, used_ns: u64) -> Option<Stall> {
        let waited_ns = self.threads.values_mut().map(RunDelay::since_last_ns).max().unwrap_or(0);
        self.stall(now_ns, used_ns, waited_ns)
    }

    /// What the target itself ran meanwhile is not lost: one of its threads may have waited for another.
    fn stall(&mut self, now_ns: u64, used_ns: u64, waited_ns: u64) -> Option<Stall> {
        let &(first_ns, _) = self.used_ns.front().unwrap_or(&(now_ns, used_ns));
        let from_ns = now_ns.saturating_sub(waited_ns).max(first_ns);
        let before = self.used_ns.partition_point(|&(at_ns, _)| at_ns <= from_ns);
        let own_ns = before.checked_sub(1).map_or(0, |look| used_ns.saturating_sub(self.used_ns[look].1));
        self.used_ns.push_back((now_ns, used_ns));
        if self.used_ns.len() > REMEMBERED {
            self.used_ns.pop_front();
        }
        let lost_ns = (now_ns - from_ns).saturating_sub(own_ns);
        (lost_ns >= MIN_STALL_NS).then_some(Stall { from_ns, until_ns: now_ns, lost_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A target that has used so much at each look, 4 ms apart from 0 on.
    fn waits(used_ms: &[u64]) -> Waits {
        let used_ns = used_ms.iter().enumerate().map(|(look, used_ms)| (look as u64 * 4 * MS, used_ms * MS));
        Waits { used_ns: used_ns.collect(), ..Waits::default() }
    }

    #[test]
    fn a_wait_for_other_programs_is_a_stall() {
        let stall = Stall { from_ns: 9 * MS, until_ns: 16 * MS, lost_ns: 7 * MS };
        assert_eq!(waits(&[0, 1, 1, 1]).stall(16 * MS, MS, 7 * MS), Some(stall));
        assert_eq!(waits(&[0, 1, 1, 1]).stall(16 * MS, MS, MIN_STALL_NS - 1), None);
    }

    #[test]
    fn a_wait_for_threads_of_the_target_is_no_stall() {
        assert_eq!(waits(&[0, 4, 8, 12]).stall(16 * MS, 16 * MS, 7 * MS), None);
        let partly = waits(&[0, 1, 2, 3]).stall(16 * MS, 4 * MS, 8 * MS).expect("others ran, too");
        assert_eq!(partly.lost_ns, 6 * MS);
    }

    #[test]
    fn a_wait_counts_from_the_first_look_on() {
        let stall = Stall { from_ns: 0, until_ns: 8 * MS, lost_ns: 8 * MS };
        assert_eq!(waits(&[0, 0]).stall(8 * MS, 0, 100 * MS), Some(stall));
        assert_eq!(Waits::default().stall(8 * MS, 0, 100 * MS), None, "the first look");
    }
}
