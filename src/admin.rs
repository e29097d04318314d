//! The operator's view: the ways to read the daemon's status. `server/health` makes it.
//!
//! - `words`: puts the status into words. `exposition`: prints it as OpenMetrics text.
//! - `connections`: accepts connections on the admin listeners. The server calls it, and does not
//!   know this module: `serve` is an argument of a run.
//! - `http`: serves the page, and paths such as `/metrics` and `/status`. This runs on the main
//!   thread, so it does not delay the shards.

mod connections;
mod exposition;
mod http;
mod words;

pub(crate) use connections::{ADMIN_CONNECTIONS_MAX, serve};
