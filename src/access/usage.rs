//! The counts of one identity.

use std::sync::atomic::AtomicU64;

use crossbeam::utils::CachePadded;

use crate::admin::IdentityCounters;
use crate::config::SOURCES_MAX;
use crate::counter::Counter;

/// The counts of one identity. A reload keeps them as long as it keeps the identity's name.
#[derive(Debug, Default)]
pub struct Usage {
    /// IDs by shard and source. Each shard writes its own counts.
    ids: Box<[CachePadded<[Counter; SOURCES_MAX]>]>,
    /// Connections open now.
    pub connections: AtomicU64,
    /// Requests that were checked against the identity's limits. Shared, as are those below.
    pub(crate) asked: Counter,
    pub(crate) counters: IdentityCounters,
}

impl Usage {
    pub(super) fn new(shards: usize) -> Self {
        let mut ids = Vec::new();
        ids.resize_with(shards, || CachePadded::new(std::array::from_fn(|_| Counter::default())));
        Usage { ids: ids.into(), ..Usage::default() }
    }

    /// Counts IDs that a shard hands out. Only that shard's thread may call this.
    #[inline]
    pub(crate) fn record_ids(&self, shard: usize, source: usize, count: u64) {
        if let Some(by_source) = self.ids.get(shard) {
            by_source[source].add(count);
        }
    }

    /// Returns the IDs drawn from a source.
    pub(crate) fn ids(&self, source: usize) -> u64 {
        self.ids.iter().map(|by_source| by_source[source].get()).sum()
    }
}
