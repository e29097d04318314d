//! The client: the handles that applications hold, and for each connection a task that owns the
//! connection.
//!
//! ```text
//!   Client ─┐                            ┌─ endpoint: connects
//!   Client ─┼─▶ queue of calls ─▶ driver ┼─ connection: encodes calls, matches replies to them
//!   Ids ────┘    (bounded)      (a task) └─ back-off, failover
//! ```

mod age;
mod ask;
mod batch;
pub mod blocking;
mod call;
mod connection;
mod driver;
mod endpoint;
mod error;
mod exchange;
mod ids;
mod options;
mod queue;
mod same_workers;
mod shared;
#[cfg(test)]
mod simulation;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

pub use ask::BatchCall;
pub use batch::Batch;
pub use error::{Error, Refusal};
pub use ids::{Ids, IdsOptions, NextId, SharedIds};
pub use options::{ClientOptions, SourceChoice};
#[cfg(feature = "tls")]
pub use snowbank_tls::ClientFiles as TlsFiles;
/// The address of a daemon: any [`Address`](snowbank_wire::address::Address) whose port is not 0.
pub use snowbank_wire::address::Address as Endpoint;
/// The error for a text that is not an [`Endpoint`].
pub use snowbank_wire::address::AddressError as BadEndpoint;

use call::{Call, Deadline};
use exchange::Exchange;
use shared::Shared;

use snowbank_wire::Info;
use snowbank_wire::collect::InfoCollector;

/// The capacity of the queue of calls. While there is no connection, there is room for twice as
/// many calls. Any further call waits for room, at most until its deadline.
const MAX_QUEUED: usize = 1_024;

/// A handle to one or several daemons. A client uses one daemon at a time, unless the calls
/// [take turns](ClientOptions::take_turns). Clones share the client's connections.
#[derive(Debug, Clone)]
pub struct Client {
    /// One lane, or one for each endpoint if calls take turns.
    lanes: Arc<[Lane]>,
    calls: Arc<AtomicUsize>,
    runtime: Handle,
    /// The fork detector of the process that created the client. [`forked`] reads a copy of it.
    process: forkguard::Guard,
}

/// One connection of a client: the state that the handles share with the connection's driver, and
/// the queue of calls.
#[derive(Debug)]
struct Lane {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Call>,
}

impl Lane {
    fn start(options: ClientOptions, runtime: &Handle) -> Self {
        let (queue, calls) = mpsc::channel(MAX_QUEUED);
        let shared = Arc::new(Shared::new(options));
        runtime.spawn(driver::Driver::new(Arc::clone(&shared), queue::Queue::new(calls)).run());
        Self { shared, queue }
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
        let process = forkguard::Guard::try_new()
            .map_err(|error| Error::bad_option(format!("cannot set up the detection of forks: {error}")))?;
        let lanes = if options.take_turns { options.endpoints.len() } else { 1 };
        let lanes = (0..lanes).map(|index| Lane::start(options.beginning_with(index), &runtime)).collect();
        Ok(Self { lanes, calls: Arc::default(), runtime, process })
    }

    /// Returns the lane that the next call uses. If calls take turns, each call uses the next lane.
    fn lane(&self) -> &Lane {
        match &*self.lanes {
            // With one lane, calls need not be counted, so clones do not compete for the counter.
            [only] => only,
            lanes => &lanes[self.calls.fetch_add(1, Ordering::Relaxed) % lanes.len()],
        }
    }

    /// Returns the state of the first lane. All lanes have the same options, except that each has
    /// its own order of the endpoints.
    fn shared(&self) -> &Shared {
        &self.lanes[0].shared
    }

    /// Returns an error if two endpoints hand out the same IDs. Any lane may have found them.
    fn check_collision(&self) -> Result<(), Error> {
        self.lanes.iter().try_for_each(|lane| lane.shared.check_collision())
    }

    /// Fetches `count` IDs of the default source. Await the call, or set its options first:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: snowbank_client::Client) -> Result<(), snowbank_client::Error> {
    /// let call = client.batch(50_000).source("orders").max_wait(Duration::from_millis(20));
    /// let batch = call.partial().await?;
    /// println!("{} IDs from {}", batch.len(), batch.endpoint());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "a call does nothing unless it is awaited"]
    pub fn batch(&self, count: u32) -> BatchCall<'_> {
        BatchCall::new(self, count)
    }

    /// Creates a buffer that hands out IDs one at a time. The IDs increase while they come from one
    /// endpoint. [`Ids`] says what happens if an endpoint's IDs go back.
    ///
    /// # Errors
    /// Returns [`Error::BadOption`] if an option is out of range.
    pub fn ids(&self, options: IdsOptions) -> Result<Ids, Error> {
        Ids::new(self.clone(), options)
    }

    /// Creates a buffer like that of [`ids`](Self::ids), for many tasks and threads to share.
    ///
    /// # Errors
    /// Returns [`Error::BadOption`] if an option is out of range.
    pub fn shared_ids(&self, options: IdsOptions) -> Result<SharedIds, Error> {
        self.ids(options).map(SharedIds::new)
    }

    /// Fetches the daemon's version, limits and sources.
    ///
    /// # Errors
    /// Returns an [`Error`] that says why the call failed.
    pub async fn info(&self) -> Result<Info, Error> {
        let deadline = Deadline::after(self.shared().options.timeout);
        self.call(&deadline, |reply| Exchange::Info(InfoCollector::default(), reply)).await
    }

    /// Measures the time that the daemon takes to answer a PING on an open connection.
    ///
    /// # Errors
    /// Returns an [`Error`] that says why the call failed.
    pub async fn ping(&self) -> Result<Duration, Error> {
        let deadline = Deadline::after(self.shared().options.timeout);
        self.call(&deadline, Exchange::Ping).await
    }

    /// Returns the last error of each endpoint that has failed and not served since. So an
    /// application can notice an endpoint with a wrong port while another endpoint serves. If calls
    /// take turns, the result has the errors of all connections, and has equal errors only once.
    #[must_use]
    pub fn endpoint_errors(&self) -> Vec<Error> {
        let mut errors = Vec::new();
        for error in self.lanes.iter().flat_map(|lane| lane.shared.failures()) {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        errors
    }
}

/// Returns an error in a forked child of the process that created `process`.
fn check_fork(process: &forkguard::Guard) -> Result<(), Error> {
    if forked(process) { Err(Error::Forked) } else { Ok(()) }
}

/// Returns whether this process is a descendant of the one that created `process`.
///
/// The function checks a copy of the guard, because a guard reports a fork only once. The check is
/// one load and one comparison (under 1 ns). A system call for the process ID takes 120 to 200 ns,
/// which is too much for every ID.
#[inline]
fn forked(process: &forkguard::Guard) -> bool {
    process.clone().detected_fork()
}
