//! The processor time of the generator, of the target's processes and of their children.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::owner::Owners;

/// New children are looked for at most this often.
const REFRESH: Duration = Duration::from_millis(20);

/// The most processes of one target that are read.
const PROCESSES_MAX: usize = 256;

/// Sums up what generator and target used of the cores.
#[derive(Debug)]
pub(crate) struct OwnTime {
    owners: Owners,
    looked: Instant,
    /// The time that each process of the target had used when it was last read.
    processes: BTreeMap<u32, u64>,
    /// Their processor time since they were first seen.
    target_ns: u64,
}

impl OwnTime {
    pub(crate) fn of(owners: Owners) -> Self {
        let mut own = Self { owners, looked: Instant::now(), processes: BTreeMap::new(), target_ns: 0 };
        own.look();
        // The time before the run.
        own.processes.iter_mut().for_each(|(&process, used_ns)| *used_ns = used_by(process).unwrap_or(0));
        own
    }

    /// Returns what all have used. `is_stalled` looks for new children first, which may be the cause.
    pub(crate) fn used_ns(&mut self, is_stalled: bool) -> u64 {
        if is_stalled && self.looked.elapsed() >= REFRESH {
            self.look();
        }
        for (&process, before_ns) in &mut self.processes {
            // One that has ended uses no more.
            if let Some(now_ns) = used_by(process) {
                self.target_ns += now_ns.saturating_sub(std::mem::replace(before_ns, now_ns));
            }
        }
        self.target_ns + nanoseconds(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
    }

    /// Finds the target's processes. One that was not there before has used its time since.
    fn look(&mut self) {
        self.looked = Instant::now();
        let mut found: Vec<u32> = self.owners.now().all.iter().filter_map(|owner| owner.process()).collect();
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

fn children_of(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

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
    use crate::machine::owner::Owner;

    #[test]
    fn a_child_that_burns_is_the_targets_own_time() {
        // The shell waits for the loop, which is its child.
        let mut target =
            Command::new("sh").args(["-c", "(while :; do :; done); true"]).spawn().expect("it starts");
        let mut own = OwnTime::of(Owners::new(vec![Owner::Process(target.id())]));
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
