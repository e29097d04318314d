//! The times for which a thread ran, and for which it waited for a core, and the memory of a
//! process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time for which the calling thread has run.
pub(crate) fn ran() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Returns the resident memory of a process in bytes.
pub(crate) fn memory_of_process(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?;
    kib.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// The times for which a thread ran and waited since an earlier reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) ran_ns: u64,
    /// The time for which the thread was ready to run but had no core. Another thread had it, or a
    /// CPU quota was used up.
    pub(crate) waited_ns: u64,
}

/// Measures how long a thread ran and how long it waited for a core between two calls of
/// [`since_last`](Self::since_last).
#[derive(Debug)]
pub(crate) struct RunDelay {
    file: Option<File>,
    /// The times from the start of the thread to the last reading.
    seen: Since,
}

impl RunDelay {
    pub(crate) fn this_thread() -> Self {
        Self::thread(Path::new("/proc/thread-self"))
    }

    /// Measures the thread whose directory in `/proc` is `thread`.
    pub(super) fn thread(thread: &Path) -> Self {
        let mut delay = Self { file: File::open(thread.join("schedstat")).ok(), seen: Since::default() };
        delay.since_last();
        delay
    }

    /// Returns the times since the last call; 0 if unknown.
    pub(crate) fn since_last(&mut self) -> Since {
        let mut text = [0; 96];
        let size = self.file.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let schedstat = std::str::from_utf8(&text[..size]).unwrap_or_default();
        let mut numbers = schedstat.split_whitespace().map_while(|number| number.parse().ok());
        let (Some(ran_ns), Some(waited_ns)) = (numbers.next(), numbers.next()) else {
            return Since::default();
        };
        let before = std::mem::replace(&mut self.seen, Since { ran_ns, waited_ns });
        Since {
            ran_ns: ran_ns.saturating_sub(before.ran_ns),
            waited_ns: waited_ns.saturating_sub(before.waited_ns),
        }
    }
}
