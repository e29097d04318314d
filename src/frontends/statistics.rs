//! The nine statistics of katsubushi, in katsubushi's order. Dashboards read them by memcached's
//! `stats` and by HTTP.

use serde_json::Value;

use super::{Conditions, Counts, Protocol};

/// Returns the statistics of one protocol, each with its name.
pub(super) fn all(conditions: &Conditions<'_>, protocol: Protocol) -> [(&'static str, Value); 9] {
    let Counts { uptime, open, accepted, id_requests, errors } = conditions.counts.counts_of(protocol);
    let time_s = (conditions.wall.0 / 1_000_000).max(0);
    [
        ("pid", std::process::id().into()),
        ("uptime", uptime.as_secs().into()),
        ("time", time_s.into()),
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("curr_connections", open.into()),
        ("total_connections", accepted.into()),
        ("cmd_get", id_requests.into()),
        ("get_hits", id_requests.saturating_sub(errors).into()),
        ("get_misses", errors.into()),
    ]
}

/// Returns the value of a statistic as memcached writes it: texts have no quotes.
pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
