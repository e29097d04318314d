//! The processor time of the generator, of the target's processes and of their children.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::owner::Owner;
use super::processor;

/// The most processes, of all targets together, whose children are looked up.
const PROCESSES_MAX: usize = 256;

/// The most threads, of all targets together, whose waits are read. More would take too long.
pub(super) const THREADS_MAX: usize = 64;

/// The target's use of this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Used {
    /// Processor time of all threads since the target was first seen.
    pub(crate) cpu: Option<Duration>,
    pub(crate) memory: Option<u64>,
}

/// Adds up the processor time of the targets' processes.
#[derive(Debug)]
pub(crate) struct OwnTime {
    /// The owners of the targets, in the order of the targets.
    pub(super) owners: Vec<Owner>,
    /// The target's processes that the last search found. For each process, the processor time that
    /// it had used at the last reading.
    pub(super) processes: BTreeMap<u32, u64>,
    /// The processor time of the target's processes since the target was first seen.
    target_ns: u64,
}

impl OwnTime {
    pub(crate) fn of(owners: Vec<Owner>) -> Self {
        let mut own = Self { owners, processes: BTreeMap::new(), target_ns: 0 };
        own.find_processes();
        // Time used before the run does not count.
        own.processes.iter_mut().for_each(|(&process, used_ns)| *used_ns = used_by(process).unwrap_or(0));
        own
    }

    /// Returns true if the processes of all targets can be seen.
    pub(super) fn sees_all(&self) -> bool {
        !self.owners.is_empty() && self.owners.iter().all(|owner| owner.process().is_some())
    }

    /// Returns the processor time that the target's processes have used since the target was first
    /// seen, and their memory. Both are `None` unless the processes of all targets can be seen.
    pub(super) fn target_used(&mut self) -> Used {
        self.find_processes();
        let used_ns = self.target_used_ns();
        if !self.sees_all() {
            return Used::default();
        }
        // A killed process has no memory.
        let memory = self.processes.keys().filter_map(|&process| processor::memory_of_process(process));
        Used { cpu: Some(Duration::from_nanos(used_ns)), memory: memory.reduce(|all, one| all + one) }
    }

    /// Returns the processor time of the target's processes since the target was first seen.
    pub(super) fn target_used_ns(&mut self) -> u64 {
        for (&process, before_ns) in &mut self.processes {
            // A process that has ended uses no more time.
            if let Some(now_ns) = used_by(process) {
                self.target_ns += now_ns.saturating_sub(std::mem::replace(before_ns, now_ns));
            }
        }
        self.target_ns
    }

    /// Finds the target's processes. A process that the last search did not find began during the
    /// run, so all its processor time counts.
    pub(super) fn find_processes(&mut self) {
        let mut found: Vec<u32> = self.owners.iter().filter_map(|owner| owner.process()).collect();
        let mut at = 0;
        while at < found.len().min(PROCESSES_MAX) {
            found.extend(children_of(found[at]));
            at += 1;
        }
        // If the target started this load test, the load test is a child of the target. But the
        // load test's processor time is the generator's.
        found.retain(|&process| process != std::process::id());
        self.processes.retain(|process, _| found.contains(process));
        for process in found {
            self.processes.entry(process).or_insert(0);
        }
    }
}

/// Returns the directories of the threads of some processes.
pub(super) fn threads_of<'a>(processes: impl Iterator<Item = &'a u32>) -> impl Iterator<Item = PathBuf> {
    let entries = processes.flat_map(|process| std::fs::read_dir(format!("/proc/{process}/task")));
    entries.flatten().flatten().map(|entry| entry.path())
}

fn children_of(process: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for thread in threads_of([process].iter()) {
        // Each thread lists the processes that it started. A thread that has ended has no list.
        let list = std::fs::read_to_string(thread.join("children")).unwrap_or_default();
        children.extend(list.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
    }
    children
}

/// Returns the processor time that a process has used, in nanoseconds, including that of ended
/// threads.
pub(super) fn used_by(process: u32) -> Option<u64> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(process).ok()?)).ok()?;
    Some(Duration::from(clock_gettime(clock).ok()?).as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn processor_time_of_a_child_is_the_targets() {
        // The shell waits for the loop, which is its child.
        let mut target =
            Command::new("sh").args(["-c", "(while :; do :; done); true"]).spawn().expect("it starts");
        let mut own = OwnTime::of(vec![Owner::Process(target.id())]);
        let begun = Instant::now();
        own.find_processes();
        while own.target_ns < 30_000_000 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the child uses processor time: {own:?}");
            std::thread::sleep(Duration::from_millis(5));
            own.find_processes();
            own.target_used_ns();
        }
        for child in children_of(target.id()) {
            let child = rustix::process::Pid::from_raw(child as i32).expect("a process ID");
            rustix::process::kill_process(child, rustix::process::Signal::KILL).expect("it runs");
        }
        target.wait().expect("it ends");
    }
}
