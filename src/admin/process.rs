//! The system's figures of this process.

use std::fs;

/// The system's figures of this process. A figure that is not available is `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    pub(super) cpu_s: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_files: Option<u64>,
    pub(super) max_files: Option<u64>,
}

impl Process {
    /// Reads /proc.
    pub(crate) fn look() -> Process {
        use rustix::param::{clock_ticks_per_second, page_size};
        use rustix::process::{Resource, getrlimit};
        let cpu_ticks = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_ticks(&stat));
        let pages = fs::read_to_string("/proc/self/statm").ok().and_then(|statm| resident_pages(&statm));
        Process {
            cpu_s: cpu_ticks.map(|ticks| ticks as f64 / clock_ticks_per_second() as f64),
            resident_bytes: pages.map(|pages| pages * page_size() as u64),
            open_files: open_files(),
            max_files: getrlimit(Resource::Nofile).current,
        }
    }
}

/// Counts the open files. Since Linux 6.2 the directory's size is their number. Before, they must
/// be listed, which is slow for tens of thousands.
fn open_files() -> Option<u64> {
    const FILES: &str = "/proc/self/fd";
    match fs::metadata(FILES).ok()?.len() {
        // The listed directory is one of them, and is closed afterwards.
        0 => Some(fs::read_dir(FILES).ok()?.count().saturating_sub(1) as u64),
        open => Some(open),
    }
}

/// Parses user and system time from proc_pid_stat(5), whose second field is a name with any
/// characters.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let after_name = stat.rsplit_once(')')?.1;
    // The first field after the name is the third of all; times are the 14th and 15th.
    let mut times = after_name.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

/// Parses the second field of proc_pid_statm(5).
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "4711 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 120 30 0 0 20 0 4 0 100 0 0";
        assert_eq!(cpu_ticks(stat), Some(150));
        assert_eq!(cpu_ticks("4711 (a"), None);
        assert_eq!(resident_pages("1000 250 80 1 0 90 0\n"), Some(250));
        assert_eq!(resident_pages(""), None);
    }

    #[test]
    fn this_process_is_there() {
        let process = Process::look();
        assert!(process.resident_bytes.is_some_and(|bytes| bytes > 100_000), "{process:?}");
        assert!(process.open_files.is_some_and(|files| files > 2), "{process:?}");
        assert!(process.cpu_s.is_some() && process.max_files.is_some(), "{process:?}");
    }
}
