//! The daemon's health: counters, heartbeats, status.
//!
//! - `metrics`: counters, each written by one thread. `status`: gathers the daemon's status, which
//!   has the sums of the counters.
//! - `heartbeat`: checks that the shards' threads and the keeper make progress.
//! - `observer`: logs changes of findings and of readiness.
//! - `handle`: gives the status and the heartbeat to the service manager's notifier and to the
//!   admin listener.
//! - `rate_limited_log`: limits how often an event that repeats is logged.

pub(crate) mod handle;
pub(crate) mod heartbeat;
pub(crate) mod metrics;
pub(crate) mod observer;
pub(crate) mod rate_limited_log;
mod status;
