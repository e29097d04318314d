//! A stand-in for a service manager: the socket to which the daemon sends its messages.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{DEADLINE, Setup};

/// The assignments in one message of the daemon, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message(Vec<String>);

impl Message {
    /// Returns whether the message has this assignment, such as `READY=1`.
    pub fn says(&self, assignment: &str) -> bool {
        self.0.iter().any(|found| found == assignment)
    }

    /// Returns the value that the message assigns to a name.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|found| found.strip_prefix(name)?.strip_prefix('='))
    }
}

/// A service manager with its notification socket.
pub struct Manager {
    socket: UnixDatagram,
    directory: TempDir,
}

impl Manager {
    /// Makes a manager that can receive messages.
    pub fn new() -> Manager {
        let directory = super::directory();
        let socket = UnixDatagram::bind(directory.path().join("notify")).expect("a socket");
        Manager { socket, directory }
    }

    /// Makes this the manager of a daemon.
    pub fn over(&self, setup: Setup) -> Setup {
        setup.env("NOTIFY_SOCKET", self.directory.path().join("notify"))
    }

    /// Returns the next message. Returns `None` if no message comes within this time.
    pub fn next_within(&self, patience: Duration) -> Option<Message> {
        self.socket.set_read_timeout(Some(patience)).expect("a timeout can be set");
        let mut message = [0; 4_096];
        let size = self.socket.recv(&mut message).ok()?;
        let text = std::str::from_utf8(&message[..size]).expect("text");
        Some(Message(text.lines().map(str::to_owned).collect()))
    }

    /// Reads messages until `does` returns true for a message, and returns that message.
    #[track_caller]
    pub fn until(&self, what: &str, does: impl Fn(&Message) -> bool) -> Message {
        let deadline = Instant::now() + DEADLINE;
        let mut others = Vec::new();
        while Instant::now() < deadline {
            match self.next_within(Duration::from_millis(100)) {
                Some(message) if does(&message) => return message,
                other => others.extend(other),
            }
        }
        panic!("waited {DEADLINE:?} in vain for: {what}; other messages: {others:?}");
    }

    /// Returns all messages that arrive within this time.
    pub fn all_within(&self, time: Duration) -> Vec<Message> {
        let end = Instant::now() + time;
        let mut all = Vec::new();
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            all.extend(self.next_within(left));
        }
        all
    }

    /// Fills the socket, as if the manager had stopped reading.
    pub fn stand_still(&self) {
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.set_nonblocking(true).expect("the socket can be made non-blocking");
        while socket.send_to(b"FULL=1\n", self.directory.path().join("notify")).is_ok() {}
    }

    /// Discards all messages that have arrived so far.
    pub fn forget(&self) {
        while self.next_within(Duration::from_millis(1)).is_some() {}
    }
}
