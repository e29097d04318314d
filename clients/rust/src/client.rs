//! The handle that applications hold.
//!
//! ```text
//!   Client ──▶ call: deadline, tries ──▶ rest: which endpoint ──▶ connection: the row of replies
//!   Ids ─────▶ buffer: fetches ahead ──▲       ▲ dial (a task)         (a task, owns the socket)
//!                                              └ greet: rounds (a task)
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::call::{Core, Deadline};
use crate::connection::{Answer, Asked};
use crate::error::Error;
use crate::options::{ClientOptions, check_source};
use crate::stats::Stats;

/// A handle to one or several daemons. A client uses one daemon at a time, unless the calls
/// [take turns](ClientOptions::take_turns). Clones share the client's connection.
#[derive(Clone)]
pub struct Client {
    open: Arc<Open>,
    source: Arc<str>,
    timeout: Duration,
}

/// An open client. It closes when its last handle is dropped.
struct Open(Arc<Core>);

impl Drop for Open {
    fn drop(&mut self) {
        // A forked child shares the parent's sockets and must not touch them.
        if !self.0.is_forked() {
            self.0.close();
        }
    }
}

impl Client {
    /// Creates a client on the current tokio runtime, which needs time and I/O enabled. The client
    /// connects at the first call.
    ///
    /// # Errors
    /// Returns [`Error::BadOption`] if an option or a TLS file is bad, and [`Error::NoRuntime`]
    /// outside a tokio runtime.
    pub fn new(options: ClientOptions) -> Result<Self, Error> {
        options.check()?;
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let (source, timeout) = (options.source.clone().unwrap_or_else(|| "".into()), options.timeout);
        Ok(Self { open: Arc::new(Open(Arc::new(Core::new(options, runtime)?))), source, timeout })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.open.0
    }

    pub(crate) fn source_name(&self) -> &Arc<str> {
        &self.source
    }

    pub(crate) fn call_timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns a handle to the same client that draws from another source.
    ///
    /// # Errors
    /// Returns [`Error::BadOption`] if the name is empty, or longer than that of any source.
    pub fn source(&self, name: impl AsRef<str>) -> Result<Self, Error> {
        check_source(name.as_ref())?;
        Ok(Self { source: name.as_ref().into(), ..self.clone() })
    }

    /// Returns a handle to the same client whose calls have another timeout.
    #[must_use]
    pub fn timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// Fetches `count` IDs, which increase.
    ///
    /// # Errors
    /// Returns an [`Error`] that says why the call failed.
    pub async fn batch(&self, count: u32) -> Result<Vec<u64>, Error> {
        self.fetch(count, false).await
    }

    /// Fetches at least one ID and at most `count`, which increase: what the daemon has within a
    /// second. A `count` above the daemon's `max_count` counts as that. This is for tools that fetch
    /// more IDs than the daemon has at once.
    ///
    /// # Errors
    /// Returns an [`Error`] that says why the call failed.
    pub async fn batch_up_to(&self, count: u32) -> Result<Vec<u64>, Error> {
        self.fetch(count, true).await
    }

    async fn fetch(&self, count: u32, partial: bool) -> Result<Vec<u64>, Error> {
        if count == 0 {
            return Err(Error::bad_option("found a count of 0, allowed: at least 1"));
        }
        let source = self.source.clone();
        let asked = Asked::Next { count, source, partial, wait: Duration::MAX, is_fetch: false };
        match self.call(asked).await? {
            Answer::Ids(ids) => {
                self.core().figures.ids.add(ids.ids.len());
                Ok(ids.ids)
            }
            _ => Err(Error::Closed),
        }
    }

    /// Checks that a daemon answers, and returns the time that it took. With an open connection,
    /// that is one round trip.
    ///
    /// # Errors
    /// Returns an [`Error`] that says why the call failed.
    pub async fn ping(&self) -> Result<Duration, Error> {
        let began = Instant::now();
        self.call(Asked::Ping).await.map(|_| began.elapsed())
    }

    /// Fetches INFO, the JSON in which a daemon describes itself to tools: its sources with their
    /// layouts and formats, its version and limits.
    ///
    /// # Errors
    /// Returns an [`Error`] that says why the call failed.
    pub async fn info(&self) -> Result<String, Error> {
        match self.call(Asked::Info).await? {
            Answer::Info(json) => Ok(json),
            _ => Err(Error::Closed),
        }
    }

    async fn call(&self, asked: Asked) -> Result<Answer, Error> {
        let core = self.core();
        let _active = core.begin()?;
        core.call(&asked, &Deadline::after(self.timeout)).await
    }

    /// Returns what the client has done so far. Never waits.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let core = self.core();
        core.figures.stats(core.connected_endpoint())
    }

    /// Closes the client and all its clones. Calls in flight end at once with [`Error::Closed`].
    pub fn close(&self) {
        if !self.core().is_forked() {
            self.core().close();
        }
    }

    /// Closes the client and all its clones. New calls are refused, and calls in flight have this
    /// time to end.
    pub async fn close_within(&self, time: Duration) {
        if !self.core().is_forked() {
            self.core().close_within(time).await;
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, timeout, .. } = self;
        let options = &self.core().options;
        let mut shown = formatter.debug_struct("Client");
        shown.field("endpoints", &options.endpoints).field("source", source).field("timeout", timeout);
        shown.finish_non_exhaustive()
    }
}
