//! The daemon's health: counters, heartbeats, status.
//!
//! - `metrics`: counters, each written by one thread. `latency`: their histogram.
//! - `figures`: a row for each figure of the status. `samples`: their values, as one list.
//!   `process`: the process's own figures.
//! - `recent`: adds what clients experienced in the last minute: refusals, latency, connections.
//! - `findings`: finds what is wrong, and decides whether the daemon is ready. `finding`: one of
//!   them. `status`: the samples with their findings.
//! - `history`: the last hour, for the page.
//! - `heartbeat`: checks that the shards' threads and the keeper make progress.
//! - `last_seen`: what the keeper thread last observed. `fleet_seen`: what the coordinator last told.
//! - `rate_limited_log`: limits how often an event that repeats is logged.

pub(crate) mod figures;
pub(crate) mod finding;
pub(crate) mod findings;
pub(crate) mod fleet_seen;
pub(crate) mod heartbeat;
mod history;
pub(crate) mod last_seen;
pub(crate) mod latency;
pub(crate) mod metrics;
pub(crate) mod process;
pub(crate) mod rate_limited_log;
mod recent;
pub(crate) mod samples;
pub(crate) mod status;
