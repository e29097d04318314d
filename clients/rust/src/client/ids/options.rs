//! The options of a buffer of IDs.

use std::time::Duration;

use crate::client::options::check_time;
use crate::client::{Error, SourceChoice};

/// The options of [`Ids`](super::Ids).
#[derive(Debug, Clone)]
pub struct IdsOptions {
    pub(super) source: SourceChoice,
    pub(super) max_batch: u32,
    pub(super) max_age: Duration,
    pub(super) timeout: Option<Duration>,
}

impl Default for IdsOptions {
    /// Returns options for the default source, batches of up to 10,000 IDs, and a maximum age of
    /// one second.
    fn default() -> Self {
        Self {
            source: SourceChoice::First,
            max_batch: 10_000,
            max_age: Duration::from_secs(1),
            timeout: None,
        }
    }
}

impl IdsOptions {
    /// Takes IDs from this source, by name or index.
    #[must_use]
    pub fn source(mut self, source: impl Into<SourceChoice>) -> Self {
        self.source = source.into();
        self
    }

    /// Sets the most IDs that one fetch asks for (default 10,000). Fetches start small and follow
    /// the demand up to this number. The buffer holds at most two batches.
    #[must_use]
    pub fn max_batch(mut self, count: u32) -> Self {
        self.max_batch = count;
        self
    }

    /// Sets how long an ID may stay in the buffer (default 1 s). [`Ids`](super::Ids) states the
    /// guarantee.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Sets the deadline of a fetch, and so of [`Ids::next`](super::Ids::next) with an empty
    /// buffer. The default is the client's timeout.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.max_batch == 0 {
            return Err(Error::BadOption("max_batch is 0; at least 1 is needed".into()));
        }
        check_time("timeout", self.timeout.unwrap_or(Duration::MAX))?;
        check_time("max_age", self.max_age)
    }
}
