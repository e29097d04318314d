//! One call: its request, the channel for its answer, and its retries.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::Client;
use super::batch::Batch;
use super::error::Error;
use crate::protocol::{Info, Next};

/// The channel for an answer. A caller that gave up has closed it. Dropping it unused tells the caller that
/// the runtime has shut down.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// One try of a call on its way through queue and connection. The code that holds it must answer it.
#[derive(Debug)]
pub(super) enum Call {
    /// A request for IDs. If `source` is a name, its index on the daemon replaces `next.source`.
    Ids { next: Next, source: Option<Arc<str>>, reply: Reply<Batch> },
    /// A request for the daemon's INFO.
    Info { reply: Reply<Info> },
    /// A request for the round-trip time of a PING.
    Ping { reply: Reply<Duration> },
}

impl Call {
    /// Returns whether the caller gave up.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Ids { reply, .. } => reply.is_closed(),
            Self::Info { reply } => reply.is_closed(),
            Self::Ping { reply } => reply.is_closed(),
        }
    }

    pub(super) fn fail(self, error: Error) {
        // A caller that gave up needs no answer.
        match self {
            Self::Ids { reply, .. } => drop(reply.send(Err(error))),
            Self::Info { reply } => drop(reply.send(Err(error))),
            Self::Ping { reply } => drop(reply.send(Err(error))),
        }
    }
}

/// The time at which a call must end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    /// The time from the call's start to `at`, for the error message.
    allowed: Duration,
}

/// A year: longer than any call lasts, and short enough to add to now.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

impl Deadline {
    pub(super) fn after(allowed: Duration) -> Self {
        Self { at: Instant::now() + allowed.min(FOREVER), allowed }
    }

    pub(super) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    pub(super) fn passed(&self, last: Option<Error>) -> Error {
        Error::Deadline { allowed: self.allowed, last: last.map(Arc::new) }
    }
}

impl Client {
    /// Sends a call until it is answered, retrying where that may help, before the deadline. `call` makes one
    /// try.
    pub(super) async fn call<T>(
        &self,
        deadline: &Deadline,
        call: impl Fn(Reply<T>) -> Call,
    ) -> Result<T, Error> {
        let mut last = None;
        let mut tries = 0;
        loop {
            self.check_process()?;
            let error = match timeout_at(deadline.at, self.try_once(&call)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => return Err(deadline.passed(last.or_else(|| self.shared.last_failure()))),
            };
            tries += 1;
            let Some(pause) = self.pause_before_retry(&error, tries) else {
                return Err(error);
            };
            // The refusal with its time to wait helps the caller more than an error about the deadline.
            if deadline.left() <= pause {
                return Err(error);
            }
            sleep(pause).await;
            last = Some(error);
        }
    }

    async fn try_once<T>(&self, call: impl Fn(Reply<T>) -> Call) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.queue.send(call(reply)).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }

    /// Returns the pause before the next try, or `None` for no retry.
    ///
    /// With several endpoints the driver moves on by itself. A single daemon that refuses because of its
    /// state keeps its connection, and the client asks again after the time that the daemon named.
    fn pause_before_retry(&self, error: &Error, tries: usize) -> Option<Duration> {
        let endpoints = self.shared.options.endpoints.len();
        if !error.is_retried() || self.shared.options.fail_fast && tries >= endpoints {
            return None;
        }
        let refused = matches!(error, Error::Refused(_));
        if !refused || endpoints > 1 {
            return Some(Duration::ZERO);
        }
        let backoff = self.shared.backoff(u32::try_from(tries).unwrap_or(u32::MAX));
        Some(error.retry_after().unwrap_or_default() + backoff)
    }
}
