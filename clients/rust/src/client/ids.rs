//! IDs one at a time, from a buffer that is refilled in the background.
//!
//! ```text
//!   next() ─▶ current batch, by slices ─▶ next batch ─▶ fetch (a task)
//!             some checks and an          when a batch  one at a time; later
//!             addition for each ID        is used up    it marks an old batch
//! ```

mod buffer;
mod buffered_batch;
mod fetch;
mod options;
mod shared;

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout_at;

use super::call::Deadline;
use super::error::{Error, signed};
use super::{Client, check_fork, forked};
use buffer::FIRST_FETCH;
use buffered_batch::BufferedBatch;
use fetch::Fetch;
pub use options::IdsOptions;
pub use shared::SharedIds;

/// A local buffer that hands out IDs one at a time. It is refilled in the background once it is
/// half used.
///
/// - **Increasing**: IDs from one endpoint increase, also across reconnects. After a change to
///   another endpoint or IP address, IDs follow the clock of the daemon there. An endpoint's IDs
///   can go back if another daemon answers there, with another layout or with a clock that is
///   behind. Then the buffer repeats its request for up to a second, or half of its timeout if that
///   is shorter. If the IDs are still lower, [`next`](Self::next) returns [`Error::WentBack`] once,
///   and later calls continue from the lower IDs.
/// - **Not old**: the buffer keeps an ID for at most `max_age` after its reply arrived, plus the
///   time that the client's runtime takes to run a timer. A blocked runtime runs no timer. An
///   example is a current-thread runtime whose only thread calls `next` in a loop that never
///   yields. So the buffer also reads the clock every 256 IDs. On Linux, the age includes the time
///   for which the machine sleeps, and the buffer notices a sleep within 50 ms after it. IDs that
///   are too old are dropped, and the next call fetches again.
/// - **Cloned machines**: if the snapshot of a virtual machine is resumed twice, both copies hand
///   out the IDs of the buffer until they are too old. If your machines are copied while they run,
///   fetch batches, or drop the `Ids` before the snapshot.
/// - **Two daemons with the same worker IDs**: when the client finds two such daemons, the buffer
///   drops its IDs within 50 ms. Calls return [`Error::SameWorkerIds`].
/// - **Never in a fork**: in a child process every call returns [`Error::Forked`].
///
/// Dropping the future of [`next`](Self::next) loses no ID.
#[derive(Debug)]
pub struct Ids {
    client: Client,
    options: IdsOptions,
    current: Option<BufferedBatch>,
    next: Option<BufferedBatch>,
    fetch: Option<Fetch>,
    /// The number of IDs that the next fetch asks for.
    fetch_count: u32,
    /// The endpoint and the highest ID of the newest batch.
    highest: Option<(Arc<str>, u64)>,
}

impl Ids {
    pub(in crate::client) fn new(client: Client, options: IdsOptions) -> Result<Self, Error> {
        options.check()?;
        let fetch_count = FIRST_FETCH.min(options.max_batch);
        Ok(Self { client, options, current: None, next: None, fetch: None, fetch_count, highest: None })
    }

    /// Returns the next ID: at once from the buffer, or from the next reply if the buffer is empty.
    ///
    /// # Errors
    /// Returns an [`Error`] if the buffer is empty and the refill failed. The next call tries
    /// again.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it waits, so it cannot be an iterator")]
    pub fn next(&mut self) -> NextId<'_> {
        NextId { state: NextIdState::Unpolled(self) }
    }

    /// Returns the next ID as a signed integer, for a column of type BIGINT.
    ///
    /// # Errors
    /// Returns the errors of [`next`](Self::next), and [`Error::AboveSigned`] if the ID is above
    /// [`i64::MAX`].
    #[inline]
    pub async fn next_i64(&mut self) -> Result<i64, Error> {
        signed(self.next().await?)
    }

    /// Returns the next ID if the buffer has one, and `None` while the buffer is being refilled.
    /// This function never waits, and may be called outside the tokio runtime.
    ///
    /// # Errors
    /// Returns an [`Error`] if the buffer is empty and the refill failed. The next call tries
    /// again.
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<u64>, Error> {
        match self.take() {
            Some(id) => Ok(Some(id)),
            None => self.restock().map(|restocked| if restocked { self.take() } else { None }),
        }
    }

    #[inline]
    fn take(&mut self) -> Option<u64> {
        if forked(&self.client.process) { None } else { self.current.as_mut()?.take() }
    }

    #[cold]
    async fn next_from_buffer(&mut self) -> Result<u64, Error> {
        let deadline = Deadline::after(self.timeout());
        loop {
            if self.restock()?
                && let Some(id) = self.take()
            {
                return Ok(id);
            }
            // Without this check the loop might never end: each batch could be too old before this
            // task runs.
            if deadline.left().is_zero() {
                return Err(self.passed(&deadline));
            }
            let fetched = poll_fn(|context| self.poll_fetched(context));
            match timeout_at(deadline.at, fetched).await {
                Ok(fetched) => fetched?,
                Err(_) => return Err(self.passed(&deadline)),
            }
        }
    }

    fn timeout(&self) -> Duration {
        self.options.timeout.unwrap_or(self.client.shared().options.timeout)
    }

    /// Returns the error of a caller that has reached its deadline.
    fn passed(&self, deadline: &Deadline) -> Error {
        deadline.passed(self.client.shared(), None)
    }
}

/// The future of [`Ids::next`]. It is written by hand for speed: an ID from the buffer takes
/// 2.5 ns. If `next` were an `async fn`, an ID would take 7 to 12 ns.
#[must_use = "futures do nothing unless they are awaited"]
pub struct NextId<'a> {
    state: NextIdState<'a>,
}

enum NextIdState<'a> {
    Unpolled(&'a mut Ids),
    /// The buffer was empty at the first poll.
    Waiting(Pin<Box<dyn Future<Output = Result<u64, Error>> + Send + 'a>>),
    Done,
}

impl Future for NextId<'_> {
    type Output = Result<u64, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match mem::replace(&mut self.state, NextIdState::Done) {
            NextIdState::Unpolled(ids) => match ids.take() {
                Some(id) => Poll::Ready(Ok(id)),
                None => self.poll_waiting(Box::pin(ids.next_from_buffer()), context),
            },
            NextIdState::Waiting(waiting) => self.poll_waiting(waiting, context),
            // No caller may poll a future after its end.
            NextIdState::Done => Poll::Pending,
        }
    }
}

impl<'a> NextId<'a> {
    #[cold]
    fn poll_waiting(
        &mut self,
        mut waiting: Pin<Box<dyn Future<Output = Result<u64, Error>> + Send + 'a>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<u64, Error>> {
        let outcome = waiting.as_mut().poll(context);
        if outcome.is_pending() {
            self.state = NextIdState::Waiting(waiting);
        }
        outcome
    }
}
