//! The announced outage, as one thread sees it: connections end, and are opened again.

use std::time::Duration;

use rustix::event::epoll;
use snowbank_client::protocol::ErrorCode;

use super::connection::Connection;
use super::worker::Worker;
use super::{Now, RECOVERY_TIMEOUT};
use crate::measure::Fault;
use crate::target::Stream;

/// The time that one try may hold the thread up; on one machine it is refused or accepted at once.
const RECONNECT_TIMEOUT: Duration = Duration::from_millis(20);

/// The pause between two tries to open connections again.
pub(super) const RETRY_NS: u64 = 5_000_000;

impl Worker<'_> {
    /// Lets a connection go that the outage ended; a fault at any other time stays one.
    pub(super) fn excuse(&mut self, index: usize, fault: Fault) -> Result<(), Fault> {
        let now = self.shared.now();
        let closed = matches!(fault, Fault::Closed { .. });
        if closed && !self.connections[index].is_reopened && self.is_stalled(index) {
            self.stalled_was_closed(now);
            return Ok(());
        }
        let may_be_gone = matches!(fault, Fault::Closed { .. } | Fault::Silent { .. });
        let peer = self.connections[index].peer;
        if may_be_gone && self.shared.lose(peer, now, self.task.scenario.may_lose) {
            self.ask_others(index, now);
            return Ok(());
        }
        // Also one that is open again: a process that was killed takes connections until the kernel has
        // closed its listener.
        if !closed || self.meter.outage_since(now).is_none() {
            return Err(fault);
        }
        self.let_go(index);
        Ok(())
    }

    /// Drops a connection that has ended, and the requests in flight on it.
    pub(super) fn let_go(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        for request in connection.in_flight.drain(..) {
            self.meter.lost(&request);
        }
        // Fails only for a socket that is not watched.
        let _ = epoll::delete(&self.epoll, &connection.stream);
        connection.is_down = true;
        connection.is_reopened = false;
        connection.forget_unsent();
    }

    /// Lets a connection go whose target has gone away, and asks the other targets for what was in flight on it.
    fn ask_others(&mut self, index: usize, now: Now) {
        let requests: Vec<_> = self.connections[index].in_flight.iter().copied().collect();
        self.let_go(index);
        for request in requests {
            let Some(other) = self.next_open() else { continue };
            let due_ns = if self.is_open_loop() { request.intended_ns } else { now.ns };
            let connection = &mut self.connections[other];
            connection.ask(&self.shared.peers[connection.peer], request.asked.count, due_ns, false);
        }
    }

    /// Returns true if a refusal means that the daemon is stopping, and may.
    pub(super) fn is_excused(&self, index: usize, code: u16, now: Now) -> bool {
        let peer = self.connections[index].peer;
        code == ErrorCode::ShuttingDown.to_u16()
            && (self.meter.outage_since(now).is_some()
                || self.shared.lose(peer, now, self.task.scenario.may_lose))
    }

    /// Tries to open connections that are down.
    ///
    /// # Errors
    /// [`Fault::NotRecovered`] when that has taken too long.
    pub(super) fn recover(&mut self, now: Now) -> Result<(), Fault> {
        let Some(since_ns) = self.meter.outage_since(now) else {
            return Ok(());
        };
        if now.ns - since_ns > RECOVERY_TIMEOUT.as_nanos() as u64 {
            return Err(Fault::NotRecovered { waited: RECOVERY_TIMEOUT });
        }
        if now.ns < self.retry_ns {
            return Ok(());
        }
        self.retry_ns = now.ns + RETRY_NS;
        for index in 0..self.connections.len() {
            if self.connections[index].is_down && !self.reopen(index) {
                break;
            }
        }
        Ok(())
    }

    fn reopen(&mut self, index: usize) -> bool {
        let peer = &self.shared.peers[self.connections[index].peer];
        let opened = peer.access.open(RECONNECT_TIMEOUT);
        opened.is_ok_and(|stream| self.replace(index, stream))
    }

    /// Puts an open connection in the place of one that has ended. Returns false if that failed.
    pub(super) fn replace(&mut self, index: usize, stream: Stream) -> bool {
        let data = epoll::EventData::new_u64(index as u64);
        let watched = stream.set_nonblocking().is_ok()
            && epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN).is_ok();
        if watched {
            self.connections[index] = Connection::new(stream, self.connections[index].peer);
            self.connections[index].is_reopened = true;
        }
        watched
    }

    /// Ends the outage with the first answer after every connection is open again.
    pub(super) fn note_recovery(&mut self, now: Now) {
        let over = || self.connections.iter().all(|connection| connection.is_reopened);
        if self.meter.outage_since(now).is_some() && over() {
            self.meter.recovered(now);
        }
    }
}
