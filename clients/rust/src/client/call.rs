//! One call: its request, the channel for its answer, and its retries.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::error::{Error, Refusal};
use super::exchange::{Exchange, Reply};
use super::shared::Shared;
use super::{Client, Lane, check_fork};
use snowbank_wire::ErrorCode;

/// One attempt of a call, on the way to a connection.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) exchange: Exchange,
    /// The caller's deadline. If the daemon has no IDs before this deadline, the call moves on to
    /// the next endpoint. `None` if this is the last endpoint to ask: each of the others has
    /// already refused the call for that reason.
    pub(super) moves_on_by: Option<Instant>,
}

/// The time at which a call must end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    /// The time from the call's start to `at`, for the error message.
    allowed: Duration,
}

/// A year: longer than any call lasts, and short enough to be added to the current time.
pub(super) const FOREVER: Duration = Duration::from_secs(365 * 86_400);

impl Deadline {
    pub(super) fn after(allowed: Duration) -> Self {
        Self { at: Instant::now() + allowed.min(FOREVER), allowed }
    }

    pub(super) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Returns the error of a call that has reached its deadline. `last` is the error of the call's
    /// last attempt.
    pub(super) fn passed(&self, shared: &Shared, last: Option<Error>) -> Error {
        let (endpoint, last) = match shared.endpoint_or_failure() {
            Ok(endpoint) => (Some(endpoint), last),
            Err(failure) => (None, Some(failure)),
        };
        Error::Deadline { allowed: self.allowed, endpoint, last: last.map(Arc::new) }
    }
}

/// Returns the refusal if the daemon has no IDs before `deadline`. Another daemon may have some.
pub(super) fn exhausted_beyond(error: &Error, deadline: Instant) -> Option<&Arc<Refusal>> {
    let Error::Refused(refusal) = error else { return None };
    let wait = refusal.retry_after.filter(|_| error.code() == Some(ErrorCode::Exhausted))?;
    (wait > deadline.saturating_duration_since(Instant::now())).then_some(refusal)
}

/// Returns the refusal with the shortest time to wait.
fn soonest(refusals: Vec<Arc<Refusal>>) -> Option<Error> {
    refusals.into_iter().min_by_key(|refusal| refusal.retry_after).map(Error::Refused)
}

impl Client {
    /// Sends a call. Repeats the call where that may help, until a daemon answers or the deadline
    /// passes. `exchange` creates the exchange of one attempt. All attempts use the same lane.
    pub(super) async fn call<T>(
        &self,
        deadline: &Deadline,
        exchange: impl Fn(Reply<T>) -> Exchange,
    ) -> Result<T, Error> {
        let Lane { shared, queue } = self.lane();
        // The `exhausted` refusals that name a time to wait beyond the deadline.
        let mut exhausted: Vec<Arc<Refusal>> = Vec::new();
        let mut last = None;
        let mut tries = 0;
        loop {
            check_fork(&self.process)?;
            self.check_collision()?;
            // The timer below rounds up to a whole millisecond. Without this check, an answer could
            // still come after the deadline.
            if deadline.left().is_zero() {
                return Err(deadline.passed(shared, last));
            }
            let moves_on_by = (exhausted.len() + 1 < shared.names.len()).then_some(deadline.at);
            let error = match timeout_at(deadline.at, try_once(queue, &exchange, moves_on_by)).await {
                // The process may have forked while the call waited.
                Ok(Ok(answer)) => return check_fork(&self.process).map(|()| answer),
                Ok(Err(error)) => error,
                Err(_) => return Err(soonest(exhausted).unwrap_or_else(|| deadline.passed(shared, last))),
            };
            tries += 1;
            if let Some(refusal) = exhausted_beyond(&error, deadline.at) {
                let is_first = exhausted.iter().all(|earlier| earlier.endpoint != refusal.endpoint);
                exhausted.push(Arc::clone(refusal));
                if moves_on_by.is_some() && is_first {
                    continue;
                }
                return Err(soonest(exhausted).unwrap_or(error));
            }
            let Some(pause) = self.pause_before_retry(&error, tries) else {
                return Err(error);
            };
            // The deadline would pass during the pause. To the caller, the refusal with its time to
            // wait says more than an error about the deadline.
            if deadline.left() <= pause {
                let is_refused = matches!(error, Error::Refused(_));
                return Err(if is_refused { error } else { deadline.passed(shared, Some(error)) });
            }
            sleep(pause).await;
            last = Some(error);
        }
    }

    /// Returns the pause before the next attempt, or `None` for no further attempt.
    ///
    /// After a refusal by the only endpoint, the call pauses for a back-off plus the time that the
    /// daemon named. The connection stays open, unless the daemon closes it. In all other cases the
    /// driver chooses the next endpoint and makes the pauses.
    fn pause_before_retry(&self, error: &Error, tries: usize) -> Option<Duration> {
        let shared = self.shared();
        let endpoints = shared.names.len();
        if !error.is_retried() || shared.options.fail_fast && tries >= endpoints {
            return None;
        }
        let refused = matches!(error, Error::Refused(_));
        if !refused || endpoints > 1 {
            return Some(Duration::ZERO);
        }
        let backoff = shared.backoff(u32::try_from(tries).unwrap_or(u32::MAX));
        Some(error.retry_after().unwrap_or_default() + backoff)
    }
}

/// Sends a call once, and waits for its answer.
async fn try_once<T>(
    queue: &mpsc::Sender<Call>,
    exchange: impl Fn(Reply<T>) -> Exchange,
    moves_on_by: Option<Instant>,
) -> Result<T, Error> {
    let (reply, answer) = oneshot::channel();
    let call = Call { exchange: exchange(reply), moves_on_by };
    queue.send(call).await.map_err(|_| Error::Closed)?;
    answer.await.map_err(|_| Error::Closed)?
}
