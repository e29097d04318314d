//! A call for a batch, before the application awaits it.

use std::pin::Pin;
use std::time::Duration;

use super::Client;
use super::batch::Batch;
use super::call::Deadline;
use super::error::Error;
use super::exchange::Exchange;
use super::options::{SourceChoice, check_time};
use crate::protocol::collect::IdCollector;
use crate::protocol::{Next, Wait};

/// A call for a batch of IDs. Set the call's options, then await the call.
///
/// # Errors
/// Awaiting the call returns an [`Error`] if the call fails. The error's code is `bad_count` if the
/// count is 0 or above the daemon's `max_count`, which [`Client::info`] returns.
#[derive(Debug, Clone)]
#[must_use = "a call does nothing unless it is awaited"]
pub struct BatchCall<'a> {
    client: &'a Client,
    /// The request, apart from its source and its wait.
    next: Next,
    source: SourceChoice,
    max_wait: Option<Duration>,
    timeout: Duration,
}

impl<'a> BatchCall<'a> {
    pub(super) fn new(client: &'a Client, count: u32) -> Self {
        Self {
            client,
            next: Next { count, source: 0, wait: Wait::DEFAULT, explicit: false, partial: false },
            source: SourceChoice::Index(0),
            max_wait: None,
            timeout: client.shared().options.timeout,
        }
    }

    /// Takes IDs from this source, by name or index. By default, IDs come from the default source.
    pub fn source(mut self, source: impl Into<SourceChoice>) -> Self {
        self.source = source.into();
        self
    }

    /// Sets how long the daemon may wait for IDs that are not available yet. The deadline of this
    /// call and the daemon's `max_wait` cap that wait.
    ///
    /// By default the daemon's own limit applies: 1 s, or two ticks of the source if they are
    /// longer. If `limit` is zero, the daemon answers at once.
    pub fn max_wait(mut self, limit: Duration) -> Self {
        self.max_wait = Some(limit);
        self
    }

    /// Accepts fewer IDs, at least one, if the wait ends before all are available.
    pub fn partial(mut self) -> Self {
        self.next.partial = true;
        self
    }

    /// Makes the daemon send a list of IDs instead of runs, for testing. The batch does not show
    /// the difference.
    pub fn explicit(mut self) -> Self {
        self.next.explicit = true;
        self
    }

    /// Sets the deadline of this call, instead of
    /// [`ClientOptions::timeout`](super::ClientOptions::timeout).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    async fn send(mut self) -> Result<Batch, Error> {
        check_time("timeout", self.timeout)?;
        if let Some(limit) = self.max_wait {
            self.next.wait = Wait::at_most(limit.min(self.timeout));
        }
        self.client.next(&Deadline::after(self.timeout), self.next, &self.source).await
    }
}

impl Client {
    /// Fetches IDs of `source`. `next.source` is ignored.
    pub(super) async fn next(
        &self,
        deadline: &Deadline,
        next: Next,
        source: &SourceChoice,
    ) -> Result<Batch, Error> {
        self.call(deadline, |reply| Exchange::Ids {
            source: source.clone(),
            ids: IdCollector::new(next),
            reply,
        })
        .await
    }
}

impl<'a> IntoFuture for BatchCall<'a> {
    type Output = Result<Batch, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
