//! One core's generator: for each source the current block, a ring of blocks claimed ahead, and the claims for what they
//! do not hold.
//!
//! A [`Shard`] belongs to one thread; only its rings are shared, with siblings at the edge. It does no I/O: whoever drives
//! it reads the clock once for each wake-up and passes it to [`Shard::wake`], then takes IDs, and after replies are flushed
//! calls [`Shard::top_up`].
//!
//! Within one shard a source's IDs are handed out in increasing order, so that each connection's increase too: the current
//! block lies below the ring, the ring below every later claim, and what turns out to lie below IDs already handed out is
//! dropped.

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod lane;
mod ring;

pub use lane::{Lane, Rings, Taken};
pub use ring::{Block, RING_BLOCKS, Ring};

use crate::clock::Now;

/// Whether IDs increase within connections or over the whole daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// On each connection; over the daemon k-sorted. Shards claim ahead of demand.
    #[default]
    Relaxed,
    /// Over the whole daemon: a request sent after a reply was received gets larger IDs. Nothing is claimed ahead.
    Strict,
}

impl Order {
    /// Its name in configurations and in INFO.
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
    /// Lanes that this wake-up has used: those alone have something to end.
    used: Vec<usize>,
    now: Now,
    rng: fastrand::Rng,
}

impl Shard {
    /// A shard with a lane for each source, in the order of their indices.
    pub fn new(index: usize, lanes: Vec<Lane>, seed: u64, now: Now) -> Self {
        let used = Vec::with_capacity(lanes.len());
        Shard { index, lanes, used, now, rng: fastrand::Rng::with_seed(seed) }
    }

    /// Adds the lane of a source that joins: its index follows those there are.
    pub fn add_lane(&mut self, lane: Lane) {
        self.lanes.push(lane);
        // All of them may be used in one wake-up, which is no time to allocate.
        self.used.reserve(self.lanes.len() - self.used.len());
    }

    /// How many sources it has lanes to.
    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// Which shard this is.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Starts a wake-up: from here on claims go by `now`, and blocks that are too old by it are dropped.
    #[inline]
    pub fn wake(&mut self, now: Now) {
        self.top_up();
        self.now = now;
    }

    /// The lane of a source, with the randomness that its calls want.
    ///
    /// # Panics
    /// If there is no such source: whoever accepts an index from outside checks it there.
    #[inline]
    pub fn lane(&mut self, source: usize) -> (&mut Lane, &mut fastrand::Rng) {
        let lane = &mut self.lanes[source];
        // Few sources, and mostly one: quicker than a mark on each lane.
        if !self.used.contains(&source) {
            lane.wake(self.now);
            self.used.push(source);
        }
        (lane, &mut self.rng)
    }

    /// Ends a wake-up: claims ahead what the demand of late suggests. Off the request's path.
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
