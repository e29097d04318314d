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
    /// It counts where least of it is lost: what the target ran meanwhile is not, because one of
    /// its threads may have waited for another, and no more is than target and generator left of
    /// all cores. Between two looks they are taken to have run evenly.
    pub(crate) fn stall(&mut self, now: Look, cores: u64, waited_ns: u64) -> Option<Stall> {
        self.looks.push_back(now);
        if self.looks.len() > REMEMBERED {
            self.looks.pop_front();
        }
        if waited_ns < MIN_STALL_NS {
            return None;
        }
        let last_ns = self.looks.iter().rev().nth(1)?.at_ns;
        let from_ns = last_ns.saturating_sub(waited_ns).max(self.looks[0].at_ns);
        let waited_ns = waited_ns.min(now.at_ns - from_ns);
        // What they ran changes its pace at the looks only, so the extremes are at these.
        let ends = self.looks.iter().map(|look| look.at_ns).chain([from_ns + waited_ns]);
        let begins = ends.flat_map(|at_ns| [at_ns, at_ns.saturating_sub(waited_ns)]);
        let possible = begins.filter(|&at_ns| at_ns >= from_ns && at_ns + waited_ns <= now.at_ns);
        let lost_ns = possible.map(|begin_ns| self.lost_ns(begin_ns, waited_ns, cores)).min()?;
        (lost_ns >= MIN_STALL_NS).then(|| Stall::of_machine(from_ns, now.at_ns, lost_ns))
    }

    /// Returns what a generator left behind it that sent late what was due. The time that the
    /// target ran meanwhile is none of the machine's.
    pub(crate) fn late(&self, due_ns: u64, sent_ns: u64) -> Stall {
        let [before, after] = [due_ns, sent_ns].map(|at_ns| self.used_until(at_ns));
        let late_ns = (sent_ns - due_ns).saturating_sub(after.target_ns - before.target_ns);
        Stall::of_generator(due_ns, sent_ns, late_ns)
    }

    /// Returns how much of a wait is lost if it began at this instant.
    fn lost_ns(&self, begin_ns: u64, waited_ns: u64, cores: u64) -> u64 {
        let [before, after] = [begin_ns, begin_ns + waited_ns].map(|at_ns| self.used_until(at_ns));
        let left_ns = (cores * waited_ns).saturating_sub(after.own_ns - before.own_ns);
        waited_ns.saturating_sub(after.target_ns - before.target_ns).min(left_ns)
    }

    /// Returns what was used until an instant; until the first look that is remembered, if that is
    /// later.
    fn used_until(&self, at_ns: u64) -> Look {
        let at_ns = at_ns.max(self.looks[0].at_ns);
        let next = self.looks.partition_point(|look| look.at_ns <= at_ns);
        let (before, Some(&after)) = (self.looks[next - 1], self.looks.get(next)) else {
            return self.looks[next - 1];
        };
        let share = (at_ns - before.at_ns) as f64 / (after.at_ns - before.at_ns) as f64;
        let between = |from_ns: u64, until_ns: u64| from_ns + ((until_ns - from_ns) as f64 * share) as u64;
        Look {
            at_ns,
            target_ns: between(before.target_ns, after.target_ns),
            own_ns: between(before.own_ns, after.own_ns),
        }
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
        let found = Stall::of_machine(5 * MS, 16 * MS, 7 * MS);
        assert_eq!(stall([0; 5], 0), Some(found));
        assert_eq!(stall([0, 0, 0, 1, 1], 4).map(|stall| stall.lost_ns), Some(6 * MS));
    }

    #[test]
    fn a_wait_for_the_target_or_the_generator_is_no_stall() {
        assert_eq!((stall([0, 4, 8, 12, 16], 0), stall([0; 5], 32)), (None, None));
    }

    #[test]
    fn a_late_look_takes_from_a_wait_only_what_the_target_ran_in_its_time() {
        // It ran for a quarter of the time, and nothing looked for 20 ms, in which it waited for 16.
        let mut waits = Waits::default();
        (0..=6).for_each(|turn| assert_eq!(waits.stall(look(turn * 4, turn, turn), 2, 0), None));
        let found = waits.stall(look(44, 7, 7), 2, 16 * MS).map(|stall| stall.lost_ns);
        assert_eq!(found, Some(12 * MS), "not 10 ms, although it ran for 6 in all of 36");
    }

    #[test]
    fn a_wait_counts_from_the_first_look_on() {
        let mut waits = Waits::default();
        assert_eq!(waits.stall(look(4, 0, 0), 2, 100 * MS), None, "the first look");
        let found = Stall::of_machine(4 * MS, 8 * MS, 4 * MS);
        assert_eq!(waits.stall(look(8, 0, 0), 2, 100 * MS), Some(found));
    }
}
