//! The cores of the server under attack, and those of its peers. An attacker on another machine
//! takes no processor time from the server.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the core of the server, and those of its peers and clients. `None` if there is only one.
pub(super) fn of_machine() -> io::Result<Option<(CpuSet, CpuSet)>> {
    let mut server = CpuSet::new();
    let mut others = sched_getaffinity(None)?;
    let Some(first) = (0..CpuSet::MAX_CPU).find(|&core| others.is_set(core)) else { return Ok(None) };
    server.set(first);
    others.unset(first);
    Ok((others.count() > 0).then_some((server, others)))
}

/// Runs `work` on these cores. Processes and threads that it starts stay there.
pub(super) fn on<T>(cores: &CpuSet, work: impl FnOnce() -> T) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, cores)?;
    let done = work();
    sched_setaffinity(None, &before)?;
    Ok(done)
}
