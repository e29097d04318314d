//! The live configuration: everything that a reload can change and that shards read.
//!
//! A `LiveConfig` is immutable. A reload creates a new `LiveConfig`, and each shard adopts the new
//! one between two turns. So a turn has one configuration from its start to its end, and reads this
//! configuration without a lock.

use std::sync::Arc;

use crate::config::{Limits, Settings, SourceSettings};
use crate::frontends::Facts;
use snowbank_core::clock::Now;
use snowbank_core::shard::{Lane, Order, Ring, Rings};
use snowbank_core::source::Source;
use snowbank_id::numbering::Numbering;

/// One version of the configuration.
pub(crate) struct LiveConfig {
    /// The number of the version, which increases with each reload.
    pub(crate) version: u64,
    pub(crate) facts: Facts,
    pub(crate) limits: Limits,
    /// The configured `max_connections`, if open files allow fewer.
    pub(crate) connections_wanted: Option<usize>,
    /// The sources, by index. A source keeps its index for ever. That of a removed source is not
    /// used again, so a request that waits never meets another source.
    pub(crate) supplies: Vec<Supply>,
    /// All settings, a line each, for the operator.
    pub(crate) text: String,
}

/// How far the start of a source has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its grant is under way: requests wait for it, each within its own deadline.
    UnderWay,
    /// It waits for the next try of its start. Requests are refused at once.
    Waits {
        /// The reason in full, for operators.
        reason: Arc<str>,
        /// The reason in a few words, for clients.
        brief: &'static str,
    },
    /// It has a grant.
    Granted,
    /// A reload has removed it. Requests that it has not answered are refused.
    Removed,
}

impl Stage {
    /// Returns true while the source has no grant, and is to get one.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self, Stage::UnderWay | Stage::Waits { .. })
    }
}

/// A source, and the shards' rings with IDs of this source.
#[derive(Clone)]
pub(crate) struct Supply {
    pub(crate) settings: Arc<SourceSettings>,
    /// The source. Until it has a grant, a sealed source stands here.
    pub(crate) source: Arc<Source>,
    pub(crate) stage: Stage,
    /// The numbers that the source's worker IDs have in its ID space. The status shows them.
    pub(crate) numbers_in_space: Arc<[u64]>,
    /// The claims of the source's worker IDs, which a WELCOME shows.
    pub(crate) claims: Arc<[u64]>,
    /// Whether replies list each ID. Kept here too, because each request reads it.
    pub(crate) needs_list: bool,
    rings: Rings,
}

impl Supply {
    pub(crate) fn new(
        settings: Arc<SourceSettings>,
        source: Arc<Source>,
        stage: Stage,
        shards: usize,
    ) -> Self {
        // A shared counter has no number of its own, because other daemons use the counter too.
        let has_numbers = stage == Stage::Granted && !source.kind().takes_ranges();
        let numbers_in_space = if has_numbers { source.numbering().numbers_in_space() } else { Vec::new() };
        let numbers_in_space = numbers_in_space.into();
        let claims = if has_numbers { source.numbering().claims() } else { Vec::new() }.into();
        let needs_list = source.numbering().needs_list();
        let rings = (0..shards).map(|_| Ring::default()).collect();
        Supply { settings, source, stage, numbers_in_space, claims, needs_list, rings }
    }

    /// Returns the numbering, if the source has a grant.
    pub(crate) fn numbering(&self) -> Option<&Numbering> {
        (self.stage == Stage::Granted).then(|| self.source.numbering())
    }

    /// Returns the name that clients send.
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns a lane through which one shard takes IDs of the source.
    pub(crate) fn lane(&self, shard: usize, order: Order, now: Now) -> Lane {
        Lane::new(Arc::clone(&self.source), Arc::clone(&self.rings), shard, order, now)
    }
}

impl LiveConfig {
    /// Returns a version of the configuration with these settings, these facts for front ends, and
    /// these sources.
    pub(crate) fn new(version: u64, settings: &Settings, facts: Facts, supplies: Vec<Supply>) -> LiveConfig {
        let limits = settings.limits.clone();
        let text = settings.to_text();
        let connections_wanted = settings.connections_wanted;
        LiveConfig { version, facts, limits, connections_wanted, supplies, text }
    }

    pub(crate) fn source(&self, index: usize) -> &Source {
        &self.supplies[index].source
    }

    /// Returns the configured sources with their indices, in the order of the file.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (usize, &Supply)> {
        self.facts.order.iter().map(|&index| (index, &self.supplies[index]))
    }
}

/// Returns the index of each configured source, in the order of the settings.
pub(crate) fn order_of(settings: &Settings, supplies: &[Supply]) -> Vec<usize> {
    let mut order = Vec::with_capacity(settings.sources.len());
    for source in &settings.sources {
        let is_it = |supply: &Supply| supply.stage != Stage::Removed && supply.name() == source.name;
        let index = supplies.iter().position(is_it);
        order.push(index.unwrap_or_else(|| unreachable!("each configured source has an index")));
    }
    order
}
