//! The client for programs without async code. The caller needs no runtime: each client runs on a
//! thread of its own.
//!
//! ```no_run
//! use snowbank_client::blocking::Client;
//! use snowbank_client::{ClientOptions, IdsOptions};
//!
//! fn main() -> Result<(), snowbank_client::Error> {
//!     let client = Client::new(ClientOptions::new(["127.0.0.1:7660", "ids-2:7660"])?)?;
//!     for id in client.batch(1_000)? {
//!         println!("{id}");
//!     }
//!     let ids = client.ids(IdsOptions::default())?; // clone it into each thread
//!     println!("{}", ids.next()?);
//!     Ok(())
//! }
//! ```

use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::batch::Batch;
use super::error::{Error, signed};
use super::options::{ClientOptions, SourceChoice};
use super::{IdsOptions, SharedIds, check_fork, forked};
use snowbank_wire::Info;

/// A handle to one or several daemons. Each call blocks the calling thread. Clones share the
/// client's connections, and any thread may use a clone. The options, deadlines and errors are
/// those of [`Client`](super::Client).
#[derive(Debug, Clone)]
pub struct Client {
    client: super::Client,
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
        let (runtime, stop) = start()
            .map_err(|error| Error::bad_option(format!("cannot start the client's thread: {error}")))?;
        let client = {
            let _entered = runtime.enter();
            super::Client::new(options)?
        };
        let process = client.process.clone();
        Ok(Self { client, worker: Arc::new(Worker { stop: Some(stop), runtime, process }) })
    }

    /// Fetches `count` IDs of the default source.
    ///
    /// # Errors
    /// Returns an [`Error`] that says why the call failed.
    pub fn batch(&self, count: u32) -> Result<Batch, Error> {
        self.batch_from(SourceChoice::First, count)
    }

    /// Fetches `count` IDs of a source, by name or index.
    ///
    /// # Errors
    /// Returns an [`Error`] that says why the call failed.
    pub fn batch_from(&self, source: impl Into<SourceChoice>, count: u32) -> Result<Batch, Error> {
        let client = self.client.clone();
        let source = source.into();
        self.worker.wait(async move { client.batch(count).source(source).await })
    }

    /// Creates a buffer that hands out IDs one at a time.
    ///
    /// # Errors
    /// Returns [`Error::BadOption`] if an option is out of range.
    pub fn ids(&self, options: IdsOptions) -> Result<Ids, Error> {
        let ids = self.client.shared_ids(options)?;
        Ok(Ids { ids, worker: Arc::clone(&self.worker) })
    }

    /// Fetches the daemon's version, limits and sources.
    ///
    /// # Errors
    /// Returns an [`Error`] that says why the call failed.
    pub fn info(&self) -> Result<Info, Error> {
        let client = self.client.clone();
        self.worker.wait(async move { client.info().await })
    }
}

/// A buffer that hands out IDs one at a time. Clones share the buffer, and any thread may use a
/// clone. The buffer makes the promises of [`SharedIds`].
#[derive(Debug, Clone)]
pub struct Ids {
    ids: SharedIds,
    worker: Arc<Worker>,
}

impl Ids {
    /// Returns the next ID: at once from the buffer, or from the next reply if the buffer is empty.
    ///
    /// # Errors
    /// Returns an [`Error`] if the buffer is empty and the refill failed. The next call tries
    /// again.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it takes &self, so it cannot be an iterator")]
    pub fn next(&self) -> Result<u64, Error> {
        match self.ids.try_next()? {
            Some(id) => Ok(id),
            None => self.next_from_buffer(),
        }
    }

    /// Returns the next ID as a signed integer, for a column of type BIGINT.
    ///
    /// # Errors
    /// Returns the errors of [`next`](Self::next), and [`Error::AboveSigned`] if the ID is above
    /// [`i64::MAX`].
    #[inline]
    pub fn next_i64(&self) -> Result<i64, Error> {
        signed(self.next()?)
    }

    #[cold]
    fn next_from_buffer(&self) -> Result<u64, Error> {
        let ids = self.ids.clone();
        self.worker.wait(async move { ids.next_from_buffer().await })
    }
}

/// The thread that runs a client. The thread ends when the last handle is dropped.
#[derive(Debug)]
struct Worker {
    stop: Option<oneshot::Sender<()>>,
    runtime: Handle,
    process: forkguard::Guard,
}

fn start() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new().name("snowbank-client".to_owned());
    thread.spawn(move || drop(runtime.block_on(stopped)))?;
    Ok((handle, stop))
}

impl Worker {
    /// Runs a call on the thread, and waits for the answer. The call ends by its deadline.
    fn wait<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        check_fork(&self.process)?;
        let (answer, answers) = sync_channel(1);
        self.runtime.spawn(async move { drop(answer.send(call.await)) });
        answers.recv().unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A forked child does not have this thread. Dropping `stop` in the child would wake the
        // parent's thread.
        if forked(&self.process) {
            std::mem::forget(self.stop.take());
        }
    }
}
