//! One request in flight, and the part of its reply that has arrived.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::call::Reply;
use crate::client::{Batch, Error};
use crate::protocol::Info;
use crate::protocol::collect::{BadReply, IdCollector, InfoCollector, Progress};
use crate::protocol::reply::Reply as Frame;

/// One request that was sent and has no full reply yet.
pub(super) struct InFlight {
    pub(super) tag: u16,
    pub(super) reply: PartialReply,
    pub(super) sent_at: Instant,
    /// The time that the daemon may hold the request before it answers.
    pub(super) wait: Duration,
    /// The time at which the last frame of its reply came while the caller still waited.
    pub(super) progress_at: Instant,
    pub(super) begun: bool,
}

/// The frames of a reply so far, and the channel for the answer.
pub(super) enum PartialReply {
    Ids(IdCollector, Reply<Batch>),
    Info(InfoCollector, Reply<Info>),
    Pong(Reply<Duration>),
}

impl InFlight {
    pub(super) fn take(&mut self, frame: &Frame<'_>) -> Result<Progress, BadReply> {
        self.begun = true;
        if !self.reply.is_abandoned() {
            self.progress_at = Instant::now();
        }
        match &mut self.reply {
            PartialReply::Ids(ids, _) => ids.add(frame),
            PartialReply::Info(json, _) => json.add(frame),
            PartialReply::Pong(_) if matches!(frame, Frame::Pong([])) => Ok(Progress::Done),
            PartialReply::Pong(_) => Err(BadReply::Kind),
        }
    }

    /// Returns the time at which the daemon counts as stalled. A reply of many frames moves it, while its
    /// frames keep coming and the caller waits.
    pub(super) fn stalls_at(&self, limit: Duration) -> Instant {
        self.progress_at.max(self.sent_at + self.wait) + limit
    }
}

impl PartialReply {
    /// Returns whether the caller gave up.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Ids(_, reply) => reply.is_closed(),
            Self::Info(_, reply) => reply.is_closed(),
            Self::Pong(reply) => reply.is_closed(),
        }
    }

    pub(super) fn fail(self, error: Error) {
        match self {
            Self::Ids(_, reply) => drop(reply.send(Err(error))),
            Self::Info(_, reply) => drop(reply.send(Err(error))),
            Self::Pong(reply) => drop(reply.send(Err(error))),
        }
    }
}
