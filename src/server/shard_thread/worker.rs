//! A shard's thread: a tokio current-thread runtime, the shard, and the tasks of its connections.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, mpsc as std_mpsc};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use crossbeam::utils::CachePadded;
use tokio::runtime::Runtime;
use tokio::sync::{Barrier, Notify, mpsc, oneshot, watch};
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::connection;
use super::ticker;
use crate::clock::{self, Now, Wall};
use crate::front::Native;
use crate::server::health::heartbeat::Heartbeat;
use crate::server::health::metrics::{Metrics, ShardCounters, Timing};
use crate::server::lifecycle::live_config::LiveConfig;
use crate::server::net::accept::Admitted;
use crate::server::net::handshake;
use crate::server::net::socket_stream::SocketStream;
use crate::shard::{Order, Shard};
use crate::source::line::{Finished, Signals, Ticket};
use crate::tls;
use snowbank_client::layout::Run;

/// Bytes read at once, and kept of what is read and not yet understood. Four thousand pipelined requests.
pub(crate) const INPUT_SIZE: usize = 64 * 1024;

/// What all threads of the daemon share.
pub(crate) struct Common {
    /// The configuration that is in force; shards go by their own view of it, on the request's path nobody looks here.
    pub(crate) live_config: watch::Receiver<Arc<LiveConfig>>,
    pub(crate) wall: Arc<Wall>,
    pub(crate) order: Order,
    pub(crate) wake_ups: Arc<WakeUps>,
    pub(crate) metrics: Arc<Metrics>,
    /// What TLS listeners shake hands with, if there is a certificate.
    pub(crate) tls: Option<tls::Acceptor>,
    /// Whether all threads live.
    pub(crate) heartbeat: Arc<Heartbeat>,
    /// Where the shards meet at the stop: while one still answers, all refuse what comes rather than close on it.
    pub(crate) all_drained: Barrier,
}

/// How threads wake each other when something that is waited for has happened.
#[derive(Debug)]
pub(crate) struct WakeUps {
    /// One for each shard's ticker.
    pub(crate) shards: Vec<Notify>,
    /// The keeper's thread, once it runs.
    pub(crate) keeper: std::sync::OnceLock<thread::Thread>,
}

impl WakeUps {
    pub(crate) fn wake_all_shards(&self) {
        for shard in &self.shards {
            shard.notify_one();
        }
    }

    /// Has the keeper look at once.
    pub(crate) fn wake_keeper(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }
}

impl Signals for WakeUps {
    fn finished(&self, shard: usize) {
        if let Some(bell) = self.shards.get(shard) {
            bell.notify_one();
        }
    }

    fn ceiling_reached(&self) {
        self.wake_keeper();
    }
}

/// One shard and what its connections share. All of one thread.
pub(crate) struct Worker {
    pub(crate) common: Arc<Common>,
    pub(crate) index: usize,
    /// This shard's, written by its thread alone.
    pub(crate) counters: Arc<CachePadded<ShardCounters>>,
    pub(crate) state: RefCell<State>,
    /// The configuration that turns go by. Replaced between turns alone.
    pub(crate) live_config: RefCell<Arc<LiveConfig>>,
    /// Set once the daemon stops: requests that have arrived are answered, later ones refused.
    pub(crate) draining: Cell<bool>,
    /// Whether a stop still waits for the first bytes of connections that have not sent any.
    pub(crate) awaits_newcomers: Cell<bool>,
    /// Connections that have not yet answered all that had arrived when the stop began.
    pub(crate) undrained: Cell<usize>,
    pub(crate) drained: Notify,
}

/// What a connection borrows for the length of one turn, never across an await.
pub(crate) struct State {
    pub(crate) shard: Shard,
    pub(crate) input: Box<[u8]>,
    pub(crate) output: Vec<u8>,
    pub(crate) runs: Vec<Run>,
    pub(crate) rng: fastrand::Rng,
    pub(crate) timing: Timing,
    /// Who waits in a line, by source and ticket.
    pub(crate) waiters: HashMap<(usize, Ticket), oneshot::Sender<Finished>>,
    /// When the ticker wakes by itself; `None`: when its bell is rung.
    pub(crate) ticker_wakes_at: Option<Instant>,
    /// Wakes each connection when the stop begins, or its timeouts change.
    pub(crate) wakers: Wakers,
}

/// The wakers of this thread's connections, each at the index that the connection was given.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    slots: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Wakers {
    fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        })
    }

    fn release(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.free.push(slot);
    }

    /// Remembers a connection's waker. A task's waker hardly ever changes.
    pub(crate) fn remember(&mut self, slot: usize, waker: &Waker) {
        if !self.slots[slot].as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.slots[slot] = Some(waker.clone());
        }
    }

    fn wake_all(&mut self) {
        self.slots.iter().flatten().for_each(Waker::wake_by_ref);
    }
}

/// How long a stop waits for the first request of a connection: it is under way if the client connected just before, and a
/// client that finds itself refused then would have been served a moment earlier or later. A long round trip.
const NEWCOMER_GRACE: Duration = Duration::from_millis(250);

/// What a shard's buffer of runs keeps when a reply has needed more: enough for any reply of one frame.
const KEPT_RUNS: usize = 4_096;

impl State {
    /// Gives back what one very long reply has needed.
    pub(crate) fn shrink(&mut self) {
        self.runs.clear();
        self.runs.shrink_to(KEPT_RUNS);
    }
}

impl Worker {
    pub(crate) fn new(common: Arc<Common>, shard: Shard, seed: u64) -> Self {
        let state = State {
            input: vec![0; INPUT_SIZE].into_boxed_slice(),
            output: Vec::new(),
            runs: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
            timing: Timing::new(),
            waiters: HashMap::new(),
            ticker_wakes_at: None,
            wakers: Wakers::default(),
            shard,
        };
        let index = state.shard.index();
        let live_config = Arc::clone(&common.live_config.borrow());
        Worker {
            index,
            counters: Arc::clone(&common.metrics.shards[index]),
            common,
            state: RefCell::new(state),
            live_config: RefCell::new(live_config),
            draining: Cell::new(false),
            awaits_newcomers: Cell::new(true),
            undrained: Cell::new(0),
            drained: Notify::new(),
        }
    }

    /// The one reading of the clock in a wake-up.
    pub(crate) fn now(&self) -> Now {
        self.common.wall.believe(clock::os::read())
    }

    /// Goes by another configuration from the next turn on.
    fn adopt(&self, live_config: Arc<LiveConfig>) {
        let state = &mut *self.state.borrow_mut();
        for supply in &live_config.supplies[state.shard.lane_count()..] {
            state.shard.add_lane(supply.lane(self.index, self.common.order, self.now()));
        }
        let timeouts =
            |live_config: &LiveConfig| (live_config.limits.idle_timeout, live_config.limits.frame_timeout);
        let after = timeouts(&live_config);
        let before = self.live_config.replace(live_config);
        if timeouts(&before) != after {
            // Those that wait for bytes wait by the new ones from now on.
            state.wakers.wake_all();
        }
    }

    /// A connection has answered all that had arrived when the stop began, or is gone.
    fn note_drained(&self) {
        self.undrained.set(self.undrained.get() - 1);
        if self.undrained.get() == 0 {
            self.drained.notify_one();
        }
    }
}

/// A connection's membership in its worker: its waker's slot, and whether the stop still has to wait for it.
pub(crate) struct Member {
    pub(crate) worker: Rc<Worker>,
    slot: usize,
    undrained: bool,
}

impl Member {
    fn new(worker: Rc<Worker>) -> Self {
        let slot = worker.state.borrow_mut().wakers.reserve();
        worker.undrained.set(worker.undrained.get() + 1);
        Member { worker, slot, undrained: true }
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Whether the stop still waits for this connection.
    pub(crate) fn is_undrained(&self) -> bool {
        self.undrained
    }

    /// Has the stop wake this task; to be called when it is about to sleep.
    pub(crate) fn remember(&self, waker: &Waker) {
        self.worker.state.borrow_mut().wakers.remember(self.slot, waker);
    }

    /// As [`note_drained`](Self::note_drained), if the stop has begun.
    pub(crate) fn note_drained_if_draining(&mut self) {
        if self.worker.draining.get() {
            self.note_drained();
        }
    }

    /// Says that the stop need not wait for this connection any more.
    pub(crate) fn note_drained(&mut self) {
        if std::mem::take(&mut self.undrained) {
            self.worker.note_drained();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.note_drained();
        self.worker.state.borrow_mut().wakers.release(self.slot);
    }
}

/// Runs a shard's thread until the stop is complete. `stop` turns true when it begins; `adopted` is told each version of the
/// configuration that the shard has taken up.
pub(crate) fn run(
    runtime: &Runtime,
    worker: Worker,
    mut inbox: mpsc::Receiver<Admitted>,
    adopted: std_mpsc::Sender<u64>,
    mut stop: watch::Receiver<bool>,
) {
    let mut live_config = worker.common.live_config.clone();
    let worker = Rc::new(worker);
    let tasks = LocalSet::new();
    tasks.block_on(runtime, async {
        tokio::task::spawn_local(ticker::run(Rc::clone(&worker)));
        let (heartbeat, index) = (Arc::clone(&worker.common.heartbeat), worker.index);
        tokio::task::spawn_local(async move { heartbeat.beat(index).await });
        loop {
            tokio::select! {
                biased;
                Ok(()) = live_config.changed() => {
                    let live_config = Arc::clone(&live_config.borrow_and_update());
                    let version = live_config.version;
                    worker.adopt(live_config);
                    // Fails when nobody waits for it any more.
                    let _ = adopted.send(version);
                }
                admitted = inbox.recv() => match admitted {
                    Some(admitted) => open(&worker, admitted),
                    None => break,
                },
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        // What was accepted before the stop is served as well.
        inbox.close();
        while let Some(admitted) = inbox.recv().await {
            open(&worker, admitted);
        }
        drain(&worker).await;
    });
}

fn open(worker: &Rc<Worker>, admitted: Admitted) {
    let Admitted { socket, tls, place } = admitted;
    // Fails when the peer is gone or descriptors are short: there is nobody to tell.
    let Ok(stream) = SocketStream::register(socket) else {
        return;
    };
    let front = Native::new(&worker.live_config.borrow().facts);
    let mut member = Member::new(Rc::clone(worker));
    match (stream, tls) {
        (SocketStream::Tcp(socket), Some(acceptor)) => tokio::task::spawn_local(async move {
            // Boxed, so that its room is given back once the connection is served.
            if let Some(stream) = Box::pin(handshake::shake_as(&mut member, socket, &acceptor)).await {
                connection::serve(stream, front, member).await;
            }
            drop(place);
        }),
        (stream, _) => tokio::task::spawn_local(async move {
            connection::serve(stream, front, member).await;
            drop(place);
        }),
    };
}

/// Answers what has arrived on this shard and on the others, within the drain timeout.
async fn drain(worker: &Worker) {
    worker.draining.set(true);
    worker.state.borrow_mut().wakers.wake_all();
    let no_more_newcomers = async {
        tokio::time::sleep(NEWCOMER_GRACE).await;
        worker.awaits_newcomers.set(false);
        worker.state.borrow_mut().wakers.wake_all();
        std::future::pending().await
    };
    let all_drained = async {
        while worker.undrained.get() > 0 {
            worker.drained.notified().await;
        }
        worker.common.all_drained.wait().await;
    };
    let all_drained = async {
        tokio::select! {
            () = no_more_newcomers => {}
            () = all_drained => {}
        }
    };
    tokio::pin!(all_drained);
    let timeout = worker.live_config.borrow().limits.drain_timeout.max(Duration::from_millis(1));
    // What still waits for IDs is refused early enough for the refusal to be taken.
    let answer_within = timeout - timeout / 4;
    if tokio::time::timeout(answer_within, &mut all_drained).await.is_ok() {
        return;
    }
    refuse_waits(worker);
    let in_time = tokio::time::timeout(timeout / 4, all_drained).await.is_ok();
    let left = worker.undrained.get();
    if !in_time && left > 0 {
        tracing::warn!(
            shard = worker.index,
            left,
            "connections had not taken their last replies; closed anyway"
        );
    }
}

fn refuse_waits(worker: &Worker) {
    let state = &mut *worker.state.borrow_mut();
    let live_config = worker.live_config.borrow();
    for ((source, ticket), waiter) in state.waiters.drain() {
        // Fails when the connection is gone.
        let _ = waiter.send(live_config.source(source).refuse(ticket));
    }
}
