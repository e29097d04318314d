//! The processor time and the waits of the generator's and the target's threads.
//!
//! The kernel keeps for each thread how long it ran, and how long it could have run and did not. A wait that
//! these threads did not cause themselves was caused by another program, or by the host. How much of a wait
//! they caused is an estimate: their share of one core meanwhile. They may have used another core, so the work
//! of all programs counts as well: see [`Cores`]. A wait is excused if others caused a quarter of it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::LONGEST_STOP_NS;
use super::cores::Cores;
#[cfg(test)]
use super::owner::Owner;
use super::owner::{Known, Owners};
use super::stalls::{MIN_STALL_NS, Stall, StallSum, Stalls};

/// The name of the threads that carry the load.
pub(crate) const LOAD_THREAD: &str = "load";

/// Threads that begin or end are seen after this time.
const REFRESH_NS: u64 = 1_000_000_000;

/// The number of looks for which processor times are kept: some hundred milliseconds, longer than any stall
/// that a run survives.
const LOOKS_KEPT: usize = 64;

/// A wait is excused if others caused at least this share of it.
const EXCUSED_SHARE: f64 = 0.25;

/// The threads whose waits count.
#[derive(Debug)]
pub(crate) struct Threads {
    owners: Owners,
    /// Those of the last look.
    owners_then: Known,
    known: BTreeMap<u32, Thread>,
    refreshed_ns: Option<u64>,
    /// Ascending.
    looks: VecDeque<Look>,
    cores: Cores,
    /// The processor time of threads that have ended.
    ended: Ran,
    /// The generator's waits that the target caused.
    by_target: StallSum,
    /// Those that the generator caused itself.
    by_generator: StallSum,
}

/// The processor time of both sides, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ran {
    pub(super) generator_ns: u64,
    pub(super) target_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    at_ns: u64,
    ran: Ran,
}

#[derive(Debug)]
struct Thread {
    file: File,
    is_target: bool,
    /// True if its waits count: those of the target's threads, and of the generator's that carry the load.
    is_loaded: bool,
    /// When it was first seen, and its processor time then.
    seen_ns: u64,
    first_ns: u64,
    ran_ns: u64,
    waited_ns: u64,
}

/// A wait, split among its causes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Causes {
    others_ns: u64,
    target_ns: u64,
    generator_ns: u64,
}

/// The generator's longer waits that were not the machine's fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OwnWaits {
    /// The target had the cores.
    pub(crate) by_target: StallSum,
    /// The generator had them itself.
    pub(crate) by_generator: StallSum,
}

impl Threads {
    /// Takes the owners of the targets' sockets; the generator is this process.
    pub(crate) fn new(owners: Owners) -> Self {
        Self {
            owners_then: owners.now(),
            owners,
            known: BTreeMap::new(),
            refreshed_ns: None,
            looks: VecDeque::new(),
            cores: Cores::begin(),
            ended: Ran::default(),
            by_target: StallSum::default(),
            by_generator: StallSum::default(),
        }
    }

    /// Returns the largest share of a core that one thread of the target used, if it is on this machine.
    pub(super) fn busiest_of_target(&self) -> Option<f64> {
        let now_ns = self.looks.back()?.at_ns;
        let of_target = self.known.values().filter(|thread| thread.is_target);
        let share = |thread: &Thread| {
            (thread.ran_ns - thread.first_ns) as f64 / now_ns.saturating_sub(thread.seen_ns).max(1) as f64
        };
        of_target.map(share).reduce(f64::max)
    }

    pub(crate) fn own_waits(&self) -> OwnWaits {
        OwnWaits { by_target: self.by_target, by_generator: self.by_generator }
    }

    /// Reads every thread, and notes the waits that something else caused.
    pub(super) fn look(&mut self, now_ns: u64, stalls: &Stalls) {
        let owners = self.owners.now();
        let is_other = owners != self.owners_then;
        self.owners_then = owners;
        if is_other || self.refreshed_ns.is_none_or(|at_ns| now_ns >= at_ns + REFRESH_NS) {
            self.refreshed_ns = Some(now_ns);
            self.refresh(now_ns);
        }
        let waits = self.read(now_ns);
        self.note(now_ns, waits, stalls);
    }

    /// Notes the waits since the last look that something else caused, each with true if it was the target's.
    fn note(&mut self, now_ns: u64, waits: impl IntoIterator<Item = (bool, u64)>, stalls: &Stalls) {
        // A wait ended since the last look.
        let since_ns = self.looks.iter().rev().nth(1).map_or(now_ns, |look| look.at_ns);
        // If this process itself was stopped, the target ran on, and its wait is the sum of many.
        let is_blind = now_ns.saturating_sub(since_ns) > LONGEST_STOP_NS;
        let counts =
            |&(is_target, waited_ns): &(bool, u64)| waited_ns >= MIN_STALL_NS && !(is_target && is_blind);
        for (is_target, waited_ns) in waits.into_iter().filter(counts) {
            let from_ns = since_ns.saturating_sub(waited_ns);
            let causes = self.causes(from_ns, waited_ns);
            let most_ns = causes.target_ns.max(causes.generator_ns);
            if causes.others_ns as f64 >= waited_ns as f64 * EXCUSED_SHARE {
                stalls.add(Stall { from_ns, until_ns: now_ns, lost_ns: waited_ns });
            } else if is_target || most_ns < MIN_STALL_NS || !stalls.counts(now_ns) {
                // The target's waits for itself are part of its time. Those of the warm-up do not count.
            } else if causes.target_ns == most_ns {
                self.by_target = self.by_target.with_length(waited_ns);
            } else {
                self.by_generator = self.by_generator.with_length(waited_ns);
            }
        }
    }

    /// Splits a wait since `from_ns` among its causes: those who used the cores meanwhile. The use of all
    /// cores by others counts if it is more.
    fn causes(&self, from_ns: u64, waited_ns: u64) -> Causes {
        let mut before = self.looks.iter().rev().skip_while(|look| look.at_ns > from_ns);
        let Some((begin, end)) = before.next().or(self.looks.front()).zip(self.looks.back()) else {
            return Causes::default();
        };
        let length_ns = end.at_ns.saturating_sub(begin.at_ns);
        if !self.owners_then.are_known() || length_ns == 0 {
            return Causes::default();
        }
        let share = |from_ns: u64, until_ns: u64| until_ns.saturating_sub(from_ns) as f64 / length_ns as f64;
        let generator = share(begin.ran.generator_ns, end.ran.generator_ns);
        let target = share(begin.ran.target_ns, end.ran.target_ns);
        // More than one core in all: no part of a wait for one core is left for others.
        let all = (generator + target).max(1.0);
        let part = |share: f64| (waited_ns as f64 * share / all) as u64;
        let of_all = (waited_ns as f64 * self.cores.share_of_others(end.ran)) as u64;
        Causes {
            others_ns: part((1.0 - generator - target).max(0.0)).max(of_all),
            target_ns: part(target),
            generator_ns: part(generator),
        }
    }

    /// Reads all threads. Returns their waits since the last look, and true with those of the target.
    fn read(&mut self, now_ns: u64) -> Vec<(bool, u64)> {
        let read = |thread: &mut Thread| (thread.is_target, thread.read() * u64::from(thread.is_loaded));
        let waits = self.known.values_mut().map(read).collect();
        let ran = self.known.values().fold(self.ended, Ran::with);
        self.looks.push_back(Look { at_ns: now_ns, ran });
        self.cores.look(now_ns, ran);
        if self.looks.len() > LOOKS_KEPT {
            self.looks.pop_front();
        }
        waits
    }

    /// Returns a record without threads, for [`simulate`](Self::simulate).
    #[cfg(test)]
    pub(crate) fn simulated() -> Self {
        Self { cores: Cores::default(), ..Self::new(Owners::new(vec![Owner::Process(1)])) }
    }

    /// Looks at simulated threads: the instant, both processor times until then, and the waits since the last.
    #[cfg(test)]
    pub(crate) fn simulate(
        &mut self,
        (at_ns, generator_ns, target_ns): (u64, u64, u64),
        waits: [(bool, u64); 3],
        stalls: &Stalls,
    ) {
        self.looks.push_back(Look { at_ns, ran: Ran { generator_ns, target_ns } });
        if self.looks.len() > LOOKS_KEPT {
            self.looks.pop_front();
        }
        self.note(at_ns, waits, stalls);
    }

    fn refresh(&mut self, now_ns: u64) {
        let mut present = BTreeMap::new();
        let targets = self.owners_then.all.iter().filter_map(|owner| owner.process());
        for (process, is_target) in
            [(std::process::id(), false)].into_iter().chain(targets.map(|id| (id, true)))
        {
            present.extend(tasks(process).into_iter().map(|(id, path)| (id, (path, is_target))));
        }
        let ended = &mut self.ended;
        self.known.retain(|id, thread| {
            let is_there = present.contains_key(id);
            *ended = if is_there { *ended } else { ended.with(thread) };
            is_there
        });
        for (id, (path, is_target)) in present {
            if let (false, Ok(file)) = (self.known.contains_key(&id), File::open(&path)) {
                let name = std::fs::read_to_string(path.with_file_name("comm")).unwrap_or_default();
                let is_loaded = is_target || name.trim_end() == LOAD_THREAD;
                self.known.insert(id, Thread::new(file, now_ns, is_target, is_loaded));
            }
        }
    }
}

impl Ran {
    fn with(self, thread: &Thread) -> Self {
        let ran_ns = thread.ran_ns - thread.first_ns;
        match thread.is_target {
            true => Self { target_ns: self.target_ns + ran_ns, ..self },
            false => Self { generator_ns: self.generator_ns + ran_ns, ..self },
        }
    }
}

/// Returns the threads of a process, each with its file of /proc.
fn tasks(process: u32) -> Vec<(u32, std::path::PathBuf)> {
    let entries = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let id = |entry: &std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter_map(|entry| Some((id(&entry)?, entry.path().join("schedstat")))).collect()
}

impl Thread {
    fn new(file: File, seen_ns: u64, is_target: bool, is_loaded: bool) -> Self {
        let mut thread = Self { file, is_target, is_loaded, seen_ns, first_ns: 0, ran_ns: 0, waited_ns: 0 };
        thread.read();
        Self { first_ns: thread.ran_ns, ..thread }
    }

    /// Returns the wait since the last time; 0 of a thread that has ended.
    fn read(&mut self) -> u64 {
        let mut text = [0; 96];
        let size = self.file.read_at(&mut text, 0).unwrap_or(0);
        let text = std::str::from_utf8(&text[..size]).unwrap_or_default();
        let mut numbers = text.split_whitespace().map_while(|number| number.parse::<u64>().ok());
        let (Some(ran_ns), Some(waited_ns)) = (numbers.next(), numbers.next()) else {
            return 0;
        };
        self.ran_ns = ran_ns;
        waited_ns.saturating_sub(std::mem::replace(&mut self.waited_ns, waited_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every 4 ms for 100 ms at threads that use this share of a core.
    fn threads(generator: f64, target: f64) -> Threads {
        let mut threads = Threads::new(Owners::new(vec![Owner::Process(1)]));
        let look = |number: u64| {
            let at_ns = number * 4_000_000;
            let of = |share: f64| (share * at_ns as f64) as u64;
            Look { at_ns, ran: Ran { generator_ns: of(generator), target_ns: of(target) } }
        };
        threads.looks = (0..25).map(look).collect();
        threads.cores = Cores::default();
        threads
    }

    #[test]
    fn a_wait_is_excused_by_as_much_as_others_had_the_core() {
        let causes_ms = |generator, target| {
            let causes = threads(generator, target).causes(60_000_000, 10_000_000);
            [causes.others_ns, causes.target_ns, causes.generator_ns].map(|ns| ns / 100_000)
        };
        assert_eq!(causes_ms(0.0, 0.0), [100, 0, 0]);
        assert_eq!(causes_ms(0.25, 0.5), [25, 50, 25]);
        assert_eq!(causes_ms(0.0, 1.0), [0, 100, 0]);
        assert_eq!(causes_ms(0.5, 1.5), [0, 75, 25], "on two cores");
        let unknown = Known { all: vec![Owner::Unknown], changes: 1 };
        let unknown = Threads { owners_then: unknown, ..threads(0.0, 0.0) };
        assert_eq!(unknown.causes(60_000_000, 10_000_000), Causes::default());
    }

    #[test]
    fn the_process_that_a_target_has_after_a_restart_is_read() {
        let owners = Owners::new(vec![Owner::Remote]);
        let (mut threads, stalls) = (Threads::new(owners.clone()), Stalls::default());
        threads.look(1, &stalls);
        let is_of_target = |threads: &Threads| threads.known.values().any(|thread| thread.is_target);
        assert!(!is_of_target(&threads));
        let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        owners.set(0, Owner::Process(other.id()));
        threads.look(2, &stalls);
        assert!(is_of_target(&threads));
        other.kill().and_then(|()| other.wait()).expect("it ends");
    }

    #[test]
    fn the_threads_of_a_process_are_read() {
        let mut threads = Threads::new(Owners::new(vec![Owner::Remote]));
        let (stalls, begun) = (Stalls::default(), std::time::Instant::now());
        threads.look(1, &stalls);
        while threads.looks.back().is_none_or(|look| look.ran.generator_ns == 0) {
            assert!(begun.elapsed() < std::time::Duration::from_secs(30), "its processor time grows");
            threads.look(begun.elapsed().as_nanos() as u64 + 2, &stalls);
        }
    }
}
