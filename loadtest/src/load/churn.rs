//! Connections that change under load: a new one is opened, and takes the place of an older one once that has its
//! answers.

use std::io;

use super::Now;
use super::opener::{Opened, Opener};
use super::worker::Worker;
use crate::measure::Fault;
use crate::target::{NoTarget, Stream};

/// The schedule of one thread's new connections, in nanoseconds from the start of the run.
#[derive(Debug)]
pub(super) struct Churn {
    interval_ns: f64,
    /// The number of the next one that is asked for.
    number: u64,
    /// The number of those that were due so far, asked for or not.
    due: u64,
    first_ns: f64,
    opener: Opener,
    /// The new connection for each place, once it is open.
    ready: Vec<Option<Stream>>,
}

impl Churn {
    /// Takes the rate of all threads together.
    pub(super) fn new(per_s: f64, thread: usize, threads: usize, connections: usize) -> Self {
        let all_ns = 1e9 / per_s;
        Self {
            interval_ns: all_ns * threads as f64,
            number: 0,
            due: 0,
            first_ns: all_ns * (thread + 1) as f64,
            opener: Opener::start(),
            ready: (0..connections).map(|_| None).collect(),
        }
    }

    /// Returns when the next one is asked for.
    fn due_ns(&self) -> u64 {
        self.due_ns_of(self.number)
    }

    fn due_ns_of(&self, number: u64) -> u64 {
        (self.first_ns + self.interval_ns * number as f64) as u64
    }

    /// Returns true if a place is about to change.
    fn is_leaving(&self, index: usize) -> bool {
        self.ready.get(index).is_some_and(Option::is_some)
    }
}

impl Worker<'_> {
    /// Returns true if a connection takes no more requests, because another one is about to take its place.
    pub(super) fn is_leaving(&self, index: usize) -> bool {
        self.churn.as_ref().is_some_and(|churn| churn.is_leaving(index))
    }

    /// Returns the longest sleep that misses no new connection.
    pub(super) fn next_of_churn_ns(&self, now: Now) -> u64 {
        /// A new connection waits for at most this until it is used.
        const LOOK_NS: u64 = 1_000_000;
        match &self.churn {
            None => u64::MAX,
            Some(churn) if churn.opener.pending > 0 => LOOK_NS,
            Some(churn) => churn.due_ns().saturating_sub(now.ns).max(LOOK_NS),
        }
    }

    /// Asks for the connections that are due, and puts those that are open in their places.
    ///
    /// # Errors
    /// [`Fault::NotOpened`] if the target did not take one.
    pub(super) fn churn(&mut self, now: Now) -> Result<(), Fault> {
        let Some(churn) = &mut self.churn else { return Ok(()) };
        while now.ns >= churn.due_ns_of(churn.due) && now.ns < self.end_ns {
            churn.due += 1;
            self.meter.connection_due(now);
        }
        let places = churn.ready.len();
        while now.ns >= churn.due_ns() && now.ns < self.end_ns && churn.opener.pending < places {
            let index = (churn.number % places as u64) as usize;
            if churn.is_leaving(index) {
                break;
            }
            churn.number += 1;
            let peer = &self.shared.peers[self.connections[index].peer];
            churn.opener.ask(index, &peer.access);
        }
        while let Some(opened) = churn.opener.take() {
            let Opened { index, stream, took } = opened;
            let stream = stream.map_err(|reason| not_opened(&reason))?;
            self.meter.connection_opened(now, took);
            churn.ready[index] = Some(stream);
        }
        self.change_places()
    }

    fn change_places(&mut self) -> Result<(), Fault> {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            if !self.is_leaving(index) || !connection.in_flight.is_empty() || connection.is_dirty() {
                continue;
            }
            let stream = self.churn.as_mut().and_then(|churn| churn.ready[index].take());
            if let Some(stream) = stream {
                self.let_go(index);
                self.replace(index, stream).map_err(|error| not_watched(&error))?;
            }
        }
        Ok(())
    }
}

fn not_opened(reason: &NoTarget) -> Fault {
    Fault::NotOpened { reason: reason.to_string(), is_ours: reason.is_limit_here() }
}

/// The fault of this machine that leaves a place without a connection.
fn not_watched(error: &io::Error) -> Fault {
    Fault::NotOpened { reason: format!("it cannot be watched: {error}"), is_ours: true }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn threads_open_connections_in_turn() {
        let mut both = [0, 1].map(|thread| Churn::new(100.0, thread, 2, 4));
        let mut due_ms = Vec::new();
        for _ in 0..2 {
            for churn in &mut both {
                due_ms.push(churn.due_ns() / 1_000_000);
                churn.number += 1;
            }
        }
        assert_eq!(due_ms, [10, 20, 30, 40]);
        assert_eq!(Duration::from_nanos(both[0].due_ns()), Duration::from_millis(50));
    }
}
