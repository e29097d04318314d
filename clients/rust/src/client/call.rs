//! One call: what is asked, where the answer goes, and the tries in between.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::Client;
use super::batch::Batch;
use super::error::Error;
use crate::protocol::{Info, Next};

/// Where an answer goes. A caller that gave up has closed it; dropped unused, it tells the caller that the runtime is
/// gone.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// One try of a call on its way through queue and connection. Whoever holds it answers it.
#[derive(Debug)]
pub(super) enum Call {
    /// IDs. Where `source` names one, its index on the daemon that serves the call takes the place of `next.source`.
    Ids { next: Next, source: Option<Arc<str>>, reply: Reply<Batch> },
    /// The daemon's INFO.
    Info { reply: Reply<Info> },
    /// The time that a PING takes there and back.
    Ping { reply: Reply<Duration> },
}

impl Call {
    /// Whether the caller gave up.
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

/// When a call has to be over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    /// The time from the call's start to `at`, for the error that says it passed.
    allowed: Duration,
}

/// Longer than any call lasts, and short enough to add to now.
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
    /// Has a call answered, trying again where that may help, before the deadline. `call` makes one try of it.
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
            // A refusal with its time to wait says more than a deadline that is sure to pass.
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

    /// How long to wait before the next try, or `None` if there is to be none. With several endpoints the driver moves
    /// on by itself; alone, a daemon that refuses for its state keeps its connection and is asked again when it says.
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
