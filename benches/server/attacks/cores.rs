//! The cores of the server under attack, and those of its peers. An attacker on another machine takes no processor time from
//! the server.

use std::io;

use libc::{CPU_ISSET, CPU_SET, CPU_SETSIZE, cpu_set_t};

/// Cores of this machine.
type Cores = Vec<usize>;

/// Returns the core of the server, and those of its peers and clients. `None` if there is only one.
pub(super) fn of_machine() -> io::Result<Option<(Cores, Cores)>> {
    let all = allowed()?;
    let (server, others) = all.split_at(1.min(all.len()));
    Ok((!others.is_empty()).then(|| (server.to_vec(), others.to_vec())))
}

/// Runs `work` on these cores. Processes and threads that it starts stay there.
pub(super) fn on<T>(cores: &[usize], work: impl FnOnce() -> T) -> io::Result<T> {
    let before = allowed()?;
    allow(cores)?;
    let done = work();
    allow(&before)?;
    Ok(done)
}

fn none() -> cpu_set_t {
    // SAFETY: a set of bits, all of which may be 0.
    #[allow(unsafe_code)]
    unsafe {
        std::mem::zeroed()
    }
}

fn allowed() -> io::Result<Cores> {
    let mut set = none();
    // SAFETY: `set` lives until the call returns, and has the size that is passed.
    #[allow(unsafe_code)]
    let failed = unsafe { libc::sched_getaffinity(0, size_of::<cpu_set_t>(), &raw mut set) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: below the size of a set.
    #[allow(unsafe_code)]
    let is_in = |core: &usize| unsafe { CPU_ISSET(*core, &set) };
    Ok((0..CPU_SETSIZE as usize).filter(is_in).collect())
}

fn allow(cores: &[usize]) -> io::Result<()> {
    let mut set = none();
    for core in cores {
        // SAFETY: they come from `allowed`, so they are below the size of a set.
        #[allow(unsafe_code)]
        unsafe {
            CPU_SET(*core, &mut set);
        }
    }
    // SAFETY: `set` lives until the call returns, and has the size that is passed.
    #[allow(unsafe_code)]
    let failed = unsafe { libc::sched_setaffinity(0, size_of::<cpu_set_t>(), &raw const set) } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}
