//! A shard thread's main loop, which opens connections until the stop.

use std::rc::Rc;
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use super::drain::drain;
use super::open::open;
use super::thread_state::ThreadState;
use super::ticker;
use crate::server::acceptor::Admitted;

/// Runs a shard's thread until the stop is complete. When the stop begins, `stop` receives the
/// instant by which all requests must be answered. Whenever the shard adopts a configuration, it
/// sends the configuration's version over `adopted`.
pub(crate) fn run(
    runtime: &Runtime,
    thread: ThreadState,
    inbox: mpsc::Receiver<Admitted>,
    adopted: std_mpsc::Sender<u64>,
    stop: watch::Receiver<Option<Instant>>,
) {
    LocalSet::new().block_on(runtime, async move {
        // This runs as a task of its own, because `block_on` polls its own future at each wake-up
        // of the thread.
        let served = tokio::task::spawn_local(serve(Rc::new(thread), inbox, adopted, stop));
        if let Err(failure) = served.await {
            std::panic::resume_unwind(failure.into_panic());
        }
    });
}

/// Opens connections and adopts configurations until the stop, and then drains the connections.
async fn serve(
    thread: Rc<ThreadState>,
    mut inbox: mpsc::Receiver<Admitted>,
    adopted: std_mpsc::Sender<u64>,
    mut stop: watch::Receiver<Option<Instant>>,
) {
    let mut configs = thread.common.live_config.clone();
    tokio::task::spawn_local(ticker::run(Rc::clone(&thread)));
    let scheduled = Rc::clone(&thread);
    tokio::task::spawn_local(async move { scheduled.scheduler.run().await });
    let common = Arc::clone(&thread.common);
    let index = thread.index;
    tokio::task::spawn_local(async move { common.heartbeat.beat(index).await });
    loop {
        tokio::select! {
            biased;
            Ok(()) = configs.changed() => {
                let config = Arc::clone(&configs.borrow_and_update());
                let version = config.version;
                thread.adopt(config);
                // Sending fails if the reloader is gone.
                let _ = adopted.send(version);
            }
            admitted = inbox.recv() => match admitted {
                Some(admitted) => open(&thread, admitted),
                None => break,
            },
            _ = stop.wait_for(Option::is_some) => break,
        }
    }
    // Connections that were accepted before the stop are still opened.
    inbox.close();
    while let Some(admitted) = inbox.recv().await {
        open(&thread, admitted);
    }
    // The acceptors may close the inbox a moment before `stop` receives its instant.
    let drained_by = stop.wait_for(Option::is_some).await.ok().and_then(|by| *by);
    drain(&thread, drained_by.unwrap_or_else(Instant::now)).await;
}
