//! The CPU time, memory and open files of this process, as the kernel counts them.

use std::fs;

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::figures::Figure::{CpuS, OpenFiles, OpenFilesMax, ResidentBytes};
use super::samples::Subject;

/// Adds the kernel's figures about this process. A figure that the kernel does not give is null.
pub(crate) fn put(daemon: &mut Subject) {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    // The memory in use is the second field: see proc_pid_statm(5).
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    daemon
        .put(CpuS, cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9)
        .put(ResidentBytes, pages.map(|pages| pages * page_size() as u64))
        .put(OpenFiles, open_files())
        .put(OpenFilesMax, getrlimit(Resource::Nofile).current);
}

/// Counts the open files. Since Linux 6.2, the size of the directory `fd` is the number of open
/// files. Older kernels return a size of 0. On these, the directory must be listed, which is slow
/// if tens of thousands of files are open.
fn open_files() -> Option<u64> {
    const FILES: &str = "/proc/self/fd";
    match fs::metadata(FILES).ok()?.len() {
        // One entry does not count, because it is the open directory itself.
        0 => Some(fs::read_dir(FILES).ok()?.count().saturating_sub(1) as u64),
        open => Some(open),
    }
}
