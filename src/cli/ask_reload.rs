//! `snowbank reload`: asks a daemon of this machine to reload its configuration, and fails if the
//! daemon refuses.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Failure, Outcome};
use crate::config::first_directory;
use crate::service::{self, ReloadResult};

/// The longest wait for the result of a reload. It is below the units' TimeoutStartSec=, after
/// which systemd ends this process. Only a reload that needs nearly all of its own timeouts, for
/// storage and for the shards, takes longer.
const WITHIN: Duration = Duration::from_secs(28);

/// Options of `snowbank reload`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The process ID of the daemon; systemd sets the variable for ExecReload=
    #[arg(long, env = "MAINPID", value_name = "PID")]
    pid: i32,

    /// The daemon's runtime directory, as its own RUNTIME_DIRECTORY names it [default:
    /// $RUNTIME_DIRECTORY]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
}

/// Runs the command. Exit code 0: reloaded. 1: refused, or no result. 2: the daemon cannot be
/// asked.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    let directory = arguments.runtime_dir.clone().or_else(service::runtime_directory).ok_or_else(|| {
        Failure::usage("RUNTIME_DIRECTORY is not set: name the daemon's runtime directory with --runtime-dir")
    })?;
    let result = ReloadResult::open(&directory).map_err(|error| {
        let directory = directory.display();
        match error.kind() {
            ErrorKind::ResourceBusy => Failure::usage(format_args!(
                "another `snowbank reload` waits for its result in {directory}; run this when it has ended"
            )),
            _ => Failure::usage(format_args!(
                "cannot wait for the result in {directory}: {error}; run this as the daemon's user"
            )),
        }
    })?;
    let Some(pid) = Pid::from_raw(arguments.pid).filter(|_| arguments.pid > 0) else {
        return Err(Failure::usage(format_args!("found --pid {}, allowed: above 0", arguments.pid)));
    };
    // A status that cannot be read is no proof: systemd can hide the processes of other users.
    if fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| !catches_hangup(&status)) {
        return Err(Failure::usage(format_args!(
            "process {pid} does not catch SIGHUP, so it is not a daemon that serves: name the daemon's process with --pid"
        )));
    }
    if !may_report_to(pid, &directory) {
        return Err(Failure::usage(format_args!(
            "process {pid} reports no result in {}: name the directory of its RUNTIME_DIRECTORY; if it has none, reload \
             with `kill -HUP {pid}` and read its log",
            directory.display()
        )));
    }
    kill_process(pid, Signal::HUP)
        .map_err(|error| Failure::usage(format_args!("cannot signal process {pid}: {error}")))?;
    match result.wait(WITHIN) {
        Ok(None) => Ok(()),
        Ok(Some(reasons)) => Err(Failure::no(format_args!("the reload was refused: {reasons}"))),
        Err(_) => Err(Failure::no(format_args!(
            "the reload has not ended within {WITHIN:?}; the daemon's log has its result"
        ))),
    }
}

/// Returns true if this is the runtime directory of a process. Also returns true if the environment
/// of the process cannot be read, because the process belongs to another user.
fn may_report_to(pid: Pid, directory: &Path) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return true };
    let own = environment.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(b"RUNTIME_DIRECTORY="));
    let own = own.and_then(|own| first_directory(OsStr::from_bytes(own)));
    own.is_some_and(|own| fs::canonicalize(own).ok() == fs::canonicalize(directory).ok())
}

/// Returns true if the text of `/proc/PID/status` shows that the process handles SIGHUP.
fn catches_hangup(status: &str) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (Signal::HUP.as_raw() - 1) != 0)
}
