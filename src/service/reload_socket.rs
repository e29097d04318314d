//! The socket where a daemon is asked to reload: by `snowbank reload`, which the units run as
//! `ExecReload=`.
//!
//! The socket is in the daemon's runtime directory, and only the daemon's user can connect. Each
//! connection asks for a reload. The daemon answers with the result of a reload that begins after
//! that, and closes the connection.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::first_directory;

const RELOADED: &str = "reloaded";

/// Returns the runtime directory that the service manager has made for this process, if there is
/// one.
pub fn runtime_directory() -> Option<PathBuf> {
    first_directory(&std::env::var_os("RUNTIME_DIRECTORY")?)
}

/// Returns the path of the socket of a daemon with this runtime directory.
pub fn reload_socket(runtime_directory: &Path) -> PathBuf {
    runtime_directory.join("reload.sock")
}

/// Sends the result of a reload, or the reasons for a refusal, to a process that asked for it.
/// `asker` does not block.
pub fn answer_reload(mut asker: impl Write, result: Result<(), &str>) {
    // The buffer of a new socket has room for the answer. Writing fails if the process has ended.
    let _ = asker.write_all(result.err().unwrap_or(RELOADED).as_bytes());
}

/// Waits for the result of the reload for which a connection asks. Returns the reasons if the
/// reload was refused, and `None` if it was done.
///
/// # Errors
/// The daemon has ended, or has not answered in time (`WouldBlock`).
pub fn reload_result(mut daemon: UnixStream, within: Duration) -> io::Result<Option<String>> {
    daemon.set_read_timeout(Some(within))?;
    let mut answer = Vec::new();
    daemon.read_to_end(&mut answer)?;
    match String::from_utf8_lossy(&answer).into_owned() {
        answer if answer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        answer if answer == RELOADED => Ok(None),
        reasons => Ok(Some(reasons)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_arrives_as_it_was_sent() {
        let within = Duration::from_secs(30);
        let result_of = |result| {
            let (asker, daemon) = UnixStream::pair().unwrap();
            answer_reload(daemon, result);
            reload_result(asker, within).unwrap()
        };
        assert_eq!(result_of(Ok(())), None);
        assert_eq!(result_of(Err("found 0\nfound 1")).as_deref(), Some("found 0\nfound 1"));
    }

    #[test]
    fn a_daemon_that_ends_or_is_silent_gives_no_result() {
        let (asker, daemon) = UnixStream::pair().unwrap();
        let late = reload_result(asker.try_clone().unwrap(), Duration::from_millis(10)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
        drop(daemon);
        let ended = reload_result(asker, Duration::from_secs(30)).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }
}
