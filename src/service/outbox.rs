//! The way of messages to the service manager. Nobody waits for it: a message that does not fit its socket now, because the
//! manager stands still, is kept and tried again, in order, by a thread that lives only as long as something is kept.
//!
//! A newer message takes the place of one of its kind that is kept, so there are never more than there are kinds. What is lost
//! is then only what the newer one says anyway; readiness, the beginning and the end of a reload and the stop are told as soon
//! as the manager reads again. A kept sign of life is one too many at most: the watchdog notices by one of its periods later.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often what is kept is tried again. Only while the manager stands still, so that it costs nothing otherwise.
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The start takes its time.
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
    /// As `$NOTIFY_SOCKET` names it: a path, or `@` and an abstract name.
    socket: OsString,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    messages: VecDeque<(Kind, String)>,
    is_retried: bool,
}

impl Outbox {
    pub(super) fn new(socket: OsString) -> Outbox {
        Outbox { socket, kept: Mutex::default() }
    }

    /// Sends a message after those that are kept, or keeps it.
    pub(super) fn send(self: &Arc<Self>, kind: Kind, message: String) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.messages.retain(|(other, _)| *other != kind);
        kept.messages.push_back((kind, message));
        self.flush(&mut kept.messages);
        if !kept.messages.is_empty() && !kept.is_retried {
            let outbox = Arc::clone(self);
            // Without the thread the next message tries.
            let retry = thread::Builder::new().name(String::from("notify")).spawn(move || outbox.retry());
            kept.is_retried = retry.is_ok();
        }
    }

    fn retry(&self) {
        loop {
            thread::sleep(RETRY_EVERY);
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            self.flush(&mut kept.messages);
            if kept.messages.is_empty() {
                kept.is_retried = false;
                return;
            }
        }
    }

    /// Sends what the manager's socket takes now. A manager that is gone, or that does not listen, changes nothing for those
    /// who want IDs: what cannot be sent at all is dropped.
    fn flush(&self, messages: &mut VecDeque<(Kind, String)>) {
        while let Some((_, message)) = messages.front() {
            match send_now(&self.socket, message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => tracing::debug!(%error, "the service manager cannot be told"),
                Ok(()) => {}
            }
            messages.pop_front();
        }
    }
}

fn send_now(to: &OsStr, message: &str) -> io::Result<()> {
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
    use std::time::Instant;

    use super::*;

    fn manager() -> (tempfile::TempDir, UnixDatagram, Arc<Outbox>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (directory, socket, Arc::new(Outbox::new(path.into_os_string())))
    }

    fn next(socket: &UnixDatagram) -> String {
        let mut message = [0; 100];
        let size = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..size].to_vec()).unwrap()
    }

    fn kept(outbox: &Outbox) -> Vec<String> {
        outbox.kept.lock().unwrap().messages.iter().map(|(_, message)| message.clone()).collect()
    }

    #[test]
    fn what_does_not_fit_is_kept_the_newest_of_each_kind_and_sent_in_order() {
        let (_directory, socket, outbox) = manager();
        outbox.send(Kind::Ready, String::from("at once"));
        assert_eq!(next(&socket), "at once");
        let mut filled = 0;
        while kept(&outbox).is_empty() {
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
        assert_eq!(kept(&outbox), expected);
        // It reads again.
        for number in 0..filled - 1 {
            assert_eq!(next(&socket), format!("status {number}"));
        }
        for message in expected {
            assert_eq!(next(&socket), message);
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while outbox.kept.lock().unwrap().is_retried {
            assert!(Instant::now() < deadline, "the thread ends");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn abstract_names_are_reached_and_what_is_gone_is_left() {
        let name = format!("snowbank-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let outbox = Arc::new(Outbox::new(format!("@{name}").into()));
        outbox.send(Kind::Alive, String::from("alive"));
        assert_eq!(next(&socket), "alive");
        drop(socket);
        outbox.send(Kind::Alive, String::from("alive"));
        assert_eq!(kept(&outbox), [""; 0]);
    }
}
