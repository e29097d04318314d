//! Starts the daemon's threads, and waits for them at a stop.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use crate::server::acceptor::{INBOX_SOCKETS, Inbox};
use crate::server::ceilings::keeper_thread::Ceilings;
use crate::server::common::Common;
use crate::server::reading::handle::{END_TIMEOUT, TRIM_TIMEOUT};
use crate::server::shard_thread::scheduler::record_poll;
use crate::server::shard_thread::shard_loop;
use crate::server::shard_thread::thread_state::ThreadState;
use crate::server::shared::start_error::StartError;
use snowbank_state::StateError;

/// Makes the runtime of one thread.
pub(super) fn make_runtime() -> Result<Runtime, StartError> {
    let made =
        tokio::runtime::Builder::new_current_thread().enable_all().on_thread_unpark(record_poll).build();
    made.map_err(|error| StartError::no_thread(&error))
}

/// The threads of all shards.
pub(super) struct ShardThreads {
    threads: Vec<JoinHandle<()>>,
    /// The instant by which the shards must have answered. `None`: the stop has not begun.
    stop: watch::Sender<Option<Instant>>,
    /// The channel closes when the last thread ends.
    ended: mpsc::Receiver<()>,
}

impl ShardThreads {
    /// Starts a thread for each shard. Also returns the shards' inboxes, through which the shards
    /// get their connections.
    pub(super) fn spawn(
        common: &Arc<Common>,
        runtimes: Vec<Runtime>,
        adopted: std_mpsc::Sender<u64>,
    ) -> io::Result<(Arc<[Inbox]>, ShardThreads)> {
        let (stop, stopped) = watch::channel(None);
        let (alive, ended) = mpsc::channel(1);
        let mut inboxes = Vec::new();
        let mut threads = Vec::new();
        for (index, runtime) in runtimes.into_iter().enumerate() {
            let (sockets, inbox) = mpsc::channel(INBOX_SOCKETS);
            inboxes.push(Inbox { sockets, connections: Arc::clone(&common.metrics.open[index]) });
            let common = Arc::clone(common);
            let adopted = adopted.clone();
            let stopped = stopped.clone();
            let name = format!("shard-{index}");
            let alive = alive.clone();
            threads.push(thread::Builder::new().name(name).spawn(move || {
                shard_loop::run(&runtime, ThreadState::new(common, index), inbox, adopted, stopped);
                drop(alive);
            })?);
        }
        Ok((inboxes.into(), ShardThreads { threads, stop, ended }))
    }

    /// Stops the shards, and waits until they have ended. The shards first answer the requests that
    /// have arrived, until `drained_by` at most. A thread that is blocked then keeps no source from
    /// its seal: what it has claimed lies below the bound that the stop stores.
    pub(super) async fn stop(&mut self, drained_by: Instant) {
        let _ = self.stop.send(Some(drained_by));
        let ended = tokio::time::timeout_at((drained_by + END_TIMEOUT).into(), self.ended.recv());
        if ended.await.is_err() {
            tracing::warn!("a shard's thread is blocked: the stop goes on without it");
            self.threads.clear();
        }
    }

    /// Waits for the end of the threads.
    pub(super) fn join(self) {
        for thread in self.threads {
            thread.join().expect("a panic of a thread ends the process");
        }
    }
}

/// The keeper thread.
pub(super) struct KeeperThread {
    thread: JoinHandle<()>,
    stopping: Arc<AtomicBool>,
    sealed: std_mpsc::Receiver<Result<(), StateError>>,
}

impl KeeperThread {
    /// Starts the thread that raises ceilings.
    pub(super) fn spawn(ceilings: Ceilings, common: &Arc<Common>) -> io::Result<KeeperThread> {
        let stopping = Arc::new(AtomicBool::new(false));
        let (send_end, sealed) = std_mpsc::channel();
        let shared = Arc::clone(common);
        let is_stopping = Arc::clone(&stopping);
        let thread = thread::Builder::new().name(String::from("keeper")).spawn(move || {
            // `run` releases the locks before its result is sent.
            let _ = send_end.send(ceilings.run(&shared, &is_stopping));
        })?;
        common.wake_ups.set_keeper(thread.thread().clone());
        Ok(KeeperThread { thread, stopping, sealed })
    }

    /// Seals the sources and trims their ceilings. Waits for storage and the coordinator until
    /// [`TRIM_TIMEOUT`] after that, or after now if it is later.
    pub(super) fn stop(self, drained_by: Instant) {
        self.stopping.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let drain_left = drained_by.saturating_duration_since(Instant::now());
        match self.sealed.recv_timeout(drain_left + TRIM_TIMEOUT) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the ceilings could not be trimmed; the next start begins above them");
            }
            // The keeper thread ends with the process, as after kill -9. Durable ceilings stay
            // durable.
            Err(RecvTimeoutError::Timeout) => tracing::warn!(
                "storage or the fleet's coordinator did not answer in time; if the ceilings are not trimmed, the \
                 next start begins above them"
            ),
            Err(RecvTimeoutError::Disconnected) => panic!("a panic of a thread ends the process"),
        }
    }
}
