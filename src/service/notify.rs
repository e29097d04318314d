//! What the service manager is told, by the protocol of sd_notify(3): nothing where it did not ask (`$NOTIFY_SOCKET`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;

use super::outbox::{Kind, Outbox};

/// How much longer each message of a start or a stop that takes its time asks for.
const EXTENSION: Duration = Duration::from_secs(30);
/// How often such a message is sent: several within each extension, so that one lost does no harm.
pub(super) const EXTEND_EVERY: Duration = Duration::from_secs(5);

/// The way to the service manager. Its clones are one.
#[derive(Clone, Debug)]
pub struct Notifier {
    outbox: Option<Arc<Outbox>>,
    is_ready: Arc<AtomicBool>,
}

impl Notifier {
    /// The service manager that the environment names, if it names one.
    pub fn from_environment() -> Notifier {
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty());
        Notifier { outbox: socket.map(|socket| Arc::new(Outbox::new(socket))), is_ready: Arc::default() }
    }

    /// Whether anybody listens.
    pub fn is_wanted(&self) -> bool {
        self.outbox.is_some()
    }

    /// IDs can be had.
    pub fn ready(&self, status: &str) {
        self.is_ready.store(true, Ordering::Relaxed);
        self.tell(Kind::Ready, &[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// A line for `systemctl status`.
    pub fn status(&self, status: &str) {
        self.tell(Kind::Status, &[NotifyState::Status(status)]);
    }

    /// The start is not over yet, and why: it may take [`EXTENSION`] from now.
    pub(super) fn not_ready(&self, status: &str) {
        self.tell(Kind::Starting, &[NotifyState::Status(status), extension(EXTENSION)]);
    }

    /// The configuration is being read anew. [`reloaded`](Self::reloaded) must follow, whether that worked or not.
    pub fn reloading(&self) {
        // Fails on no Linux; without the time the message still says what happens.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(Kind::Reloading, &[NotifyState::Reloading, now]),
            Err(_) => self.tell(Kind::Reloading, &[NotifyState::Reloading]),
        }
    }

    /// The end of [`reloading`](Self::reloading). Ready again, unless the daemon was not ready before.
    pub fn reloaded(&self) {
        if self.is_ready.load(Ordering::Relaxed) {
            self.tell(Kind::Reloaded, &[NotifyState::Ready]);
        }
    }

    /// The daemon stops, which takes at most `within` and what storage needs.
    pub fn stopping(&self, within: Duration) {
        let status = NotifyState::Status("stopping: answers the requests that have arrived");
        self.tell(
            Kind::Stopping,
            &[NotifyState::Stopping, status, extension(within.saturating_add(EXTENSION))],
        );
    }

    /// Every thread makes progress.
    pub(super) fn alive(&self) {
        self.tell(Kind::Alive, &[NotifyState::Watchdog]);
    }

    /// How often the service manager wants to hear that, if it does.
    pub(super) fn watchdog_period(&self) -> Option<Duration> {
        let period = sd_notify::watchdog_enabled().filter(|period| !period.is_zero());
        period.filter(|_| self.is_wanted())
    }

    /// Asks for more time, again and again, until the guard is dropped: for a start that storage holds up, and that cannot
    /// say so itself meanwhile.
    pub fn extend_start(&self, status: &'static str) -> Extending {
        let (guard, dropped) = mpsc::channel();
        if self.is_wanted() {
            let notifier = self.clone();
            let extend = move || {
                while dropped.recv_timeout(EXTEND_EVERY) == Err(RecvTimeoutError::Timeout) {
                    notifier.not_ready(status);
                }
            };
            // Without the thread the start has the time that the unit gives it.
            let _ = thread::Builder::new().name(String::from("starting")).spawn(extend);
        }
        Extending { _guard: guard }
    }

    /// Never waits: see [`Outbox`].
    fn tell(&self, kind: Kind, states: &[NotifyState<'_>]) {
        if let Some(outbox) = &self.outbox {
            outbox.send(kind, states.iter().map(|state| format!("{state}\n")).collect());
        }
    }
}

/// Ends what [`Notifier::extend_start`] began when it is dropped.
#[derive(Debug)]
pub struct Extending {
    _guard: mpsc::Sender<()>,
}

fn extension(by: Duration) -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(u32::try_from(by.as_micros()).unwrap_or(u32::MAX))
}
