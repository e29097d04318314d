//! A request, the part of its reply that has arrived, and the channel for the answer.

use std::time::Duration;

use tokio::sync::oneshot;

use super::ask::Asked;
use super::batch::Batch;
use super::error::Error;
use super::options::SourceChoice;
use snowbank_wire::Info;
use snowbank_wire::collect::{BadReply, IdCollector, InfoCollector, Progress};
use snowbank_wire::reply::Reply as Frame;

/// The channel for an answer. If the caller abandoned its call, the channel is closed. If the
/// channel is dropped without an answer, the caller gets the error that the runtime has shut down.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// One attempt of a call. The code that holds an exchange must send an answer to the caller.
#[derive(Debug)]
pub(super) enum Exchange {
    /// A request for IDs.
    Ids { source: SourceChoice, asked: Asked, ids: IdCollector, reply: Reply<Batch> },
    /// A request for the daemon's INFO.
    Info(InfoCollector, Reply<Info>),
    /// A PING. The answer is its round-trip time.
    Ping(Reply<Duration>),
}

impl Exchange {
    /// Adds the next frame of the reply.
    pub(super) fn add(&mut self, frame: &Frame<'_>) -> Result<Progress, BadReply> {
        match self {
            Self::Ids { ids, .. } => ids.add(frame),
            Self::Info(json, _) => json.add(frame),
            Self::Ping(_) if matches!(frame, Frame::Pong([])) => Ok(Progress::Done),
            Self::Ping(_) => Err(BadReply::Kind),
        }
    }

    /// Returns whether the caller abandoned the call.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Ids { reply, .. } => reply.is_closed(),
            Self::Info(_, reply) => reply.is_closed(),
            Self::Ping(reply) => reply.is_closed(),
        }
    }

    pub(super) fn fail(self, error: Error) {
        // A caller that abandoned its call needs no answer.
        match self {
            Self::Ids { reply, .. } => drop(reply.send(Err(error))),
            Self::Info(_, reply) => drop(reply.send(Err(error))),
            Self::Ping(reply) => drop(reply.send(Err(error))),
        }
    }
}
