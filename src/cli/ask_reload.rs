//! `snowbank reload`: asks a daemon of this machine to reload its configuration, and fails if the
//! daemon refuses.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use super::{Failure, Outcome};
use crate::service;

/// The longest wait for the result of a reload. It is below the units' TimeoutStartSec=, after
/// which systemd ends this process. Only a reload that needs nearly all of its own timeouts, for
/// storage and for the shards, takes longer.
const WITHIN: Duration = Duration::from_secs(28);

/// Options of `snowbank reload`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The daemon's runtime directory, as its own RUNTIME_DIRECTORY names it [default:
    /// $RUNTIME_DIRECTORY]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
}

/// Runs the command. Exit code 0: reloaded. 1: refused, or no result. 2: the daemon cannot be
/// asked.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    let directory = arguments.runtime_dir.clone().or_else(service::runtime_directory).ok_or_else(|| {
        Failure::usage(
            "found no RUNTIME_DIRECTORY, which a unit has: reload a unit by `systemctl reload`; name another daemon's runtime \
             directory with --runtime-dir; a daemon that has none reloads by `kill -HUP PID` and logs the result",
        )
    })?;
    let socket = service::reload_socket(&directory);
    let daemon = UnixStream::connect(&socket).map_err(|error| {
        Failure::usage(format_args!(
            "cannot ask a daemon at {}: {error}; name the directory of its RUNTIME_DIRECTORY, and run this as its \
             user; a daemon that has none reloads by `kill -HUP` and logs the result",
            socket.display()
        ))
    })?;
    match service::reload_result(daemon, WITHIN) {
        Ok(None) => Ok(()),
        Ok(Some(reasons)) => Err(Failure::no(format_args!("the reload was refused: {reasons}"))),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Failure::no(format_args!(
            "the reload has not ended within {WITHIN:?}; the daemon's log has its result"
        ))),
        Err(_) => Err(Failure::no("the daemon has ended before it could reload; its log has the reason")),
    }
}
