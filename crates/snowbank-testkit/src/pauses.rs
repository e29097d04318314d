//! Evidence that the machine was too busy to run a process. The kernel counts the time for which
//! each thread waits for a core. In addition, the thread that reads these counts notices when it
//! wakes up too late.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The shortest total wait that counts as a pause.
const PAUSE: Duration = Duration::from_millis(300);
/// The time between two measurements of the threads.
const INTERVAL: Duration = Duration::from_millis(20);

/// One measurement: the longest time for which any one thread has waited for a core since the
/// previous measurement.
#[derive(Debug)]
struct Look {
    at: Instant,
    waited: Duration,
}

/// A thread that watches processes. It ends at a call of [`PauseWatch::end`], or when this value is
/// dropped.
#[derive(Debug)]
pub(crate) struct PauseWatch {
    end: Sender<()>,
    thread: JoinHandle<Vec<Look>>,
}

impl PauseWatch {
    pub(crate) fn of(processes: Vec<u32>) -> PauseWatch {
        let (end, ended) = mpsc::channel();
        PauseWatch { end, thread: thread::spawn(move || watch(&processes, &ended)) }
    }

    pub(crate) fn end(self) -> Pauses {
        drop(self.end);
        Pauses(self.thread.join().expect("the watch does not panic"))
    }
}

#[derive(Debug)]
pub(crate) struct Pauses(Vec<Look>);

impl Pauses {
    /// Returns whether the processes waited for a core for [`PAUSE`] or longer in total between
    /// these moments.
    pub(crate) fn explain(&self, from: Instant, to: Instant) -> bool {
        let within = |look: &Look| {
            let begun = look.at.checked_sub(look.waited).unwrap_or(look.at);
            look.at.min(to).saturating_duration_since(begun.max(from))
        };
        self.0.iter().map(within).sum::<Duration>() >= PAUSE
    }
}

fn watch(processes: &[u32], ended: &Receiver<()>) -> Vec<Look> {
    let mut looks = Vec::new();
    let mut before = Instant::now();
    let mut waits_before = waits_for_a_core(processes);
    loop {
        let is_last = ended.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout);
        let at = Instant::now();
        let waits = waits_for_a_core(processes);
        let growth = |(thread, &wait): (&PathBuf, &Duration)| {
            wait.saturating_sub(waits_before.get(thread).copied().unwrap_or_default())
        };
        let mut waited = waits.iter().map(growth).max().unwrap_or_default();
        let overslept = (at - before).saturating_sub(INTERVAL);
        if overslept >= PAUSE {
            waited = waited.max(overslept);
        }
        looks.push(Look { at, waited });
        if is_last {
            return looks;
        }
        (before, waits_before) = (at, waits);
    }
}

/// Returns how long each thread has waited for a core so far. Threads that have ended are left out.
fn waits_for_a_core(processes: &[u32]) -> HashMap<PathBuf, Duration> {
    let threads = processes.iter().filter_map(|id| std::fs::read_dir(format!("/proc/{id}/task")).ok());
    let mut waits = HashMap::new();
    for thread in threads.flatten().flatten() {
        let path = thread.path();
        // The second number is the wait in nanoseconds.
        if let Ok(text) = std::fs::read_to_string(path.join("schedstat"))
            && let Some(Ok(wait_ns)) = text.split(' ').nth(1).map(str::parse)
        {
            waits.insert(path, Duration::from_nanos(wait_ns));
        }
    }
    waits
}
