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

use super::accept::Admitted;
use super::connection;
use super::handshake;
use super::in_force::InForce;
use super::metrics::{Metrics, ShardCounters, Timing};
use super::pulse::Pulse;
use super::stream::Stream;
use super::ticker;
use crate::clock::{self, Now, Wall};
use crate::front::Native;
use crate::layout::Run;
use crate::shard::{Order, Shard};
use crate::source::line::{Finished, Signals, Ticket};
use crate::tls;

/// Bytes read at once, and kept of what is read and not yet understood. Four thousand pipelined requests.
pub(super) const INPUT_SIZE: usize = 64 * 1024;

/// What all threads of the daemon share.
pub(super) struct Common {
    /// The configuration that is in force; shards go by their own view of it, on the request's path nobody looks here.
    pub(super) in_force: watch::Receiver<Arc<InForce>>,
    pub(super) wall: Arc<Wall>,
    pub(super) order: Order,
    pub(super) bells: Arc<Bells>,
    pub(super) metrics: Arc<Metrics>,
    /// What TLS listeners shake hands with, if there is a certificate.
    pub(super) tls: Option<tls::Acceptor>,
    /// Whether all threads live.
    pub(super) pulse: Arc<Pulse>,
    /// Where the shards meet at the stop: while one still answers, all refuse what comes rather than close on it.
    pub(super) all_drained: Barrier,
}

/// How threads wake each other when something that is waited for has happened.
#[derive(Debug)]
pub(super) struct Bells {
    /// One for each shard's ticker.
    pub(super) shards: Vec<Notify>,
    /// The keeper's thread, once it runs.
    pub(super) keeper: std::sync::OnceLock<thread::Thread>,
}

impl Bells {
    pub(super) fn ring_all(&self) {
        for shard in &self.shards {
            shard.notify_one();
        }
    }

    /// Has the keeper look at once.
    pub(super) fn wake_keeper(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }
}

impl Signals for Bells {
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
pub(super) struct Worker {
    pub(super) common: Arc<Common>,
    pub(super) index: usize,
    /// This shard's, written by its thread alone.
    pub(super) counters: Arc<CachePadded<ShardCounters>>,
    pub(super) state: RefCell<State>,
    /// The configuration that turns go by. Replaced between turns alone.
    pub(super) in_force: RefCell<Arc<InForce>>,
    /// Set once the daemon stops: requests that have arrived are answered, later ones refused.
    pub(super) draining: Cell<bool>,
    /// Whether a stop still waits for the first bytes of connections that have not sent any.
    pub(super) awaits_newcomers: Cell<bool>,
    /// Connections that have not yet answered all that had arrived when the stop began.
    pub(super) undrained: Cell<usize>,
    pub(super) drained: Notify,
}

/// What a connection borrows for the length of one turn, never across an await.
pub(super) struct State {
    pub(super) shard: Shard,
    pub(super) input: Box<[u8]>,
    pub(super) output: Vec<u8>,
    pub(super) runs: Vec<Run>,
    pub(super) rng: fastrand::Rng,
    pub(super) timing: Timing,
    /// Who waits in a line, by source and ticket.
    pub(super) waiters: HashMap<(usize, Ticket), oneshot::Sender<Finished>>,
    /// When the ticker wakes by itself; `None`: when its bell is rung.
    pub(super) ticker_wakes_at: Option<Instant>,
    /// Wakes each connection when the stop begins, or its timeouts change.
    pub(super) wakers: Wakers,
}

/// The wakers of this thread's connections, each at the index that the connection was given.
#[derive(Debug, Default)]
pub(super) struct Wakers {
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
    pub(super) fn remember(&mut self, slot: usize, waker: &Waker) {
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
    pub(super) fn shrink(&mut self) {
        self.runs.clear();
        self.runs.shrink_to(KEPT_RUNS);
    }
}

impl Worker {
    pub(super) fn new(common: Arc<Common>, shard: Shard, seed: u64) -> Self {
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
        let in_force = Arc::clone(&common.in_force.borrow());
        Worker {
            index,
            counters: Arc::clone(&common.metrics.shards[index]),
            common,
            state: RefCell::new(state),
            in_force: RefCell::new(in_force),
            draining: Cell::new(false),
            awaits_newcomers: Cell::new(true),
            undrained: Cell::new(0),
            drained: Notify::new(),
        }
    }

    /// The one reading of the clock in a wake-up.
    pub(super) fn now(&self) -> Now {
        self.common.wall.believe(clock::os::read())
    }

    /// Goes by another configuration from the next turn on.
    fn adopt(&self, in_force: Arc<InForce>) {
        let state = &mut *self.state.borrow_mut();
        for supply in &in_force.supplies[state.shard.lane_count()..] {
            state.shard.add_lane(supply.lane(self.index, self.common.order, self.now()));
        }
        let timeouts = |in_force: &InForce| (in_force.limits.idle_timeout, in_force.limits.stall_timeout);
        let after = timeouts(&in_force);
        let before = self.in_force.replace(in_force);
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
pub(super) struct Member {
    pub(super) worker: Rc<Worker>,
    slot: usize,
    undrained: bool,
}

impl Member {
    fn new(worker: Rc<Worker>) -> Self {
        let slot = worker.state.borrow_mut().wakers.reserve();
        worker.undrained.set(worker.undrained.get() + 1);
        Member { worker, slot, undrained: true }
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Whether the stop still waits for this connection.
    pub(super) fn is_undrained(&self) -> bool {
        self.undrained
    }

    /// Has the stop wake this task; to be called when it is about to sleep.
    pub(super) fn remember(&self, waker: &Waker) {
        self.worker.state.borrow_mut().wakers.remember(self.slot, waker);
    }

    /// As [`note_drained`](Self::note_drained), if the stop has begun.
    pub(super) fn note_drained_if_draining(&mut self) {
        if self.worker.draining.get() {
            self.note_drained();
        }
    }

    /// Says that the stop need not wait for this connection any more.
    pub(super) fn note_drained(&mut self) {
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
pub(super) fn run(
    runtime: &Runtime,
    worker: Worker,
    mut inbox: mpsc::Receiver<Admitted>,
    adopted: std_mpsc::Sender<u64>,
    mut stop: watch::Receiver<bool>,
) {
    let mut in_force = worker.common.in_force.clone();
    let worker = Rc::new(worker);
    let tasks = LocalSet::new();
    tasks.block_on(runtime, async {
        tokio::task::spawn_local(ticker::run(Rc::clone(&worker)));
        let (pulse, index) = (Arc::clone(&worker.common.pulse), worker.index);
        tokio::task::spawn_local(async move { pulse.beat(index).await });
        loop {
            tokio::select! {
                biased;
                Ok(()) = in_force.changed() => {
                    let in_force = Arc::clone(&in_force.borrow_and_update());
                    let version = in_force.version;
                    worker.adopt(in_force);
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
    let Ok(stream) = Stream::register(socket) else {
        return;
    };
    let front = Native::new(&worker.in_force.borrow().facts);
    let mut member = Member::new(Rc::clone(worker));
    match (stream, tls) {
        (Stream::Tcp(socket), Some(acceptor)) => tokio::task::spawn_local(async move {
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
    let timeout = worker.in_force.borrow().limits.drain_timeout.max(Duration::from_millis(1));
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
    let in_force = worker.in_force.borrow();
    for ((source, ticket), waiter) in state.waiters.drain() {
        // Fails when the connection is gone.
        let _ = waiter.send(in_force.source(source).refuse(ticket));
    }
}
