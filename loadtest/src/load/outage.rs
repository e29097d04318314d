//! An outage that the run knows of, as one thread sees it: connections end, and are opened again.

use std::io;

use rustix::event::epoll;
use rustix::fd::OwnedFd;
use snowbank_client::protocol::ErrorCode;

use super::connection::{Connection, InFlight};
use super::opener::{Opened, Opener};
use super::worker::Worker;
use super::{Message, Now, RECOVERY_TIMEOUT};
use crate::measure::Fault;
use crate::target::Stream;

/// The pause between two tries to open connections again.
pub(super) const RETRY_NS: u64 = 5_000_000;

impl Worker<'_> {
    /// Drops a connection that the outage ended; a fault at any other time stays one.
    pub(super) fn excuse(&mut self, index: usize, fault: Fault) -> Result<(), Fault> {
        let now = self.shared.now();
        let closed = matches!(fault, Fault::Closed { .. });
        let may_be_gone = matches!(fault, Fault::Closed { .. } | Fault::Silent { .. });
        let peer = self.connections[index].peer;
        if may_be_gone && self.shared.lose(peer, now, self.task.scenario.may_lose) {
            self.ask_others(index, now);
            return Ok(());
        }
        // A service that is restarted by others may be unreachable for a while.
        let falls_behind =
            matches!(fault, Fault::Silent { .. } | Fault::FullSocket | Fault::TooManyInFlight { .. });
        let window = self.meter.open_window(now);
        // Also a connection that is open again: a process that was killed takes connections until the kernel has
        // closed its listener.
        match window {
            Some(window) if closed || (falls_behind && window.is_announced()) => window.down(now),
            _ => return Err(fault),
        }
        self.let_go(index);
        Ok(())
    }

    /// Drops a connection that has ended, and the requests in flight on it.
    pub(super) fn let_go(&mut self, index: usize) {
        let (connection, now) = (&mut self.connections[index], self.shared.now());
        for request in connection.in_flight.drain(..) {
            self.meter.lost(&request, now);
        }
        // Fails only for a socket that is not watched.
        let _ = epoll::delete(&self.epoll, &connection.stream);
        connection.is_down = true;
        connection.is_reopened = false;
        connection.forget_unsent();
    }

    /// Drops a connection whose target has gone away, and asks the other targets for what was in flight on it.
    fn ask_others(&mut self, index: usize, now: Now) {
        let requests: Vec<_> = self.connections[index].in_flight.iter().copied().collect();
        self.let_go(index);
        for request in &requests {
            self.ask_another(request, now);
        }
    }

    /// Asks another target for a request whose own target has gone away.
    pub(super) fn ask_another(&mut self, request: &InFlight, now: Now) {
        let Some(other) = self.next_open() else { return };
        let due_ns = if self.is_open_loop() { request.intended_ns } else { now.ns };
        let connection = &mut self.connections[other];
        connection.ask(&self.shared.peers[connection.peer], request.asked.count, due_ns);
    }

    /// Returns true if a refusal belongs to an outage that the run knows of.
    pub(super) fn is_excused(&mut self, code: u16, now: Now) -> bool {
        let stops = code == ErrorCode::ShuttingDown.to_u16();
        self.meter.open_window(now).is_some_and(|window| stops || window.is_announced())
    }

    /// Returns true if a refusal means that its target stops, and it may. Its connection takes no further requests.
    pub(super) fn may_leave(&mut self, index: usize, code: u16, now: Now) -> bool {
        let connection = &mut self.connections[index];
        let leaves = code == ErrorCode::ShuttingDown.to_u16()
            && self.shared.lose(connection.peer, now, self.task.scenario.may_lose);
        connection.is_draining |= leaves;
        leaves
    }

    /// Tries to open connections that are down.
    ///
    /// # Errors
    /// [`Fault::NotRecovered`] when that has taken too long.
    pub(super) fn recover(&mut self, now: Now) -> Result<(), Fault> {
        let Some(window) = self.meter.unfinished_window(now) else {
            return Ok(());
        };
        let longest = window.longest(RECOVERY_TIMEOUT);
        // Open ones may still wait for their first answers.
        let is_late = self.connections.iter().any(|one| one.is_down) || !window.is_announced();
        if window.lasted(now) > longest && is_late {
            return Err(Fault::NotRecovered { waited: longest });
        }
        let opener = self.opener.get_or_insert_with(Opener::start);
        while let Some(Opened { index, stream, .. }) = opener.take() {
            if let (Ok(stream), true) = (stream, self.connections[index].is_down) {
                // One that cannot be watched stays down, and is tried again.
                let _ = replace(&self.epoll, &mut self.connections[index], index, stream);
            }
        }
        if now.ns >= self.retry_ns && opener.pending == 0 {
            self.retry_ns = now.ns + RETRY_NS;
            for (index, connection) in self.connections.iter().enumerate() {
                if connection.is_down {
                    opener.ask(index, &self.shared.peers[connection.peer].access);
                }
            }
        }
        Ok(())
    }

    /// Replaces a connection that has ended by an open one.
    ///
    /// # Errors
    /// The system does not watch it. The place stays without a connection.
    pub(super) fn replace(&mut self, index: usize, stream: Stream) -> io::Result<()> {
        replace(&self.epoll, &mut self.connections[index], index, stream)
    }

    /// Ends the outage with the first answer after every connection is open again.
    pub(super) fn note_recovery(&mut self, now: Now) {
        let Some(window) = self.meter.unfinished_window(now) else { return };
        let is_announced = window.is_announced();
        let is_back = |connection: &Connection| match is_announced {
            // A rolling restart ends some of them.
            true => !connection.is_down,
            false => connection.is_reopened,
        };
        if (window.is_down() || !is_announced) && self.connections.iter().all(is_back) {
            self.meter.recovered(now);
            self.hand_over_reopened();
        }
    }

    /// Hands over one reopened connection of each target, so that its process is found.
    fn hand_over_reopened(&self) {
        for peer in 0..self.shared.peers.len() {
            let reopened = self.connections.iter().find(|one| one.peer == peer && one.is_reopened);
            // Without it, the process counts as another program.
            if let Some(Ok(socket)) = reopened.map(|one| one.stream.socket()) {
                let _ = self.to.send(Message::Reopened { peer, socket });
            }
        }
    }
}

fn replace(epoll: &OwnedFd, place: &mut Connection, index: usize, stream: Stream) -> io::Result<()> {
    stream.set_nonblocking()?;
    epoll::add(epoll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
    *place = Connection::new(stream, place.peer);
    place.is_reopened = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_connection_that_cannot_be_watched_takes_no_place() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a set");
        let (first, second) = UnixStream::pair().expect("a connection");
        let mut place = Connection::new(Stream::Unix(first), 0);
        // The kernel watches no file.
        let file = tempfile::tempfile().expect("a file");
        let unwatchable = Stream::Tcp(TcpStream::from(OwnedFd::from(file)));
        replace(&epoll, &mut place, 0, unwatchable).expect_err("no socket");
        assert!(!place.is_reopened);
        replace(&epoll, &mut place, 0, Stream::Unix(second)).expect("a socket");
        assert!(place.is_reopened);
    }
}
