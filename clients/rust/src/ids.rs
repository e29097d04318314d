//! The handles of buffers: one for a single owner, one for many tasks and threads.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::buffer::{Buffer, Fetched, wait};
use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Creates a buffer that hands out IDs one at a time.
    #[must_use]
    pub fn ids(&self) -> Ids {
        Ids::new(self.clone())
    }

    /// Creates a buffer like that of [`ids`](Self::ids), for many tasks and threads to share.
    #[must_use]
    pub fn shared_ids(&self) -> SharedIds {
        SharedIds::new(self.clone())
    }
}

/// A buffer that hands out IDs one at a time, and is refilled in the background once it is half
/// used.
///
/// - **Increasing** while the IDs come from one daemon. After a change to another daemon, IDs
///   follow the clock of the daemon there.
/// - **Not old**: the buffer hands out no ID later than the daemon's `good_for` (1 s) after it was
///   asked for, also if the program was blocked or the machine slept. Only if the program is
///   stopped or the machine sleeps within a burst, up to 15 IDs of that burst can be older.
/// - **Cloned machines**: if the snapshot of a virtual machine is resumed twice, both copies hand
///   out the IDs of the buffer until they are too old. If your machines are copied while they run,
///   fetch batches, or drop the `Ids` before the snapshot.
/// - **Never in a fork**: in a child process every call returns [`Error::Forked`].
///
/// Dropping the future of [`next`](Self::next) loses no ID.
pub struct Ids {
    client: Client,
    buffer: Buffer,
}

impl Ids {
    pub(crate) fn new(client: Client) -> Self {
        let buffer = Buffer::new(client.core().clone(), client.source_name().clone());
        Self { client, buffer }
    }

    /// Returns the next ID: at once from the buffer, or from the next reply if the buffer is empty.
    ///
    /// # Errors
    /// Returns an [`Error`] if the buffer is empty and the refill failed, or the client's timeout
    /// passed. The next call tries again.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it waits, so it cannot be an iterator")]
    pub fn next(&mut self) -> NextId<'_> {
        NextId { state: NextIdState::Unpolled(self) }
    }

    /// Returns the next ID if the buffer has one, and `None` while it is being refilled. Never
    /// waits, and may be called outside the tokio runtime.
    ///
    /// # Errors
    /// Returns an [`Error`] if no call can succeed now: after a close, in a forked child, while two
    /// daemons collide.
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<u64>, Error> {
        match self.buffer.take() {
            Some(id) => Ok(Some(id)),
            None => self.client.core().check().map(|()| self.buffer.take_or_fetch()),
        }
    }

    /// Returns whether the last look still covers IDs.
    #[cfg(test)]
    pub(crate) fn is_covered(&self) -> bool {
        self.buffer.fetched().is_covered()
    }

    async fn wait(&mut self) -> Result<u64, Error> {
        let fetched = self.buffer.fetched().clone();
        let timeout = self.client.call_timeout();
        let core = self.client.core().clone();
        wait(&core, &fetched, timeout, || self.buffer.take_or_fetch()).await
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Ids").field("client", &self.client).finish_non_exhaustive()
    }
}

/// The future of [`Ids::next`]. It is written by hand for speed: if `next` were an `async fn`, an
/// ID from the buffer would take three times as long.
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
            NextIdState::Unpolled(ids) => match ids.buffer.take() {
                Some(id) => Poll::Ready(Ok(id)),
                None => self.poll_waiting(Box::pin(ids.wait()), context),
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

/// A buffer like [`Ids`], for many tasks and threads. Clones share the buffer. Each call has a
/// deadline of its own, also if it waits for a fetch that another call began.
#[derive(Clone)]
pub struct SharedIds {
    client: Client,
    buffer: Arc<Mutex<Buffer>>,
    fetched: Arc<Fetched>,
}

impl SharedIds {
    pub(crate) fn new(client: Client) -> Self {
        let Ids { client, buffer } = Ids::new(client);
        let fetched = buffer.fetched().clone();
        Self { client, buffer: Arc::new(Mutex::new(buffer)), fetched }
    }

    /// Returns a handle to the same buffer whose calls have another timeout.
    #[must_use]
    pub fn timeout(&self, timeout: Duration) -> Self {
        Self { client: self.client.timeout(timeout), ..self.clone() }
    }

    /// Returns the next ID: at once from the buffer, or from the next reply if the buffer is empty.
    ///
    /// # Errors
    /// Returns an [`Error`] if the buffer is empty and the refill failed, or the client's timeout
    /// passed. The next call tries again.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it waits, so it cannot be an iterator")]
    pub async fn next(&self) -> Result<u64, Error> {
        match self.take() {
            Some(id) => Ok(id),
            None => self.wait().await,
        }
    }

    /// Returns the next ID if the buffer has one, and `None` while it is being refilled. Never
    /// waits, and may be called outside the tokio runtime.
    ///
    /// # Errors
    /// Returns an [`Error`] if no call can succeed now: after a close, in a forked child, while two
    /// daemons collide.
    #[inline]
    pub fn try_next(&self) -> Result<Option<u64>, Error> {
        match self.take() {
            Some(id) => Ok(Some(id)),
            None => self.client.core().check().map(|()| self.lock().take_or_fetch()),
        }
    }

    pub(crate) async fn wait(&self) -> Result<u64, Error> {
        let timeout = self.client.call_timeout();
        wait(self.client.core(), &self.fetched, timeout, || self.lock().take_or_fetch()).await
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<u64> {
        // In a forked child, a thread that the child does not have may hold the lock. A timeout of 0
        // is an error.
        let fails = self.client.core().is_forked() || self.client.call_timeout().is_zero();
        if fails { None } else { self.lock().take() }
    }

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SharedIds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedIds").field("client", &self.client).finish_non_exhaustive()
    }
}
