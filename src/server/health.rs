//! The daemon's health: counters, heartbeats, status.
//!
//! - `metrics`: counters, each written by one thread. `status`: the daemon's status, with the sums
//!   of the counters.
//! - `heartbeat`: checks that every thread makes progress.
//! - `observer`: looks once a second, and logs changes of findings.
//! - `handle`: gives status and heartbeat to the service manager's notifier and the admin listener.
//! - `rate_limited_log`: limits how often a repeated event is logged.

pub(crate) mod handle;
pub(crate) mod heartbeat;
pub(crate) mod metrics;
pub(crate) mod observer;
pub(crate) mod rate_limited_log;
mod status;
