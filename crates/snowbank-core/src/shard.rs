//! One core's generator. For each source it has the *current run*, from which IDs are handed out
//! next, and a ring of *blocks*: positions claimed ahead. While the core is busy, the generator
//! claims ahead. If the run and the ring are used up, a request claims directly.
//!
//! A [`Shard`] belongs to one thread. Only the shard's rings are shared: other shards, its
//! *siblings*, take blocks from them when a source has too little left to claim. A shard does no
//! I/O. Its thread passes a reading of the clock to [`Shard::wake`], then takes IDs, and calls
//! [`Shard::top_up`].
//!
//! A shard hands out a source's IDs in increasing order, so each connection's IDs increase too. The
//! exception is a request that waited: it may get lower IDs than the shard's other connections got
//! meanwhile. The positions of the current run lie below those of the ring, and these lie below
//! every later claim. A shard drops blocks that lie below IDs that it has already handed out.

mod lane;
mod ring;

pub use lane::{IdsLost, Lane, Rings, Taken};
pub use ring::{Block, CurrentRun, RING_BLOCKS, Ring};

use std::sync::Arc;

use crate::clock::Now;
use crate::source::Source;

/// The scope within which IDs increase: a connection, or the whole daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// IDs increase on each connection, and are k-sorted over the daemon. Shards claim ahead of
    /// demand.
    #[default]
    Relaxed,
    /// IDs increase over the whole daemon: a request sent after a reply was received gets larger
    /// IDs than that reply has. Nothing is claimed ahead.
    Strict,
}

impl Order {
    /// Returns the name in configurations and in INFO.
    pub const fn name(self) -> &'static str {
        match self {
            Order::Relaxed => "relaxed",
            Order::Strict => "strict",
        }
    }
}

/// One core's generator of all sources.
#[derive(Debug)]
pub struct Shard {
    index: usize,
    lanes: Vec<Lane>,
    /// The lanes that this wake-up has used. Only these lanes need a top-up when the wake-up ends.
    used: Vec<usize>,
    now: Now,
    rng: fastrand::Rng,
}

impl Shard {
    /// Creates a shard with a lane for each source, in the order of their indices.
    pub fn new(index: usize, lanes: Vec<Lane>, seed: u64, now: Now) -> Self {
        // All lanes may be used in one wake-up, and a wake-up must not allocate.
        let used = Vec::with_capacity(lanes.len());
        Shard { index, lanes, used, now, rng: fastrand::Rng::with_seed(seed) }
    }

    /// Returns the number of this shard.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Replaces the lanes of all sources that are not these, and adds lanes for new ones. `lane`
    /// makes the lane of a source. IDs that were claimed ahead for a replaced source are skipped.
    /// Must be called between two wake-ups.
    pub fn adopt<'s>(
        &mut self,
        sources: impl Iterator<Item = &'s Arc<Source>>,
        lane: impl Fn(usize) -> Lane,
    ) {
        self.top_up();
        for (index, source) in sources.enumerate() {
            match self.lanes.get_mut(index) {
                Some(old) if Arc::ptr_eq(old.source(), source) => {}
                Some(old) => *old = lane(index),
                None => self.lanes.push(lane(index)),
            }
        }
        // All lanes may be used in one wake-up, and a wake-up must not allocate.
        self.used.reserve(self.lanes.len());
    }

    /// Starts a wake-up: later claims use `now`, and blocks that are too old at `now` are dropped.
    #[inline]
    pub fn wake(&mut self, now: Now) {
        self.top_up();
        self.now = now;
    }

    /// Returns the lane of a source, with the random number generator that the lane's methods take.
    ///
    /// # Panics
    /// Panics if there is no such source. Code that gets an index from a client must check the
    /// index first.
    #[inline]
    pub fn lane(&mut self, source: usize) -> (&mut Lane, &mut fastrand::Rng) {
        let lane = &mut self.lanes[source];
        if !lane.is_awake() {
            lane.wake(self.now);
            self.used.push(source);
        }
        (lane, &mut self.rng)
    }

    /// Ends a wake-up: claims as many IDs ahead as recent demand suggests. The caller sends most
    /// replies first.
    #[inline]
    pub fn top_up(&mut self) {
        for source in self.used.drain(..) {
            self.lanes[source].top_up(&mut self.rng);
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(all(test, snowbank_loom))]
mod models;
