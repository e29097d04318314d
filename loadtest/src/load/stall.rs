//! The announced stall of a client, as its thread sees it: one connection is not read for a while.
//!
//! ```text
//!   Ahead ──at──▶ Hanging ──for──▶ CatchingUp ──all answered──▶ Over
//!                    └── the target closes it ──▶ it is opened again, and CatchingUp goes on with that one
//! ```
//!
//! Requests leave on the connection until its socket is full. Requests due on it before it has caught up do
//! not count against objectives; their IDs are still checked.

use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use rustix::event::epoll;

use super::worker::Worker;
use super::{MAX_IN_FLIGHT, Now, RECOVERY_TIMEOUT};
use crate::measure::{Fault, StallFigures};
use crate::target::Stream;

/// The pause between two tries to open a connection again.
const REOPEN_PAUSE: Duration = Duration::from_millis(100);

/// The index of the thread's connection that hangs.
pub(super) const STALLED: usize = 0;

/// The phases of a stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Ahead,
    Hanging,
    CatchingUp,
    Over,
}

/// The stall and its figures.
#[derive(Debug)]
pub(super) struct Stalling {
    from_ns: u64,
    until_ns: u64,
    phase: Phase,
    closed_after: Option<Duration>,
    /// A connection in the place of one that was closed, once it is open: opened by another thread, so that
    /// the schedule of the others does not wait for it.
    reopening: Option<Receiver<Stream>>,
}

impl Stalling {
    /// Takes the start and the end of the stall, from the start of the run.
    pub(super) fn new((from, until): (Duration, Duration)) -> Self {
        Self {
            from_ns: from.as_nanos() as u64,
            until_ns: until.as_nanos() as u64,
            phase: Phase::Ahead,
            closed_after: None,
            reopening: None,
        }
    }

    fn is_on(&self) -> bool {
        matches!(self.phase, Phase::Hanging | Phase::CatchingUp)
    }
}

impl Worker<'_> {
    /// Returns true while a connection hangs or has not caught up; requests due on it then do not count.
    pub(super) fn is_stalled(&self, index: usize) -> bool {
        index == STALLED && self.stalling.as_ref().is_some_and(Stalling::is_on)
    }

    /// Returns true while a connection is not read.
    pub(super) fn is_hanging(&self, index: usize) -> bool {
        index == STALLED && self.stalling.as_ref().is_some_and(|stalling| stalling.phase == Phase::Hanging)
    }

    /// Returns whether a stalled connection can take one more request; any other has to.
    pub(super) fn takes_requests(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        !(self.is_stalled(index) && (connection.is_full || connection.in_flight.len() >= MAX_IN_FLIGHT))
    }

    /// Returns the instant at which the stall begins or ends next, so that no sleep passes it.
    pub(super) fn next_of_stall_ns(&self) -> u64 {
        match &self.stalling {
            Some(Stalling { phase: Phase::Ahead, from_ns, .. }) => *from_ns,
            Some(Stalling { phase: Phase::Hanging, until_ns, .. }) => *until_ns,
            _ => u64::MAX,
        }
    }

    /// Begins and ends the stall when it is time.
    ///
    /// # Errors
    /// [`Fault::NotRecovered`] when the connection has not caught up in time.
    pub(super) fn stall(&mut self, now: Now) -> Result<(), Fault> {
        let Some(stalling) = &mut self.stalling else {
            return Ok(());
        };
        match stalling.phase {
            Phase::Ahead if now.ns >= stalling.from_ns => {
                stalling.phase = Phase::Hanging;
                self.begin_stall();
            }
            Phase::Hanging if now.ns >= stalling.until_ns => {
                stalling.phase = Phase::CatchingUp;
                if !self.connections[STALLED].is_down {
                    self.watch_stalled();
                }
            }
            Phase::CatchingUp => return self.catch_up(now),
            Phase::Ahead | Phase::Hanging | Phase::Over => {}
        }
        Ok(())
    }

    fn begin_stall(&mut self) {
        let connection = &mut self.connections[STALLED];
        // Fails only for a socket that is not watched.
        let _ = epoll::delete(&self.epoll, &connection.stream);
        for request in &mut connection.in_flight {
            request.excused = true;
            if request.sent_ns > 0 {
                self.meter.excuse_sent(request);
            }
        }
    }

    fn watch_stalled(&mut self) {
        let data = epoll::EventData::new_u64(STALLED as u64);
        // Fails only where it is watched already.
        let _ = epoll::add(&self.epoll, &self.connections[STALLED].stream, data, epoll::EventFlags::IN);
    }

    fn catch_up(&mut self, now: Now) -> Result<(), Fault> {
        let Some(stalling) = &mut self.stalling else {
            return Ok(());
        };
        let since_ns = now.ns - stalling.until_ns;
        if since_ns > RECOVERY_TIMEOUT.as_nanos() as u64 {
            return Err(Fault::NotRecovered { waited: RECOVERY_TIMEOUT });
        }
        let connection = &self.connections[STALLED];
        if connection.is_down {
            self.reopen_stalled();
            return Ok(());
        }
        let until_ns = stalling.until_ns;
        let behind = connection.in_flight.front().is_some_and(|request| request.intended_ns < until_ns);
        if !behind && !connection.is_full {
            stalling.phase = Phase::Over;
            self.meter.counts.stall = Some(StallFigures {
                closed_after: stalling.closed_after,
                caught_up_after: Duration::from_nanos(since_ns),
            });
        }
        Ok(())
    }

    fn reopen_stalled(&mut self) {
        let Some(stalling) = &mut self.stalling else {
            return;
        };
        match stalling.reopening.as_ref().map(Receiver::try_recv) {
            Some(Ok(stream)) => {
                stalling.reopening = None;
                // One that cannot be watched stays down, and is opened again.
                let _ = self.replace(STALLED, stream);
            }
            Some(Err(TryRecvError::Empty)) => {}
            // Not begun, or it failed: try again until the time limit.
            None | Some(Err(TryRecvError::Disconnected)) => {
                let (to, from) = sync_channel(1);
                let access = self.shared.peers[self.connections[STALLED].peer].access.clone();
                stalling.reopening = Some(from);
                std::thread::spawn(move || match access.open(RECOVERY_TIMEOUT) {
                    Ok(stream) => drop(to.send(stream)),
                    // Do not flood the target with tries.
                    Err(_) => std::thread::sleep(REOPEN_PAUSE),
                });
            }
        }
    }

    /// Drops the stalled connection, which the target closed.
    pub(super) fn stalled_was_closed(&mut self, now: Now) {
        if let Some(stalling) = &mut self.stalling {
            let after = Duration::from_nanos(now.ns.saturating_sub(stalling.from_ns));
            stalling.closed_after.get_or_insert(after);
        }
        self.let_go(STALLED);
    }
}
