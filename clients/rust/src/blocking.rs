//! The client for programs without async code. The caller needs no runtime: each client runs on a
//! thread of its own.
//!
//! ```no_run
//! use snowbank_client::ClientOptions;
//! use snowbank_client::blocking::Client;
//!
//! fn main() -> Result<(), snowbank_client::Error> {
//!     let client = Client::new(ClientOptions::new(["127.0.0.1:7660", "ids-2:7660"])?)?;
//!     for id in client.batch(1_000)? {
//!         println!("{id}");
//!     }
//!     let ids = client.ids(); // clone it into each thread
//!     println!("{}", ids.next()?);
//!     Ok(())
//! }
//! ```

use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::ThreadId;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::error::Error;
use crate::options::ClientOptions;
use crate::stats::Stats;

/// A handle to one or several daemons. Each call blocks the calling thread. Clones share the
/// client's connection, and any thread may use a clone. The options, deadlines and errors are those
/// of [`snowbank_client::Client`](crate::Client).
#[derive(Debug, Clone)]
pub struct Client {
    client: crate::Client,
    worker: Arc<Worker>,
}

impl Client {
    /// Creates a client, and the thread that the client runs on. The client connects at the first
    /// call.
    ///
    /// # Errors
    /// Returns [`Error::BadOption`] if an option or a TLS file is bad, or if no thread can be
    /// started.
    pub fn new(options: ClientOptions) -> Result<Self, Error> {
        let (thread, runtime, stop) = start()
            .map_err(|error| Error::bad_option(format!("cannot start the client's thread: {error}")))?;
        let client = {
            let _entered = runtime.enter();
            crate::Client::new(options)?
        };
        let worker = Worker { stop: Some(stop), thread, runtime, client: client.clone() };
        Ok(Self { client, worker: Arc::new(worker) })
    }

    fn with(&self, client: crate::Client) -> Self {
        Self { client, worker: self.worker.clone() }
    }

    /// Returns a handle to the same client that draws from another source.
    ///
    /// # Errors
    /// Returns [`Error::BadOption`] if the name is empty, or longer than that of any source.
    pub fn source(&self, name: impl AsRef<str>) -> Result<Self, Error> {
        self.client.source(name).map(|client| self.with(client))
    }

    /// Returns a handle to the same client whose calls have another timeout.
    #[must_use]
    pub fn timeout(&self, timeout: Duration) -> Self {
        self.with(self.client.timeout(timeout))
    }

    /// Fetches `count` IDs, which increase.
    ///
    /// # Errors
    /// Returns an [`Error`] that says why the call failed.
    pub fn batch(&self, count: u32) -> Result<Vec<u64>, Error> {
        let client = self.client.clone();
        self.worker.wait(async move { client.batch(count).await })
    }

    /// Creates a buffer that hands out IDs one at a time.
    #[must_use]
    pub fn ids(&self) -> Ids {
        Ids { ids: self.client.shared_ids(), worker: Arc::clone(&self.worker) }
    }

    /// Checks that a daemon answers, and returns the time that it took.
    ///
    /// # Errors
    /// Returns an [`Error`] that says why the call failed.
    pub fn ping(&self) -> Result<Duration, Error> {
        let client = self.client.clone();
        self.worker.wait(async move { client.ping().await })
    }

    /// Returns what the client has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.client.stats()
    }

    /// Closes the client and all its clones. Calls in flight end at once with [`Error::Closed`].
    pub fn close(&self) {
        self.client.close();
    }

    /// Closes the client and all its clones. New calls are refused, and calls in flight have this
    /// time to end.
    ///
    /// # Errors
    /// Returns [`Error::Forked`] in a forked child.
    pub fn close_within(&self, time: Duration) -> Result<(), Error> {
        let client = self.client.clone();
        self.worker.wait(async move {
            client.close_within(time).await;
            Ok(())
        })
    }
}

/// A buffer that hands out IDs one at a time. Clones share the buffer, and any thread may use a
/// clone. The buffer makes the promises of [`snowbank_client::Ids`](crate::Ids).
#[derive(Debug, Clone)]
pub struct Ids {
    ids: crate::SharedIds,
    worker: Arc<Worker>,
}

impl Ids {
    /// Returns the next ID: at once from the buffer, or from the next reply if the buffer is empty.
    ///
    /// # Errors
    /// Returns an [`Error`] if the buffer is empty and the refill failed, or the client's timeout
    /// passed. The next call tries again.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it takes &self, so it cannot be an iterator")]
    pub fn next(&self) -> Result<u64, Error> {
        match self.ids.take() {
            Some(id) => Ok(id),
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> Result<u64, Error> {
        let ids = self.ids.clone();
        self.worker.wait(async move { ids.wait().await })
    }

    /// Returns a handle to the same buffer whose calls have another timeout.
    #[must_use]
    pub fn timeout(&self, timeout: Duration) -> Self {
        Self { ids: self.ids.timeout(timeout), worker: self.worker.clone() }
    }
}

/// The thread that runs a client. The thread ends when the last handle is dropped.
#[derive(Debug)]
struct Worker {
    stop: Option<oneshot::Sender<()>>,
    thread: ThreadId,
    runtime: Handle,
    client: crate::Client,
}

fn start() -> io::Result<(ThreadId, Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new().name("snowbank-client".to_owned());
    let thread = thread.spawn(move || {
        // An error means that the last handle was dropped, as a message does.
        drop(runtime.block_on(stopped));
        // A name that is still being resolved must not keep the thread.
        runtime.shutdown_background();
    })?;
    Ok((thread.thread().id(), handle, stop))
}

impl Worker {
    /// Runs a call on the client's thread, and waits for the answer. The call ends by its deadline.
    fn wait<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        if self.client.core().is_forked() {
            return Err(Error::Forked);
        }
        if std::thread::current().id() == self.thread {
            return Err(Error::bad_option(
                "a tracing subscriber waits for its own client; leave the call out",
            ));
        }
        let (answer, answers) = sync_channel(1);
        self.runtime.spawn(async move { drop(answer.send(call.await)) });
        answers.recv().unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A forked child does not have this thread. Dropping `stop` in the child would wake the
        // parent's thread.
        if self.client.core().is_forked() {
            std::mem::forget(self.stop.take());
        }
    }
}
