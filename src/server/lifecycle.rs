//! The daemon's life: start, run, reload, stop.
//!
//! - `start`: from settings to a daemon that listens, with sources whose grants are under way.
//! - `control`: makes each live configuration. `try_start`: takes what sources need for their grants.
//!   `reload`: replaces the configuration of a running daemon.
//! - `serve_until_stop`: serves until the stop, and then stops the daemon. `stop`: decides when. `threads`:
//!   starts and stops the threads.
//! - `attend`: readiness, status and heartbeat for the service manager.
//! - `reread`: the configuration that a reload reads.
//! - `ask_peers`: asks other daemons for their worker IDs, when sources start.
//! - `info`: the reply to INFO, and who may draw from which source.

mod ask_peers;
mod attend;
pub(crate) mod control;
mod info;
mod reload;
pub(crate) mod reread;
mod serve_until_stop;
pub(crate) mod start;
pub(crate) mod stop;
mod threads;
mod try_start;
