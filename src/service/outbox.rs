//! The messages to the service manager. Sending never blocks: a message that does not fit the manager's socket stays here
//! and is sent later, in order.
//!
//! A newer message replaces a pending one of its kind, so there are never more than there are kinds. Each later message
//! sends the pending ones first, and [`attend`](super::attend) retries them every few seconds. So readiness and the end of
//! a reload arrive a few seconds after the manager reads again. A pending sign of life may make the watchdog act one
//! period later. Pending messages are lost when the process ends.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

/// The subject of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The start is slow.
    Starting,
    Ready,
    Status,
    Reloading,
    Reloaded,
    Alive,
    Stopping,
}

#[derive(Debug)]
pub(super) struct Outbox {
    /// The value of `$NOTIFY_SOCKET`: a path, or `@` and an abstract name.
    socket: OsString,
    /// Messages that did not fit the socket, in order.
    pending: Mutex<VecDeque<(Kind, String)>>,
}

impl Outbox {
    pub(super) fn new(socket: OsString) -> Outbox {
        Outbox { socket, pending: Mutex::default() }
    }

    /// Sends a message after the pending ones, or adds it to them.
    pub(super) fn send(&self, kind: Kind, message: String) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|(other, _)| *other != kind);
        pending.push_back((kind, message));
        self.flush(&mut pending);
    }

    /// Sends pending messages, if the manager reads again.
    pub(super) fn retry(&self) {
        self.flush(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Sends the messages that fit the manager's socket now. Without a manager at the other end, messages are dropped: the
    /// daemon serves on.
    fn flush(&self, messages: &mut VecDeque<(Kind, String)>) {
        while let Some((_, message)) = messages.front() {
            match send_now(&self.socket, message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => tracing::debug!(%error, "cannot notify the service manager"),
                Ok(()) => {}
            }
            messages.pop_front();
        }
    }
}

pub(super) fn send_now(to: &OsStr, message: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let address = match to.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(to)?,
    };
    socket.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn manager() -> (tempfile::TempDir, UnixDatagram, Outbox) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (directory, socket, Outbox::new(path.into_os_string()))
    }

    fn next(socket: &UnixDatagram) -> String {
        let mut message = [0; 100];
        let size = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..size].to_vec()).unwrap()
    }

    fn pending(outbox: &Outbox) -> Vec<String> {
        outbox.pending.lock().unwrap().iter().map(|(_, message)| message.clone()).collect()
    }

    #[test]
    fn messages_that_do_not_fit_stay_the_newest_of_each_kind_and_are_sent_in_order() {
        let (_directory, socket, outbox) = manager();
        outbox.send(Kind::Ready, String::from("at once"));
        assert_eq!(next(&socket), "at once");
        let mut filled = 0;
        while pending(&outbox).is_empty() {
            outbox.send(Kind::Status, format!("status {filled}"));
            filled += 1;
        }
        for message in ["status a", "status b"] {
            outbox.send(Kind::Status, message.to_owned());
            outbox.send(Kind::Alive, String::from("alive"));
        }
        for round in [1, 2] {
            outbox.send(Kind::Reloading, format!("reloading {round}"));
            outbox.send(Kind::Reloaded, format!("reloaded {round}"));
        }
        let expected = ["status b", "alive", "reloading 2", "reloaded 2"];
        assert_eq!(pending(&outbox), expected);
        // The manager reads again.
        for number in 0..filled - 1 {
            assert_eq!(next(&socket), format!("status {number}"));
        }
        outbox.retry();
        for message in expected {
            assert_eq!(next(&socket), message);
        }
        assert_eq!(pending(&outbox), [""; 0]);
    }

    #[test]
    fn abstract_names_work_and_messages_to_nobody_are_dropped() {
        let name = format!("snowbank-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let outbox = Outbox::new(format!("@{name}").into());
        outbox.send(Kind::Alive, String::from("alive"));
        assert_eq!(next(&socket), "alive");
        drop(socket);
        outbox.send(Kind::Alive, String::from("alive"));
        assert_eq!(pending(&outbox), [""; 0]);
    }
}
