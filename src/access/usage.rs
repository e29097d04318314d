//! The counts of one identity.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use crossbeam::utils::CachePadded;

use crate::config::SOURCES_MAX;
use crate::metric_counter::Counter;

/// The number of sources whose counts are made together.
const FEW: usize = 32;
type Few = [Counter; FEW];
type BySource = [OnceLock<Box<Few>>; SOURCES_MAX / FEW];

const _: () = assert!(SOURCES_MAX.is_multiple_of(FEW));

/// The counts of one identity. A reload keeps them as long as it keeps the identity's name.
#[derive(Debug, Default)]
pub struct Usage {
    /// IDs by shard and source. Each shard writes its own counts. The counts of a few sources are
    /// made when the first of them is drawn from, because a daemon may have many identities.
    ids: Box<[CachePadded<BySource>]>,
    /// Connections open now.
    pub connections: AtomicU64,
    /// Requests that were checked against the identity's limits. Shared, as are those below.
    pub(crate) asked: Counter,
    /// Connections that had this identity so far.
    pub(crate) connected: Counter,
    /// Requests to sources that it may not draw from.
    pub(crate) denied: Counter,
    /// Requests that waited for its rate, or were refused for it.
    pub(crate) slowed: Counter,
}

impl Usage {
    pub(super) fn new(shards: usize) -> Self {
        let mut ids = Vec::new();
        ids.resize_with(shards, || CachePadded::new(std::array::from_fn(|_| OnceLock::new())));
        Usage { ids: ids.into(), ..Usage::default() }
    }

    /// Counts IDs that a shard hands out. Only that shard's thread may call this.
    #[inline]
    pub(crate) fn record_ids(&self, shard: usize, source: usize, count: u64) {
        if let Some(by_source) = self.ids.get(shard) {
            by_source[source / FEW].get_or_init(Box::default)[source % FEW].add(count);
        }
    }

    /// Returns the IDs drawn from a source.
    pub(crate) fn ids(&self, source: usize) -> u64 {
        let few = self.ids.iter().filter_map(|by_source| by_source[source / FEW].get());
        few.map(|few| few[source % FEW].get()).sum()
    }
}
