//! Connections that end and may: to a daemon that the run itself ends.

use std::time::Duration;

use rustix::event::epoll;
use snowbank_client::protocol::ErrorCode;

use super::connection::Connection;
use super::worker::Worker;
use super::{Now, RECOVERY_TIMEOUT};
use crate::measure::Fault;

/// The pause between two tries to open connections again.
pub(super) const RETRY_NS: u64 = 5_000_000;

/// The time limit of one connection to a daemon on this machine.
const REOPEN_TIMEOUT: Duration = Duration::from_millis(500);

impl Worker<'_> {
    /// Drops a connection that may end; a fault at any other time stays one.
    pub(super) fn excuse(&mut self, index: usize, fault: Fault) -> Result<(), Fault> {
        let now = self.shared.now();
        // Also a connection that is open again: a process that was killed takes connections until
        // the kernel has closed its listener.
        if matches!(fault, Fault::Closed { .. }) && self.meter.outage_lasting(now).is_some() {
            self.let_go(index);
            return Ok(());
        }
        Err(fault)
    }

    /// Drops a connection that has ended, and the requests in flight on it.
    fn let_go(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let now = self.shared.now();
        for request in connection.in_flight.drain(..) {
            self.meter.lost(&request, now);
        }
        // Fails only for a socket that is not watched.
        let _ = epoll::delete(&self.epoll, &connection.stream);
        connection.is_down = true;
        connection.is_reopened = false;
        connection.forget_unsent();
    }

    /// Returns true if a refusal belongs to the outage.
    pub(super) fn is_excused(&self, code: u16, now: Now) -> bool {
        code == ErrorCode::ShuttingDown.to_u16() && self.meter.outage_lasting(now).is_some()
    }

    /// Tries to open connections that are down. It blocks, and nothing else can be done: all are to
    /// one daemon.
    ///
    /// # Errors
    /// [`Fault::NotRecovered`] when that has taken too long.
    pub(super) fn recover(&mut self, now: Now) -> Result<(), Fault> {
        let Some(lasting) = self.meter.outage_lasting(now) else { return Ok(()) };
        if lasting > RECOVERY_TIMEOUT {
            return Err(Fault::NotRecovered);
        }
        if now.ns < self.retry_ns {
            return Ok(());
        }
        self.retry_ns = now.ns + RETRY_NS;
        for (index, connection) in self.connections.iter_mut().enumerate() {
            if !connection.is_down {
                continue;
            }
            let opened = self.shared.peers[connection.peer].access.open(REOPEN_TIMEOUT);
            // Where one is refused, all are. One that cannot be watched stays down, and is tried
            // again.
            let Ok(stream) = opened else { break };
            if let Ok(open) = Connection::watched(stream, connection.peer, &self.epoll, index) {
                *connection = open;
                connection.is_reopened = true;
            }
        }
        Ok(())
    }

    /// Ends the outage with the first answer after every connection is open again.
    pub(super) fn record_recovery(&mut self, now: Now) {
        if self.meter.outage_lasting(now).is_some() && self.connections.iter().all(|one| one.is_reopened) {
            self.meter.recovered(now);
        }
    }
}
