//! The daemon's life: start, run, reload, stop.
//!
//! - `start`: from settings to a daemon that listens, its run, and its clean end.
//! - `reload`: replaces the configuration of a running daemon.
//! - `live_config`: everything that a reload can change.

pub(crate) mod live_config;
pub(crate) mod reload;
pub(crate) mod start;
