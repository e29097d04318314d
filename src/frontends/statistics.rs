//! The nine statistics of katsubushi, in katsubushi's order. Dashboards read them by memcached's
//! `stats` and by HTTP.
//!
//! As in katsubushi, one count is for all its protocols, and a get of ten IDs is ten hits. Only
//! gets count, also those with a mistake. Connections are those of memcached's protocol.

use serde_json::Value;

use super::{Conditions, Counts, FrameIds, ids_in};
use crate::config::Protocol;
use crate::metric_counter::Counter;

/// Requests for IDs, as katsubushi counts them.
///
/// A front end keeps what it has counted since its last step, and adds it at the next step. The
/// connection takes that step before it sends the replies, so a client that has read its IDs finds
/// them in the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gets {
    /// The requests for IDs, each with any number of keys.
    pub commands: u64,
    /// The IDs.
    pub hits: u64,
    /// The requests that were refused.
    pub misses: u64,
}

impl Gets {
    /// Counts the IDs of a frame.
    pub(super) fn record(&mut self, ids: &FrameIds<'_>) {
        self.hits += ids_in(ids.runs);
    }

    /// Adds these counts to the daemon's, and starts from 0 again.
    pub(super) fn report(&mut self, conditions: &Conditions<'_>) {
        if *self != Gets::default() {
            conditions.daemon.add_gets(std::mem::take(self));
        }
    }
}

/// The gets of one shard.
#[derive(Debug, Default)]
pub struct GetCounters {
    commands: Counter,
    hits: Counter,
    misses: Counter,
}

impl GetCounters {
    /// Adds to the counts. Only the shard's thread may call this.
    pub(crate) fn add(&self, gets: Gets) {
        self.commands.add(gets.commands);
        self.hits.add(gets.hits);
        self.misses.add(gets.misses);
    }

    /// Adds these counts to a sum over shards.
    pub(crate) fn add_to(&self, sum: &mut Gets) {
        sum.commands += self.commands.get();
        sum.hits += self.hits.get();
        sum.misses += self.misses.get();
    }
}

/// Returns the statistics, each with its name. `version` is the one that clients of the protocol get.
pub(super) fn all(conditions: &Conditions<'_>, version: &str) -> [(&'static str, Value); 9] {
    let Counts { uptime, open, accepted, gets } = conditions.daemon.counts_of(Protocol::Memcached);
    let time_s = (conditions.wall.0 / 1_000_000).max(0);
    [
        ("pid", std::process::id().into()),
        ("uptime", uptime.as_secs().into()),
        ("time", time_s.into()),
        ("version", version.into()),
        ("curr_connections", open.into()),
        ("total_connections", accepted.into()),
        ("cmd_get", gets.commands.into()),
        ("get_hits", gets.hits.into()),
        ("get_misses", gets.misses.into()),
    ]
}

/// Returns the value of a statistic as memcached writes it: texts have no quotes.
pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
