//! The part of a reply that has arrived, and the channel for the answer.

use std::time::Duration;

use tokio::sync::oneshot;

use super::batch::Batch;
use super::error::Error;
use crate::protocol::Info;
use crate::protocol::collect::{BadReply, IdCollector, InfoCollector, Progress};
use crate::protocol::reply::Reply as Frame;

/// The channel for an answer. A caller that gave up has closed it. Dropping it unused tells the caller that
/// the runtime has shut down.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// The frames of a reply so far, and the channel for the answer.
#[derive(Debug)]
pub(super) enum PartialReply {
    Ids(IdCollector, Reply<Batch>),
    Info(InfoCollector, Reply<Info>),
    Pong(Reply<Duration>),
}

impl PartialReply {
    /// Adds the next frame.
    pub(super) fn add(&mut self, frame: &Frame<'_>) -> Result<Progress, BadReply> {
        match self {
            Self::Ids(ids, _) => ids.add(frame),
            Self::Info(json, _) => json.add(frame),
            Self::Pong(_) if matches!(frame, Frame::Pong([])) => Ok(Progress::Done),
            Self::Pong(_) => Err(BadReply::Kind),
        }
    }

    /// Returns whether the caller gave up.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Ids(_, reply) => reply.is_closed(),
            Self::Info(_, reply) => reply.is_closed(),
            Self::Pong(reply) => reply.is_closed(),
        }
    }

    pub(super) fn fail(self, error: Error) {
        // A caller that gave up needs no answer.
        match self {
            Self::Ids(_, reply) => drop(reply.send(Err(error))),
            Self::Info(_, reply) => drop(reply.send(Err(error))),
            Self::Pong(reply) => drop(reply.send(Err(error))),
        }
    }
}
