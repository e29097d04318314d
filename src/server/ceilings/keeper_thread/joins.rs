//! Sources that a reload adds: they join once their first ceilings are durable, or not at all.

use std::sync::mpsc;
use std::time::Duration;

use super::{Ceilings, is_record_of};
use crate::clock::{BootMicros, Reading};
use crate::server::ceilings::start_sources::{self, Joined, Joining, Planned};

/// The time that storage may take for the first ceilings of sources that join. If storage took longer, an operator
/// who reloads would wait without an explanation.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A reload's request to add sources: all of them join or none.
pub(crate) struct JoinRequest {
    pub(crate) joining: Vec<Joining>,
    pub(crate) reply: mpsc::Sender<Result<Joined, String>>,
}

/// A request whose sources' first ceilings are being written.
#[derive(Debug)]
pub(super) struct PendingJoin {
    joined: Joined,
    reply: mpsc::Sender<Result<Joined, String>>,
    /// When it is given up.
    deadline: BootMicros,
}

impl Ceilings {
    /// Starts sources in addition to those that run, by the rules of a start. It uses the records in memory, so it does
    /// not wait for storage. The reply comes when their first ceilings are durable, or at the deadline.
    pub(super) fn begin_join(&mut self, request: JoinRequest, reading: Reading) {
        let JoinRequest { joining, reply } = request;
        let now = self.keeper.believe(reading);
        let now = (now, now.held_step(reading));
        let running: Vec<_> = self.keeper.sources().cloned().collect();
        let planned =
            start_sources::plan_joining(&running, &self.retired, joining, self.state_dir.as_deref(), now);
        let begun = planned.and_then(|Planned { sources, locks, joined }| {
            if let Some(taken_over) = self.keeper.lost() {
                return Err(taken_over.to_string());
            }
            self.keeper.join(sources, now.0).map_err(|_| {
                String::from("storage has not answered an earlier reload yet; reload again later")
            })?;
            Ok((locks, joined))
        });
        match begun {
            Ok((locks, joined)) => {
                self.worker_ids.extend(locks);
                let deadline = reading.boot.after(JOIN_TIMEOUT);
                self.pending = Some(PendingJoin { joined, reply, deadline });
            }
            Err(reason) => _ = reply.send(Err(reason)),
        }
    }

    /// Gives up a join that took too long, or that can never end because the locks are lost.
    pub(super) fn end_join_that_cannot(&mut self, reading: Reading) {
        let Some(pending) = &self.pending else { return };
        let reason = match self.keeper.lost() {
            Some(taken_over) => taken_over.to_string(),
            None if reading.boot >= pending.deadline => format!(
                "storage did not make the first ceilings of the new sources durable within {JOIN_TIMEOUT:?}; reload again \
                 when it answers"
            ),
            None => return,
        };
        self.keeper.give_up_joining();
        self.refuse_join(reason);
    }

    /// Releases the worker IDs of joining sources that the keeper has given up, and replies.
    pub(super) fn refuse_join(&mut self, reason: String) {
        self.worker_ids.truncate(self.keeper.sources().count());
        if let Some(pending) = self.pending.take() {
            let _ = pending.reply.send(Err(reason));
        }
    }

    pub(super) fn finish_join(&mut self) {
        let Some(PendingJoin { joined, reply, .. }) = self.pending.take() else { return };
        // The sources' own records have replaced these in the state.
        self.retired.retain(|record| !joined.sources.iter().any(|source| is_record_of(record, source)));
        let _ = reply.send(Ok(joined));
    }
}
