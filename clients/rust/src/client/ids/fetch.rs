//! One fetch: a task that brings a batch, and later marks the batch as too old.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::client::age::Birth;
use crate::client::ask::Asked;
use crate::client::call::Deadline;
use crate::client::{Batch, Client, Error, SourceChoice, forked};
use snowbank_wire::ErrorCode;

/// The longest time that a daemon may wait until a batch is complete. After this time the daemon
/// sends the IDs that it has, so that a caller with an empty buffer gets some IDs soon.
const GATHERING: Duration = Duration::from_millis(10);

/// The pause after the first batch without a usable ID, and the shortest pause after `exhausted`.
/// Each further unusable batch doubles the pause, up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(1);

/// The longest pause between two requests after batches without a usable ID.
const MAX_PAUSE: Duration = Duration::from_millis(64);

/// The longest time for which a fetch repeats a request that brings lower IDs. If half of its
/// timeout is shorter, it repeats the request only for that half. This time exceeds any common
/// burst window, within which a shard that is behind catches up.
const LOWER_FOR: Duration = Duration::from_secs(1);

/// The most IDs of a request that follows a batch of lower IDs. The number is small because lower
/// IDs may come again, and these are skipped.
const RETRY_COUNT: u32 = 16;

/// A fetch that is in flight, or whose result was not taken yet.
#[derive(Debug)]
pub(super) struct Fetch {
    arrival: oneshot::Receiver<Result<Delivery, Error>>,
    pub(super) task_guard: TaskGuard,
}

impl Fetch {
    /// Starts a fetch on the client's runtime.
    pub(super) fn start(request: FetchRequest) -> Self {
        let (sender, arrival) = oneshot::channel();
        let runtime = request.client.runtime.clone();
        let process = request.client.process.clone();
        let task = runtime.spawn(request.fulfil(sender)).abort_handle();
        Self { arrival, task_guard: TaskGuard { task, process } }
    }

    /// Waits for the result.
    pub(super) fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<Result<Delivery, Error>> {
        Pin::new(&mut self.arrival).poll(context).map(|arrived| arrived.unwrap_or(Err(Error::Closed)))
    }

    /// Returns the result, once the fetch has ended.
    pub(super) fn poll(&mut self) -> Option<Result<Delivery, Error>> {
        match self.arrival.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Closed) => Some(Err(Error::Closed)),
        }
    }
}

/// The result of a fetch.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) batch: Batch,
    pub(super) born: Birth,
    pub(super) expired: Arc<AtomicBool>,
}

/// A guard that ends a fetch's task when it is dropped.
#[derive(Debug)]
pub(super) struct TaskGuard {
    task: AbortHandle,
    process: forkguard::Guard,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        // A forked child must not touch the runtime, whose locks and wake-ups belong to the parent.
        if !forked(&self.process) {
            self.task.abort();
        }
    }
}

/// The request of a fetch.
pub(super) struct FetchRequest {
    pub(super) client: Client,
    pub(super) source: SourceChoice,
    pub(super) count: u32,
    pub(super) timeout: Duration,
    pub(super) max_age: Duration,
    /// The highest ID of the newest batch, and its endpoint. Lower IDs from that endpoint are not
    /// usable.
    pub(super) highest: Option<(Arc<str>, u64)>,
}

impl FetchRequest {
    /// Fetches the batch, and marks the batch once it is too old.
    async fn fulfil(self, arrival: oneshot::Sender<Result<Delivery, Error>>) {
        let batch = match self.fetch().await {
            Ok(batch) => batch,
            Err(error) => return drop(arrival.send(Err(error))),
        };
        let born = Birth::now();
        let expired = Arc::new(AtomicBool::new(false));
        let delivery = Delivery { batch, born, expired: Arc::clone(&expired) };
        if arrival.send(Ok(delivery)).is_ok() {
            // The batch is marked earlier if two endpoints hand out the same IDs.
            born.reaches(self.max_age, || self.client.check_collision().is_err()).await;
            expired.store(true, Ordering::Relaxed);
        }
    }

    /// Returns a batch with at least one usable ID, before the deadline.
    async fn fetch(&self) -> Result<Batch, Error> {
        let deadline = Deadline::after(self.timeout);
        let mut next = Asked { count: self.count, wait: GATHERING, explicit: false, partial: true };
        // The time of the first batch of lower IDs, and the pause before the next request for
        // higher IDs.
        let mut lower_since = None;
        let mut lower_pause = PAUSE;
        loop {
            let fetched = self.client.next(&deadline, next, &self.source).await;
            let error = match fetched.and_then(|batch| self.usable(batch)) {
                Ok(batch) => return Ok(batch),
                Err(error) => error,
            };
            let pause = if matches!(error, Error::WentBack { .. }) {
                next.count = next.count.min(RETRY_COUNT);
                let since: &mut Instant = lower_since.get_or_insert_with(Instant::now);
                let pause = lower_pause;
                if since.elapsed() + pause > LOWER_FOR.min(self.timeout / 2) {
                    return Err(error);
                }
                lower_pause = (pause * 2).min(MAX_PAUSE);
                pause
            } else {
                // The request allowed the daemon only a short wait. The fetch's deadline may allow
                // a longer wait.
                match error.retry_after() {
                    Some(pause) if error.code() == Some(ErrorCode::Exhausted) && pause < deadline.left() => {
                        pause.max(PAUSE)
                    }
                    _ => return Err(error),
                }
            };
            if deadline.left() <= pause {
                return Err(deadline.passed(self.client.shared(), None));
            }
            sleep(pause).await;
        }
    }

    /// Skips IDs that are not above `highest`, if they come from its endpoint. Such IDs can come
    /// after a reconnect, from a shard that is behind.
    fn usable(&self, mut batch: Batch) -> Result<Batch, Error> {
        let Some((endpoint, highest)) = self.highest.as_ref().filter(|(from, _)| *from == batch.endpoint)
        else {
            return Ok(batch);
        };
        match batch.last() {
            Some(found) if found <= *highest => {
                Err(Error::WentBack { endpoint: Arc::clone(endpoint), highest: *highest, found })
            }
            _ => {
                let first_usable = batch.ids.partition_point(|id| id <= highest);
                batch.ids.drain(..first_usable);
                Ok(batch)
            }
        }
    }
}
