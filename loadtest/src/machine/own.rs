//! The processor time of the generator, of the target's processes and of their children.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::owner::Owner;
use super::processor;
use crate::target::Used;

/// New children are looked for at most this often.
const REFRESH: Duration = Duration::from_millis(20);

/// The most processes of one target that are read.
const PROCESSES_MAX: usize = 256;

/// The most threads of a target that are read; more would take too long.
pub(super) const THREADS_MAX: usize = 64;

/// Sums up what generator and target used of the cores.
#[derive(Debug)]
pub(crate) struct OwnTime {
    /// Of the targets, in their order.
    pub(super) owners: Vec<Owner>,
    looked: Instant,
    /// The time that each process of the target had used when it was last read.
    processes: BTreeMap<u32, u64>,
    /// Their processor time since they were first seen.
    target_ns: u64,
}

impl OwnTime {
    pub(crate) fn of(owners: Vec<Owner>) -> Self {
        let mut own = Self { owners, looked: Instant::now(), processes: BTreeMap::new(), target_ns: 0 };
        own.look();
        // The time before the run.
        own.processes.iter_mut().for_each(|(&process, used_ns)| *used_ns = used_by(process).unwrap_or(0));
        own
    }

    /// Returns what all have used. `is_stalled` looks for new children first, which may be the
    /// cause.
    pub(crate) fn used_ns(&mut self, is_stalled: bool) -> u64 {
        if is_stalled && self.looked.elapsed() >= REFRESH {
            self.look();
        }
        self.target_used_ns() + generator_ns()
    }

    /// Returns what the target's processes have used since they were first seen, if all can be
    /// seen.
    pub(super) fn target_used(&mut self) -> Used {
        self.look();
        let used_ns = self.target_used_ns();
        if self.owners.is_empty() || self.owners.iter().any(|owner| owner.process().is_none()) {
            return Used::default();
        }
        // A process that was killed has none.
        let memory = self.processes.keys().filter_map(|&process| processor::memory_of_process(process));
        Used { cpu: Some(Duration::from_nanos(used_ns)), memory: memory.reduce(|all, one| all + one) }
    }

    /// Returns the processor time of the target's processes since they were first seen.
    pub(super) fn target_used_ns(&mut self) -> u64 {
        for (&process, before_ns) in &mut self.processes {
            // One that has ended uses no more.
            if let Some(now_ns) = used_by(process) {
                self.target_ns += now_ns.saturating_sub(std::mem::replace(before_ns, now_ns));
            }
        }
        self.target_ns
    }

    /// Returns the target's processes.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    /// Returns the processor time of all threads of the target, so far as they ran on this core
    /// last.
    pub(super) fn threads_on(&self, core: usize) -> BTreeMap<u32, u64> {
        let threads = threads_of(self.processes.keys()).take(THREADS_MAX);
        let on_core = threads.filter_map(|thread| {
            let (used_ns, last_core) = of_thread(&thread)?;
            let number = thread.file_name()?.to_str()?.parse().ok()?;
            (last_core == core).then_some((number, used_ns))
        });
        on_core.collect()
    }

    /// Finds the target's processes. One that was not there before has used its time since.
    fn look(&mut self) {
        self.looked = Instant::now();
        let mut found: Vec<u32> = self.owners.iter().filter_map(|owner| owner.process()).collect();
        let mut at = 0;
        while at < found.len().min(PROCESSES_MAX) {
            found.extend(children_of(found[at]));
            at += 1;
        }
        // A load test that its target has started is the generator.
        found.retain(|&process| process != std::process::id());
        self.processes.retain(|process, _| found.contains(process));
        for process in found {
            self.processes.entry(process).or_insert(0);
        }
    }
}

/// The processor time of the target's threads at an instant, of those that ran on one core last.
#[derive(Debug, Clone)]
pub(super) struct Threads {
    pub(super) at_ns: u64,
    pub(super) used_ns: BTreeMap<u32, u64>,
}

impl Threads {
    /// Returns the least that they used of the core since `from_ns`, by an earlier look: all that
    /// they used since then, less the time between that look and `from_ns`.
    pub(super) fn used_since(&self, earlier: &Self, from_ns: u64) -> u64 {
        let used = self.used_ns.iter().map(|(thread, now_ns)| {
            earlier.used_ns.get(thread).map_or(0, |before_ns| now_ns.saturating_sub(*before_ns))
        });
        // One core runs one thread at a time.
        let used_ns = used.sum::<u64>().min(self.at_ns - earlier.at_ns);
        used_ns.saturating_sub(from_ns.saturating_sub(earlier.at_ns))
    }
}

/// Returns the processor time of a thread, and the core that it ran on last.
fn of_thread(path: &Path) -> Option<(u64, usize)> {
    let used_ns = std::fs::read_to_string(path.join("schedstat")).ok()?;
    let stat = std::fs::read_to_string(path.join("stat")).ok()?;
    // A name may have blanks; the 39th word is the core, and the name is the second.
    let core = stat.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok()?;
    Some((used_ns.split(' ').next()?.parse().ok()?, core))
}

/// Returns the directories of the threads of some processes.
pub(super) fn threads_of<'a>(processes: impl Iterator<Item = &'a u32>) -> impl Iterator<Item = PathBuf> {
    let entries = processes.flat_map(|process| std::fs::read_dir(format!("/proc/{process}/task")));
    entries.flatten().flatten().map(|entry| entry.path())
}

fn children_of(process: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for thread in threads_of([process].iter()) {
        // Each thread lists the processes that it started. One that has ended has no list.
        let list = std::fs::read_to_string(thread.join("children")).unwrap_or_default();
        children.extend(list.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
    }
    children
}

/// Returns the processor time of the load test itself.
pub(super) fn generator_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// Returns the processor time that a process has used, in nanoseconds: also that of threads that
/// have ended.
fn used_by(process: u32) -> Option<u64> {
    nanoseconds(clock_getcpuclockid(Pid::from_raw(i32::try_from(process).ok()?)).ok()?)
}

fn nanoseconds(clock: ClockId) -> Option<u64> {
    Some(Duration::from(clock_gettime(clock).ok()?).as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_thread_that_had_the_core_throughout_used_it_in_the_nap() {
        let of =
            |at_ns, used_ns: &[(u32, u64)]| Threads { at_ns, used_ns: used_ns.iter().copied().collect() };
        let before = of(1_000, &[(7, 50), (8, 0)]);
        // From 1,000 to 1,500; the nap begins at 1,100.
        assert_eq!(of(1_500, &[(7, 550)]).used_since(&before, 1_100), 400);
        assert_eq!(of(1_500, &[(7, 120)]).used_since(&before, 1_100), 0, "it may have run before the nap");
        assert_eq!(of(1_500, &[(9, 500)]).used_since(&before, 1_100), 0, "it was on another core");
    }

    #[test]
    fn a_child_that_burns_is_the_targets_own_time() {
        // The shell waits for the loop, which is its child.
        let mut target =
            Command::new("sh").args(["-c", "(while :; do :; done); true"]).spawn().expect("it starts");
        let mut own = OwnTime::of(vec![Owner::Process(target.id())]);
        let begun = Instant::now();
        own.used_ns(true);
        while own.target_ns < 30_000_000 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it burns: {own:?}");
            std::thread::sleep(Duration::from_millis(5));
            own.used_ns(true);
        }
        for child in children_of(target.id()) {
            let child = rustix::process::Pid::from_raw(child as i32).expect("a process ID");
            rustix::process::kill_process(child, rustix::process::Signal::KILL).expect("it runs");
        }
        target.wait().expect("it ends");
    }
}
