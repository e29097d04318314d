//! Messages to the service manager, in the protocol of sd_notify(3). Without `$NOTIFY_SOCKET`,
//! nothing is sent.
//!
//! Sending never blocks. A message is lost if the manager's socket is full.
//! The server then sends readiness and status again until they arrive. The messages of the watchdog
//! are repeated anyway.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sd_notify::NotifyState;

use super::log_thread::END_PATIENCE;

/// The time that a stop asks for in addition to its own limit, because threads of a busy machine
/// run late. The time is short, because the manager must not wait long if a disk that hangs
/// prevents the process from ending.
const STOP_MARGIN: Duration = Duration::from_secs(2);

/// A handle to the service manager.
#[derive(Clone, Debug)]
pub struct Notifier {
    /// The value of `$NOTIFY_SOCKET`: a path, or `@` and an abstract name.
    socket: Option<OsString>,
    /// True if a message was lost since the last `take_lost`.
    has_lost: Arc<AtomicBool>,
}

impl Notifier {
    /// Finds the service manager in the environment, if there is one.
    pub fn from_environment() -> Notifier {
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty());
        Notifier { socket, has_lost: Arc::default() }
    }

    /// Returns whether there is a service manager that wants messages.
    pub fn is_wanted(&self) -> bool {
        self.socket.is_some()
    }

    /// Reports that the daemon listens and that its configuration stands.
    pub fn ready(&self, status: &str) {
        self.send(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Sends a line for `systemctl status`.
    pub fn status(&self, status: &str) {
        self.send(&[NotifyState::Status(status)]);
    }

    /// Reports that a reload begins. [`reloaded`](Self::reloaded) must follow, even if the reload
    /// fails.
    pub fn reloading(&self) {
        // Reading the time does not fail on Linux. The message is useful even without the time.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(_) => self.send(&[NotifyState::Reloading]),
        }
    }

    /// Reports the end of a reload.
    pub fn reloaded(&self) {
        self.send(&[NotifyState::Ready]);
    }

    /// Reports why the daemon cannot start.
    pub fn failed(&self, reason: &str) {
        self.send(&[NotifyState::Status(&format!("cannot start: {reason}"))]);
    }

    /// Reports that the daemon stops. The stop takes at most `within`, not counting the wait for
    /// the last lines of the log.
    pub fn stopping(&self, within: Duration) {
        let status = NotifyState::Status("stopping: answers the requests that have arrived");
        let longest = within.saturating_add(END_PATIENCE + STOP_MARGIN);
        // The library has 32 bits for this time, which are enough for 71 minutes. systemd reads 64
        // bits.
        let extension = format!("EXTEND_TIMEOUT_USEC={}", longest.as_micros());
        self.send(&[NotifyState::Stopping, status, NotifyState::Custom(&extension)]);
    }

    /// Feeds the watchdog.
    pub fn alive(&self) {
        self.send(&[NotifyState::Watchdog]);
    }

    /// Returns whether a message was lost since the last call.
    pub fn take_lost(&self) -> bool {
        self.has_lost.swap(false, Ordering::Relaxed)
    }

    /// Returns the watchdog's period, if the service manager has one for this process.
    pub fn watchdog_period(&self) -> Option<Duration> {
        let period = sd_notify::watchdog_enabled().filter(|period| !period.is_zero());
        period.filter(|_| self.is_wanted())
    }

    /// Sends without waiting.
    fn send(&self, states: &[NotifyState<'_>]) {
        let Some(socket) = &self.socket else { return };
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        match send_now(socket, &message) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.has_lost.store(true, Ordering::Relaxed);
            }
            // For example, the manager's socket is gone. The daemon can run without a manager.
            Err(error) => tracing::debug!(%error, "cannot notify the service manager"),
        }
    }
}

/// Sends a datagram without waiting.
fn send_now(to: &OsStr, message: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let address = match to.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(to)?,
    };
    socket.send_to_addr(message.as_bytes(), &address).map(drop)
}
