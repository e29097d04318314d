//! A call for a batch, before the application awaits it.

use std::pin::Pin;
use std::time::Duration;

use super::Client;
use super::batch::Batch;
use super::call::Deadline;
use super::error::Error;
use super::exchange::Exchange;
use super::options::{SourceChoice, check_time};
use snowbank_wire::collect::IdCollector;
use snowbank_wire::{Next, Wait};

/// The time that the daemon may wait, unless the caller says otherwise.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// A request for IDs, apart from its source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) count: u32,
    pub(super) wait: Duration,
    pub(super) explicit: bool,
    pub(super) partial: bool,
}

impl Asked {
    /// Returns the request as the daemon gets it.
    pub(super) fn on_wire(self, source: &SourceChoice) -> Next<'_> {
        let Self { count, wait, explicit, partial } = self;
        Next { count, source: source.on_wire(), wait: Wait::at_most(wait), explicit, partial }
    }
}

/// A call for a batch of IDs. Set the call's options, then await the call.
///
/// # Errors
/// Awaiting the call returns an [`Error`] if the call fails. The error's code is `bad_count` if the
/// count is 0 or above the daemon's `max_count`, which [`Client::info`] returns.
#[derive(Debug, Clone)]
#[must_use = "a call does nothing unless it is awaited"]
pub struct BatchCall<'a> {
    client: &'a Client,
    next: Asked,
    source: SourceChoice,
    max_wait: Option<Duration>,
    timeout: Duration,
}

impl<'a> BatchCall<'a> {
    pub(super) fn new(client: &'a Client, count: u32) -> Self {
        Self {
            client,
            next: Asked { count, wait: DEFAULT_WAIT, explicit: false, partial: false },
            source: SourceChoice::First,
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
    /// The default is 1 s. If `limit` is zero, the daemon answers at once.
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
            self.next.wait = limit;
        }
        self.next.wait = self.next.wait.min(self.timeout);
        self.client.next(&Deadline::after(self.timeout), self.next, &self.source).await
    }
}

impl Client {
    /// Fetches IDs of `source`.
    pub(super) async fn next(
        &self,
        deadline: &Deadline,
        next: Asked,
        source: &SourceChoice,
    ) -> Result<Batch, Error> {
        self.call(deadline, |reply| Exchange::Ids {
            source: source.clone(),
            asked: next,
            ids: IdCollector::new(&next.on_wire(source)),
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
