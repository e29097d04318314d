//! What a reload can change of what shards go by.
//!
//! It is never changed itself: a reload makes another, and each shard goes by that from its next turn on. So a turn sees one
//! configuration from its start to its end, and reads it without a lock or memory that others write.

use std::sync::Arc;

use crate::clock::Now;
use crate::config::Limits;
use crate::front::Facts;
use crate::shard::{Lane, Order, Ring, Rings};
use crate::source::Source;

/// One configuration, as shards go by it.
pub(crate) struct LiveConfig {
    /// Counts reloads.
    pub(crate) version: u64,
    pub(crate) facts: Facts,
    pub(crate) limits: Limits,
    /// The sources by their index. A reload adds to them and takes none away.
    pub(crate) supplies: Vec<Supply>,
}

/// A source and the shards' rings of it.
#[derive(Clone)]
pub(crate) struct Supply {
    pub(crate) source: Arc<Source>,
    rings: Rings,
}

impl Supply {
    pub(crate) fn new(source: Arc<Source>, shards: usize) -> Self {
        Supply { source, rings: (0..shards).map(|_| Ring::default()).collect() }
    }

    /// The way of one shard to it.
    pub(crate) fn lane(&self, shard: usize, order: Order, now: Now) -> Lane {
        Lane::new(Arc::clone(&self.source), Arc::clone(&self.rings), shard, order, now)
    }
}

impl LiveConfig {
    /// How often grants of its sources were lost.
    pub(crate) fn losses(&self) -> u64 {
        self.supplies.iter().map(|supply| supply.source.grant().generation()).sum()
    }

    pub(crate) fn source(&self, index: usize) -> &Source {
        &self.supplies[index].source
    }
}
