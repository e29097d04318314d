//! One fetch: the task that brings a batch, and then says when it has become too old.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::client::call::Deadline;
use crate::client::{Batch, Client, Error, SourceChoice, forked};
use crate::protocol::{ErrorCode, Next, Wait};

/// How long a daemon may gather a batch. It sends what there is then: a caller without IDs should not wait for many.
const GATHERING: Duration = Duration::from_millis(10);

/// Longer than any age matters, and short enough to add to now.
const MAX_AGE: Duration = Duration::from_secs(365 * 86_400);

/// The pause before asking again where there was nothing that could be used.
const PAUSE: Duration = Duration::from_millis(1);

/// A fetch under way, or ended and not yet looked at.
#[derive(Debug)]
pub(super) struct Fetch {
    arrival: oneshot::Receiver<Result<Delivery, Error>>,
    pub(super) keeper: Keeper,
}

impl Fetch {
    /// Starts to fetch, on the client's runtime.
    pub(super) fn start(order: Order) -> Self {
        let (sender, arrival) = oneshot::channel();
        let (runtime, process) = (order.client.runtime.clone(), order.client.process.clone());
        let task = runtime.spawn(order.fulfil(sender)).abort_handle();
        Self { arrival, keeper: Keeper { task, process } }
    }

    /// Waits until it has ended. Losing patience loses nothing.
    pub(super) async fn ended(&mut self) -> Result<Delivery, Error> {
        (&mut self.arrival).await.unwrap_or(Err(Error::Closed))
    }

    /// What it brought, once it has ended.
    pub(super) fn poll(&mut self) -> Option<Result<Delivery, Error>> {
        match self.arrival.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Closed) => Some(Err(Error::Closed)),
        }
    }
}

/// A batch as its fetch brought it.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) batch: Batch,
    pub(super) good_until: Instant,
    pub(super) expired: Arc<AtomicBool>,
}

/// Ends a fetch's task with its owner.
#[derive(Debug)]
pub(super) struct Keeper {
    task: AbortHandle,
    process: forkguard::Guard,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // A forked child must leave the runtime alone: its locks and wake-ups are the parent's.
        if !forked(&self.process) {
            self.task.abort();
        }
    }
}

/// What a fetch is to bring.
pub(super) struct Order {
    pub(super) client: Client,
    pub(super) source: SourceChoice,
    pub(super) count: u32,
    pub(super) timeout: Duration,
    pub(super) max_age: Duration,
    /// IDs from that endpoint are of use only above this one.
    pub(super) highest: Option<(Arc<str>, u64)>,
}

impl Order {
    /// Fetches the batch, and stays to say when it has become too old.
    async fn fulfil(self, arrival: oneshot::Sender<Result<Delivery, Error>>) {
        let batch = match self.fetch().await {
            Ok(batch) => batch,
            Err(error) => return drop(arrival.send(Err(error))),
        };
        let good_until = Instant::now() + self.max_age.min(MAX_AGE);
        let expired = Arc::new(AtomicBool::new(false));
        let delivery = Delivery { batch, good_until, expired: Arc::clone(&expired) };
        if arrival.send(Ok(delivery)).is_ok() {
            sleep_until(good_until).await;
            expired.store(true, Ordering::Relaxed);
        }
    }

    /// A batch with at least one ID that is of use, before the deadline.
    async fn fetch(&self) -> Result<Batch, Error> {
        let deadline = Deadline::after(self.timeout);
        let (index, name) = match &self.source {
            SourceChoice::Index(index) => (*index, None),
            SourceChoice::Name(name) => (0, Some(Arc::clone(name))),
        };
        let wait = Wait::at_most(GATHERING);
        let next = Next { count: self.count, source: index, wait, explicit: false, partial: true };
        loop {
            let pause = match self.client.next(&deadline, next, name.clone()).await {
                Ok(batch) if self.is_of_use(&batch) => return Ok(batch),
                Ok(_) => PAUSE,
                // The wait that it was given is a short one, and this deadline may allow for a longer.
                Err(error) if error.code() == Some(ErrorCode::Exhausted) => match error.retry_after() {
                    Some(pause) if pause < deadline.left() => pause.max(PAUSE),
                    _ => return Err(error),
                },
                Err(error) => return Err(error),
            };
            if deadline.left() <= pause {
                return Err(deadline.passed(None));
            }
            sleep(pause).await;
        }
    }

    fn is_of_use(&self, batch: &Batch) -> bool {
        match &self.highest {
            Some((endpoint, highest)) if endpoint == batch.endpoint_name() => batch.last() > Some(*highest),
            _ => true,
        }
    }
}
