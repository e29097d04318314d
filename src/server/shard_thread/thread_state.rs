//! The state of one shard's thread, shared by its tasks.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam::utils::CachePadded;
use tokio::sync::Notify;

use crate::os_clock;

use super::scheduler::Scheduler;
use super::turn_state::TurnState;
use super::welcome::Kept;
use crate::config::Protocol;
use crate::frontends::{Counts, Daemon, Gets};
use crate::server::common::Common;
use crate::server::health::metrics::ShardCounters;
use crate::server::shared::live_config::{LiveConfig, Stage};
use snowbank_core::clock::Now;
use snowbank_core::shard::Shard;
use snowbank_core::source::LastNumber;

/// A shard, and the state that its connections share.
pub(crate) struct ThreadState {
    pub(super) common: Arc<Common>,
    pub(super) index: usize,
    pub(super) counters: Arc<CachePadded<ShardCounters>>,
    pub(super) turn: RefCell<TurnState>,
    pub(super) scheduler: Scheduler,
    /// The configuration of this thread's turns. It is replaced only between turns.
    pub(super) live_config: RefCell<Arc<LiveConfig>>,
    /// The WELCOME that the thread last sent.
    pub(super) welcome: RefCell<Kept>,
    /// True once the daemon stops. Requests that have arrived are answered, and later requests are
    /// refused.
    pub(super) draining: Cell<bool>,
    /// True once a stop has refused all waiting requests. Requests that were read behind these
    /// requests are then refused, too.
    pub(super) refuses_all: Cell<bool>,
    /// False once a stop no longer waits for connections that have sent nothing.
    pub(super) awaits_newcomers: Cell<bool>,
    /// The number of connections that a stop must still wait for.
    pub(super) undrained: Cell<usize>,
    /// Signalled when `undrained` becomes 0.
    pub(super) drained: Notify,
}

impl Daemon for ThreadState {
    fn welcome(&self, tag: u16, out: &mut Vec<u8>) {
        let metrics = &self.common.metrics;
        let is_sure = metrics.fleet_answers.load(Ordering::Relaxed);
        self.welcome.borrow_mut().write(&self.live_config.borrow(), is_sure, metrics.instance.0, tag, out);
    }

    fn add_gets(&self, gets: Gets) {
        self.counters.gets.add(gets);
    }

    fn last_number(&self, source: usize) -> Option<LastNumber> {
        self.live_config.borrow().source(source).last_number()
    }

    fn counts_of(&self, protocol: Protocol) -> Counts {
        self.common.metrics.counts_of(protocol)
    }
}

impl ThreadState {
    pub(crate) fn new(common: Arc<Common>, index: usize) -> Self {
        let live_config = Arc::clone(&common.live_config.borrow());
        let now = common.wall.believe(os_clock::read());
        let lanes = live_config.supplies.iter().map(|supply| supply.lane(index, common.order, now));
        let shard = Shard::new(index, lanes.collect(), fastrand::u64(..), now);
        ThreadState {
            index,
            counters: Arc::clone(&common.metrics.shards[index]),
            common,
            turn: RefCell::new(TurnState::new(shard)),
            scheduler: Scheduler::default(),
            live_config: RefCell::new(live_config),
            welcome: RefCell::default(),
            draining: Cell::new(false),
            refuses_all: Cell::new(false),
            awaits_newcomers: Cell::new(true),
            undrained: Cell::new(0),
            drained: Notify::new(),
        }
    }

    /// Reads the clocks. Returns the time that the daemon believes.
    pub(super) fn now(&self) -> Now {
        self.common.wall.believe(os_clock::read())
    }

    /// Adopts a new configuration, which later turns use. Wakes all connections. They then wait
    /// with the new timeouts, or ask a source again that has a grant now. Those whose token or
    /// certificate was removed close. Requests that wait for a removed source are refused.
    pub(super) fn adopt(&self, live_config: Arc<LiveConfig>) {
        let now = self.now();
        let turn = &mut *self.turn.borrow_mut();
        let sources = live_config.supplies.iter().map(|supply| &supply.source);
        turn.shard
            .adopt(sources, |index| live_config.supplies[index].lane(self.index, self.common.order, now));
        // Nothing advances the wait queue of a removed source, so its requests are refused now.
        let removed = |source: usize| live_config.supplies[source].stage == Stage::Removed;
        for ((source, id), waiter) in turn.waiters.extract_if(|(source, _), _| removed(*source)) {
            // Sending fails if the connection is gone.
            let _ = waiter.send(live_config.source(source).refuse(id));
        }
        turn.wakers.wake_all();
        self.live_config.replace(live_config);
    }
}
