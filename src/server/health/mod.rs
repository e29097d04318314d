//! The daemon's health: counters, heartbeats, status.
//!
//! - `metrics`: counters, each written by one thread. `status`: all of them summed up for the operator.
//! - `heartbeat`: whether every thread makes progress. `vitals`: how the process that supervises the daemon asks.
//! - `rate_limited_log`: limits how often an event that repeats is logged.

pub(crate) mod heartbeat;
pub(crate) mod metrics;
pub(crate) mod rate_limited_log;
mod status;
pub(crate) mod vitals;
