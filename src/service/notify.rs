//! Messages to the service manager, by the protocol of sd_notify(3). Without `$NOTIFY_SOCKET` nothing is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;

use super::log_thread::END_PATIENCE;
use super::outbox::{Kind, Outbox};

/// The message that asks for 30 s more for a start.
const EXTENSION: NotifyState<'static> = NotifyState::ExtendTimeoutUsec(30_000_000);
/// The time between two such messages: several fit in each extension, so a lost one does no harm.
pub(super) const EXTEND_EVERY: Duration = Duration::from_secs(5);

/// The extra time that a stop asks for beyond its own bound, because threads of a busy machine run late. It is short,
/// because after it the manager gives up on a process that a hanging disk keeps from ending.
const STOP_MARGIN: Duration = Duration::from_secs(2);

/// A handle to the service manager. Its clones share one outbox.
#[derive(Clone, Debug)]
pub struct Notifier {
    outbox: Option<Arc<Outbox>>,
    is_ready: Arc<AtomicBool>,
}

impl Notifier {
    /// Finds the service manager in the environment, if there is one.
    pub fn from_environment() -> Notifier {
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty());
        Notifier { outbox: socket.map(|socket| Arc::new(Outbox::new(socket))), is_ready: Arc::default() }
    }

    /// Returns whether a service manager wants messages.
    pub fn is_wanted(&self) -> bool {
        self.outbox.is_some()
    }

    /// Reports that IDs are available.
    pub fn ready(&self, status: &str) {
        self.is_ready.store(true, Ordering::Relaxed);
        self.send(Kind::Ready, &[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Sends a line for `systemctl status`.
    pub fn status(&self, status: &str) {
        self.send(Kind::Status, &[NotifyState::Status(status)]);
    }

    /// Reports why the start is not over yet, and asks for [`EXTENSION`] from now.
    pub(super) fn not_ready(&self, status: &str) {
        self.send(Kind::Starting, &[NotifyState::Status(status), EXTENSION]);
    }

    /// Reports that the configuration is read again. [`reloaded`](Self::reloaded) must follow, also after a failure.
    pub fn reloading(&self) {
        // Does not fail on Linux. Without the time, the message is still useful.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(Kind::Reloading, &[NotifyState::Reloading, now]),
            Err(_) => self.send(Kind::Reloading, &[NotifyState::Reloading]),
        }
    }

    /// Reports the end of [`reloading`](Self::reloading): ready again, unless the daemon was not ready before.
    pub fn reloaded(&self) {
        if self.is_ready.load(Ordering::Relaxed) {
            self.send(Kind::Reloaded, &[NotifyState::Ready]);
        }
    }

    /// Reports why the daemon cannot start.
    pub fn failed(&self, reason: &str) {
        self.send(Kind::Status, &[NotifyState::Status(&format!("cannot start: {reason}"))]);
    }

    /// Reports that the daemon stops. That takes at most `within`; the end of the log comes on top.
    pub fn stopping(&self, within: Duration) {
        let status = NotifyState::Status("stopping: answers the requests that have arrived");
        let longest = within.saturating_add(END_PATIENCE + STOP_MARGIN);
        // systemd takes 64 bits here, the library's own form 32, which are 71 minutes.
        let extension = format!("EXTEND_TIMEOUT_USEC={}", longest.as_micros());
        self.send(Kind::Stopping, &[NotifyState::Stopping, status, NotifyState::Custom(&extension)]);
    }

    /// Reports that every thread makes progress.
    pub(super) fn alive(&self) {
        self.send(Kind::Alive, &[NotifyState::Watchdog]);
    }

    /// Sends pending messages if the service manager reads again.
    pub(super) fn retry(&self) {
        if let Some(outbox) = &self.outbox {
            outbox.retry();
        }
    }

    /// Returns the watchdog's period, if the service manager has one for this process.
    pub(super) fn watchdog_period(&self) -> Option<Duration> {
        let period = sd_notify::watchdog_enabled().filter(|period| !period.is_zero());
        period.filter(|_| self.is_wanted())
    }

    /// Asks for more time repeatedly until the guard is dropped. Storage may block a start, which then cannot report
    /// anything itself.
    pub fn extend_start(&self, status: &'static str) -> Extending {
        let (guard, dropped) = mpsc::channel();
        if self.is_wanted() {
            let notifier = self.clone();
            let extend = move || {
                while dropped.recv_timeout(EXTEND_EVERY) == Err(RecvTimeoutError::Timeout) {
                    notifier.not_ready(status);
                }
            };
            // Without the thread, the start only has the unit's own time limit.
            let _ = thread::Builder::new().name(String::from("starting")).spawn(extend);
        }
        Extending { _guard: guard }
    }

    /// Sends without waiting: see [`Outbox`].
    fn send(&self, kind: Kind, states: &[NotifyState<'_>]) {
        if let Some(outbox) = &self.outbox {
            outbox.send(kind, states.iter().map(|state| format!("{state}\n")).collect());
        }
    }
}

/// The guard of [`Notifier::extend_start`]. Ends the extension when dropped.
#[derive(Debug)]
pub struct Extending {
    _guard: mpsc::Sender<()>,
}
