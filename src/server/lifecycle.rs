//! The daemon's life: start, run, reload, stop.
//!
//! - `start`: from settings to a daemon that listens and has durable ceilings.
//! - `waiting`: a daemon that waits for the worker IDs of its fleet.
//! - `run`: serves until the stop, and then stops the daemon. `threads`: starts and stops the
//!   threads.
//! - `reload`: replaces the configuration of a running daemon.
//! - `peers`: asks other daemons for their worker IDs, at the start.
//! - `info`: the reply to INFO, and who may draw from which source.

mod info;
mod peers;
pub(crate) mod reload;
mod run;
pub(crate) mod start;
mod threads;
pub(crate) mod waiting;
