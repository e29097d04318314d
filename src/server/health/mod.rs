//! The daemon's health: counters, heartbeats, status.
//!
//! - `metrics`: counters, each written by one thread. `status`: all of them summed up for the operator.
//! - `heartbeat`: whether every thread makes progress. `handle`: the way to both for code outside the server.
//! - `rate_limited_log`: limits how often an event that repeats is logged.

pub(crate) mod handle;
pub(crate) mod heartbeat;
pub(crate) mod metrics;
pub(crate) mod rate_limited_log;
mod status;
