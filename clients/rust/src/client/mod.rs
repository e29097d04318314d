//! An asynchronous client, on tokio.
//!
//! ```no_run
//! use std::time::Duration;
//! use snowbank_client::{Client, ClientOptions, IdsOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(ClientOptions::new(["ids-1:7660", "ids-2:7660"])?)?;
//!
//! // A batch in one round trip: a thousand IDs that nobody else has, in increasing order.
//! for id in &client.batch(1_000).await? {
//!     println!("{id}");
//! }
//!
//! // IDs one at a time, from a buffer that is refilled in the background.
//! let mut ids = client.ids(IdsOptions::default().max_age(Duration::from_secs(1)))?;
//! let id: u64 = ids.next().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] is a handle: clone it freely, the clones share one connection, and the calls of all of them are
//! pipelined on it. [`Ids`] is for numbering rows: one for each task or thread that does so.
//!
//! # Deadlines, failures and other endpoints
//! Every call has a deadline that covers everything: its turn in the queue, resolving and connecting, the daemon's own
//! wait, and further tries. Within it a call is tried again, on the next endpoint where there is one, when the
//! connection was lost or could not be made, and when the daemon answered `shutting_down`, `too_busy`, `clock_behind`
//! or `no_ceiling`: these speak of that daemon's state. It is not when the answer was `bad_count`, `unknown_source`,
//! `exhausted`, `unauthorized`, `malformed` or `unsupported`, which every daemon would give alike, nor when the other
//! side broke the protocol, which is a defect to be seen. See [`Error::is_retried`].
//!
//! Trying again is safe: IDs of a reply that got lost are skipped, never handed out to anyone else. A call whose future
//! is dropped is cancelled the same way.
//!
//! There is a connection only while somebody has asked for something. An endpoint that failed is left alone for a random
//! and growing time, so that a daemon that comes back does not meet all of its clients at once.
//!
//! # TLS
//! An address `tls:host:port` is one of a TLS listener; it wants the cargo feature `tls`. Whom the client believes, and its
//! own certificate where the daemon asks for one, are said with `ClientOptions::tls`.
//!
//! # Order
//! The IDs of one batch increase, and so do those of successive batches on one connection. After a reconnect, or from
//! another daemon, they are only sorted by time as the daemons' clocks agree.
//!
//! # Fork
//! A client and its [`Ids`] work in the process that made them. In a forked child every call, and every ID from the
//! buffer, is [`Error::Forked`]: an ID is never handed out by parent and child both. The runtime that the client lives
//! on does not work in the child either; make both anew there. Noticed are forks made through the C library's `fork`,
//! which is what languages and servers use; a bare `clone` system call goes unseen.

mod ask;
mod batch;
mod call;
mod connection;
mod driver;
mod endpoint;
mod error;
mod ids;
mod options;
mod queue;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Where a daemon listens, as a client names it: any [`Address`](crate::address::Address) but one with port 0.
pub use crate::address::Address as Endpoint;
/// Text that names no [`Endpoint`].
pub use crate::address::AddressError as BadEndpoint;
#[cfg(feature = "tls")]
pub use crate::tls::ClientFiles as TlsFiles;
pub use ask::BatchCall;
pub use batch::{Batch, BatchIter, Runs};
pub use error::{Error, Refusal};
pub use ids::{Ids, IdsOptions, NextId};
pub use options::{ClientOptions, SourceChoice};

use call::{Call, Deadline};
use shared::Shared;

use crate::protocol::Info;

/// A handle to a daemon, or to several of which one is used at a time. Clones share its connection.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Call>,
    runtime: Handle,
    /// As it was in the process that made the client; only ever read, through a copy.
    process: forkguard::Guard,
}

impl Client {
    /// A client on the current tokio runtime, which needs its time and I/O drivers. It connects when it is first asked.
    ///
    /// # Errors
    /// [`Error::BadOption`] names an option that is out of range; [`Error::Closed`] if there is no tokio runtime here.
    pub fn new(options: ClientOptions) -> Result<Self, Error> {
        options.check()?;
        let runtime = Handle::try_current().map_err(|_| Error::Closed)?;
        let process = forkguard::Guard::try_new()
            .map_err(|error| Error::BadOption(format!("forks cannot be noticed: {error}").into()))?;
        let (queue, calls) = mpsc::channel(options.max_queued);
        let shared = Arc::new(Shared::new(options));
        runtime.spawn(driver::Driver::new(Arc::clone(&shared), queue::Queue::new(calls)).run());
        Ok(Self { shared, queue, runtime, process })
    }

    /// Asks for `count` IDs of the default source. Await the call, or refine it first:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: snowbank_client::Client) -> Result<(), snowbank_client::Error> {
    /// let batch = client.batch(50_000).source("orders").max_wait(Duration::from_millis(20)).partial().await?;
    /// println!("{} IDs from {}", batch.len(), batch.endpoint());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "a call does nothing unless it is awaited"]
    pub fn batch(&self, count: u32) -> BatchCall<'_> {
        BatchCall::new(self, count)
    }

    /// IDs one at a time, from a buffer of their own.
    ///
    /// # Errors
    /// [`Error::BadOption`] names an option that is out of range.
    pub fn ids(&self, options: IdsOptions) -> Result<Ids, Error> {
        Ids::new(self.clone(), options)
    }

    /// What the daemon says of itself: its version, limits and sources.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn info(&self) -> Result<Info, Error> {
        let deadline = Deadline::after(self.shared.options.timeout);
        self.call(&deadline, |reply| Call::Info { reply }).await
    }

    /// How long the daemon takes to answer a PING, from the moment it was queued on an open connection.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn ping(&self) -> Result<Duration, Error> {
        let deadline = Deadline::after(self.shared.options.timeout);
        self.call(&deadline, |reply| Call::Ping { reply }).await
    }

    /// Refuses to work in a forked child.
    fn check_process(&self) -> Result<(), Error> {
        if forked(&self.process) { Err(Error::Forked) } else { Ok(()) }
    }
}

/// Whether this process is a child, however far down, of the one in which `process` was taken.
///
/// A copy is asked, because asking a guard makes it forget. What is left when compiled is one load and one comparison
/// (under 1 ns), where asking the kernel for the process ID took 120 to 200 ns when measured: too much for every ID.
#[inline]
fn forked(process: &forkguard::Guard) -> bool {
    process.clone().detected_fork()
}
