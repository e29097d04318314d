//! The nine statistics of katsubushi, in its order, which dashboards read by memcached's `stats`
//! and by HTTP.

use std::fmt;

use serde::Serialize;

use super::{Conditions, Counts, Protocol};

/// The value of a statistic.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Statistic {
    Number(u64),
    Text(&'static str),
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Number(number) => write!(f, "{number}"),
            Statistic::Text(text) => f.write_str(text),
        }
    }
}

/// Returns the statistics of one protocol, each with its name.
pub(super) fn all(conditions: &Conditions<'_>, protocol: Protocol) -> [(&'static str, Statistic); 9] {
    let Counts { uptime, open, accepted, id_requests, errors } = conditions.counts.counts_of(protocol);
    let time_s = (conditions.wall.0 / 1_000_000).max(0).unsigned_abs();
    let version = Statistic::Text(env!("CARGO_PKG_VERSION"));
    [
        ("pid", Statistic::Number(std::process::id().into())),
        ("uptime", Statistic::Number(uptime.as_secs())),
        ("time", Statistic::Number(time_s)),
        ("version", version),
        ("curr_connections", Statistic::Number(open)),
        ("total_connections", Statistic::Number(accepted)),
        ("cmd_get", Statistic::Number(id_requests)),
        ("get_hits", Statistic::Number(id_requests.saturating_sub(errors))),
        ("get_misses", Statistic::Number(errors)),
    ]
}
