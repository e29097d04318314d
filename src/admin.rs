//! The operator's view: the ways to read the daemon's status. `server/health` makes it.
//!
//! - `words`: puts the status into words. `metrics`: prints it as OpenMetrics text.
//! - `accept`: the media types that a client accepts, also for the HTTP front end.
//! - `http`: serves the page, and paths such as `/metrics` and `/status`. This runs on the main
//!   thread, so it does not delay the shards.
//! - `same_site`: detects requests that come from web pages of other sites. The HTTP front end uses
//!   this module, too.
//! - `fetch`: asks another daemon for its status.

mod accept;
mod fetch;
mod http;
mod metrics;
mod same_site;
mod words;

pub(crate) use accept::Accept;
pub(crate) use fetch::Target;
pub(crate) use http::{HEAD_BYTES_MAX, HEAD_WITHIN, HEADERS_MAX, Site, decoded, head_too_long};
pub(crate) use same_site::{MISDIRECTED, SiteHeaders, is_local_name};
