//! A buffer for many tasks and threads.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::timeout_at;

use super::{Ids, check_fork, forked};
use crate::client::call::Deadline;
use crate::client::error::{Error, signed};

/// [`Ids`] that many tasks and threads share: clones draw from one buffer. A web server creates one
/// buffer, and gives each request a clone.
///
/// Clones get different IDs. Each clone's IDs increase as those of [`Ids`] do. Every call takes a
/// lock, which no thread holds while it waits for a daemon. A buffer for each thread would need no
/// lock, but then a task that moves to another thread could get lower IDs.
#[derive(Debug, Clone)]
pub struct SharedIds {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    ids: Mutex<Ids>,
    /// One caller at a time waits for a fetch, and holds this lock meanwhile. All other callers
    /// that need a refill wait for this lock.
    refill: tokio::sync::Mutex<()>,
    /// The fork detector, which is checked before `ids` is locked: in a forked child, a thread that
    /// no longer exists may hold the lock.
    process: forkguard::Guard,
}

impl SharedIds {
    pub(in crate::client) fn new(ids: Ids) -> Self {
        let process = ids.client.process.clone();
        let inner = Inner { ids: Mutex::new(ids), refill: tokio::sync::Mutex::new(()), process };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the next ID: at once from the buffer, or from the next reply if the buffer is empty.
    ///
    /// # Errors
    /// Returns an [`Error`] if the buffer is empty and the refill failed. The next call tries
    /// again.
    #[inline]
    pub async fn next(&self) -> Result<u64, Error> {
        match self.take() {
            Some(id) => Ok(id),
            None => Box::pin(self.next_from_buffer()).await,
        }
    }

    /// Returns the next ID as a signed integer, for a column of type BIGINT.
    ///
    /// # Errors
    /// Returns the errors of [`next`](Self::next), and [`Error::AboveSigned`] if the ID is above
    /// [`i64::MAX`].
    #[inline]
    pub async fn next_i64(&self) -> Result<i64, Error> {
        signed(self.next().await?)
    }

    /// Returns the next ID if the buffer has one, and `None` while the buffer is being refilled.
    /// This function never waits for a daemon, and any thread may call it.
    ///
    /// # Errors
    /// Returns an [`Error`] if the buffer is empty and the refill failed. The next call tries
    /// again.
    #[inline]
    pub fn try_next(&self) -> Result<Option<u64>, Error> {
        check_fork(&self.inner.process)?;
        self.lock().try_next()
    }

    #[inline]
    fn take(&self) -> Option<u64> {
        if forked(&self.inner.process) { None } else { self.lock().take() }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Ids> {
        self.inner.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    pub(in crate::client) async fn next_from_buffer(&self) -> Result<u64, Error> {
        check_fork(&self.inner.process)?;
        let deadline = Deadline::after(self.lock().timeout());
        let next = timeout_at(deadline.at, self.refill_and_take()).await;
        next.unwrap_or_else(|_| Err(self.lock().passed(&deadline)))
    }

    async fn refill_and_take(&self) -> Result<u64, Error> {
        let _refill = self.inner.refill.lock().await;
        loop {
            // The previous caller may have left some IDs.
            if let Some(id) = self.lock().try_next()? {
                return Ok(id);
            }
            poll_fn(|context| self.lock().poll_fetched(context)).await?;
        }
    }
}
