//! Connections to a daemon that the run itself ends and starts again.

use std::time::Duration;

use rustix::event::epoll;

use super::connection::Connection;
use super::worker::Worker;
use super::{Now, RECOVERY_TIMEOUT, RETRY_NS};
use crate::measure::Fault;

/// The time limit for opening one connection to a daemon on this machine.
const REOPEN_TIMEOUT: Duration = Duration::from_millis(500);

impl Worker<'_> {
    /// If the outage closed a connection, marks the connection as down, and counts the requests in
    /// flight on it as lost. Returns any other fault unchanged.
    pub(super) fn excuse(&mut self, index: usize, fault: Fault) -> Result<(), Fault> {
        let now = self.shared.now();
        // A reopened connection is excused too: the listener of a killed process accepts
        // connections until the kernel has closed the listener.
        if !matches!(fault, Fault::Closed { .. }) || self.meter.outage_lasting(now).is_none() {
            return Err(fault);
        }
        let connection = &mut self.connections[index];
        for request in connection.in_flight.drain(..) {
            self.meter.lost(&request, now);
        }
        // This fails only for a socket that is not watched.
        let _ = epoll::delete(&self.epoll, &connection.stream.socket);
        connection.is_down = true;
        connection.is_reopened = false;
        Ok(())
    }

    /// Tries to open the connections that are down. This may block: all connections of the thread
    /// are to one daemon, so the thread has nothing else to do.
    ///
    /// # Errors
    /// [`Fault::NotRecovered`] after [`RECOVERY_TIMEOUT`].
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
            // If the daemon refuses one connection, it refuses all. A connection that cannot be
            // watched stays down until a later attempt.
            let Ok(stream) = opened else { break };
            if let Ok(open) = Connection::watched(stream, connection.peer, &self.epoll, index) {
                *connection = open;
                connection.is_reopened = true;
            }
        }
        Ok(())
    }
}
