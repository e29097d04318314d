//! Reports the result of a reload to the process that asked for it: `snowbank reload`, which the
//! units run as `ExecReload=`.
//!
//! That process binds a socket in the daemon's runtime directory, and then sends SIGHUP. The daemon
//! sends a message to the socket when a reload begins, and another with the reload's result. So the
//! waiting process can ignore the result of a reload that began earlier. Only the daemon's user can
//! write to the socket, so no other user can send a result.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::notify::send_now;
use crate::config::first_directory;

const NAME: &str = "reload.sock";
/// The longest message. A longer message is cut off, but the log has it in full.
const BYTES_MAX: usize = 8 * 1024;
const BEGUN: &str = "begun";
const RELOADED: &str = "reloaded";

/// Returns the runtime directory that the service manager has made for this process, if there is
/// one.
pub fn runtime_directory() -> Option<PathBuf> {
    first_directory(&std::env::var_os("RUNTIME_DIRECTORY")?)
}

/// Reports that a reload begins.
pub fn reload_begins() {
    report(BEGUN);
}

/// Reports the end of a reload: success, or the reasons for a refusal.
pub fn reload_ended(result: Result<(), &str>) {
    let mut text = result.err().unwrap_or(RELOADED).to_owned();
    text.truncate((0..=BYTES_MAX).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0));
    report(&text);
}

/// Sends a message to the waiting process, if there is one.
fn report(text: &str) {
    if let Some(directory) = runtime_directory() {
        let _ = send_now(directory.join(NAME).as_os_str(), text);
    }
}

/// The receiver of a reload's result.
#[derive(Debug)]
pub struct ReloadResult {
    socket: UnixDatagram,
    path: PathBuf,
}

impl ReloadResult {
    /// Opens the socket to which the daemon of this runtime directory reports.
    ///
    /// # Errors
    /// This process cannot write to the directory, or another process waits for a result.
    pub fn open(directory: &Path) -> io::Result<ReloadResult> {
        let path = directory.join(NAME);
        if UnixDatagram::unbound()?.connect(&path).is_ok() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        // If a process was killed while it waited, its socket is still there.
        let _ = std::fs::remove_file(&path);
        Ok(ReloadResult { socket: UnixDatagram::bind(&path)?, path })
    }

    /// Waits for the end of the next reload that begins. Returns the reasons if that reload was
    /// refused, and `None` if it was done.
    ///
    /// # Errors
    /// No reload ended in time.
    pub fn wait(&self, within: Duration) -> io::Result<Option<String>> {
        let deadline = Instant::now() + within;
        let mut has_begun = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(left))?;
            let mut message = vec![0; BYTES_MAX];
            let size = self.socket.recv(&mut message)?;
            match String::from_utf8_lossy(&message[..size]).as_ref() {
                BEGUN => has_begun = true,
                RELOADED if has_begun => return Ok(None),
                reasons if has_begun => return Ok(Some(reasons.to_owned())),
                // This is the result of a reload that began earlier.
                _ => {}
            }
        }
    }
}

impl Drop for ReloadResult {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_earlier_reloads_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        // A process that was killed while it waited leaves such a socket behind.
        drop(UnixDatagram::bind(directory.path().join(NAME)).unwrap());
        let result = ReloadResult::open(directory.path()).unwrap();
        assert_eq!(ReloadResult::open(directory.path()).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        let send = |text| send_now(directory.path().join(NAME).as_os_str(), text).unwrap();
        for text in ["an earlier reason", BEGUN, "found 0\nfound 1"] {
            send(text);
        }
        let within = Duration::from_secs(30);
        assert_eq!(result.wait(within).unwrap().as_deref(), Some("found 0\nfound 1"));
        for text in [RELOADED, BEGUN, RELOADED] {
            send(text);
        }
        assert_eq!(result.wait(within).unwrap(), None);
        result.wait(Duration::from_millis(10)).unwrap_err();
        let path = result.path.clone();
        drop(result);
        assert!(!path.exists());
    }
}
