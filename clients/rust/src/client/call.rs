//! One call: its request, the channel for its answer, and its retries.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::Client;
use super::batch::Batch;
use super::error::Error;
use super::partial_reply::{PartialReply, Reply};
use super::shared::Shared;
use crate::protocol::collect::{IdCollector, InfoCollector};
use crate::protocol::{ErrorCode, Info, Next};

/// One try of a call on its way through queue and connection. The code that holds it must answer it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) reply: PartialReply,
    /// The caller's deadline, if another endpoint is left to ask. The client leaves a daemon whose next IDs
    /// come only after it.
    pub(super) moves_on_by: Option<Instant>,
}

/// The request of a call.
#[derive(Debug)]
pub(super) enum Request {
    /// IDs. If `source` is a name, its index on the daemon replaces `next.source`.
    Ids { next: Next, source: Option<Arc<str>> },
    /// The daemon's INFO.
    Info,
    /// The round-trip time of a PING.
    Ping,
}

impl Call {
    fn new(request: Request, reply: PartialReply) -> Self {
        Self { request, reply, moves_on_by: None }
    }

    pub(super) fn ids(next: Next, source: Option<Arc<str>>, reply: Reply<Batch>) -> Self {
        let reply = PartialReply::Ids(IdCollector::new(next), reply);
        Self::new(Request::Ids { next, source }, reply)
    }

    pub(super) fn info(reply: Reply<Info>) -> Self {
        Self::new(Request::Info, PartialReply::Info(InfoCollector::default(), reply))
    }

    pub(super) fn ping(reply: Reply<Duration>) -> Self {
        Self::new(Request::Ping, PartialReply::Pong(reply))
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
pub(super) const FOREVER: Duration = Duration::from_secs(365 * 86_400);

impl Deadline {
    pub(super) fn after(allowed: Duration) -> Self {
        Self { at: Instant::now() + allowed.min(FOREVER), allowed }
    }

    pub(super) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Returns the error of a call that has reached its deadline. `last` is the error of its last try.
    pub(super) fn passed(&self, shared: &Shared, last: Option<Error>) -> Error {
        let (endpoint, last) = match shared.endpoint_or_failure() {
            Ok(endpoint) => (Some(endpoint), last),
            Err(failure) => (None, failure.or(last)),
        };
        Error::Deadline { allowed: self.allowed, endpoint, last: last.map(Arc::new) }
    }
}

/// The `exhausted` refusals that outlast a call's deadline.
#[derive(Debug, Default)]
struct Exhausted(Vec<Error>);

impl Exhausted {
    fn is_first_of_its_endpoint(&self, error: &Error) -> bool {
        let endpoint = |error: &Error| match error {
            Error::Refused(refusal) => Some(Arc::clone(&refusal.endpoint)),
            _ => None,
        };
        self.0.iter().all(|earlier| endpoint(earlier) != endpoint(error))
    }

    /// Returns the refusal with the shortest time to wait.
    fn soonest(self) -> Option<Error> {
        self.0.into_iter().min_by_key(Error::retry_after)
    }
}

/// Returns whether a daemon refused because it has no IDs before `deadline`. Another daemon may have some.
pub(super) fn is_exhausted_beyond(error: &Error, deadline: Instant) -> bool {
    let wait = error.retry_after().filter(|_| error.code() == Some(ErrorCode::Exhausted));
    wait.is_some_and(|wait| wait > deadline.saturating_duration_since(Instant::now()))
}

impl Client {
    /// Sends a call until it is answered, retrying where that may help, before the deadline. `call` makes one
    /// try. All tries take the same lane.
    pub(super) async fn call<T>(
        &self,
        deadline: &Deadline,
        call: impl Fn(Reply<T>) -> Call,
    ) -> Result<T, Error> {
        let (shared, queue) = self.lane();
        let (mut last, mut tries, mut exhausted) = (None, 0, Exhausted::default());
        loop {
            self.check_process()?;
            shared.check_collision()?;
            // The timer rounds up, and an answer could come within its first millisecond.
            if deadline.left().is_zero() {
                return Err(deadline.passed(shared, last));
            }
            let moves_on_by = (exhausted.0.len() + 1 < shared.names.len()).then_some(deadline.at);
            let error = match timeout_at(deadline.at, try_once(queue, &call, moves_on_by)).await {
                // The process may have forked while the call waited.
                Ok(Ok(answer)) => return self.check_process().map(|()| answer),
                Ok(Err(error)) => error,
                Err(_) => {
                    let error = exhausted.soonest();
                    return Err(error.unwrap_or_else(|| deadline.passed(shared, last)));
                }
            };
            tries += 1;
            if is_exhausted_beyond(&error, deadline.at) {
                let asks_next = moves_on_by.is_some() && exhausted.is_first_of_its_endpoint(&error);
                exhausted.0.push(error.clone());
                if asks_next {
                    continue;
                }
                return Err(exhausted.soonest().unwrap_or(error));
            }
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

/// Sends a call once, and waits for its answer.
async fn try_once<T>(
    queue: &mpsc::Sender<Call>,
    call: impl Fn(Reply<T>) -> Call,
    moves_on_by: Option<Instant>,
) -> Result<T, Error> {
    let (reply, answer) = oneshot::channel();
    let call = Call { moves_on_by, ..call(reply) };
    queue.send(call).await.map_err(|_| Error::Closed)?;
    answer.await.map_err(|_| Error::Closed)?
}
