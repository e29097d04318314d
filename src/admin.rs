//! The operator's view: the daemon's status in one struct, and the ways to read it.
//!
//! - `status`: the struct. `findings`: finds what is wrong, and whether the daemon is ready.
//!   `words`: puts the status into words.
//! - `history`: the last hour, for the page.
//! - `recent`: what clients experienced in the last minute: refusals, latency, connections.
//! - `counts`: the counters, a row each. `metrics`: a row for each other metric, and the status as
//!   OpenMetrics text. `process`: the CPU time, memory and open files of the process.
//! - `accept`: the media types that a client accepts, also for the HTTP front end.
//! - `http`: serves the page, and paths such as `/metrics` and `/status`. This runs on the main
//!   thread, so it does not delay the shards.
//! - `same_site`: detects requests that come from web pages of other sites. The HTTP front end uses
//!   this module, too.
//! - `fetch`: asks another daemon for its status.
//!
//! This module knows nothing of sources and shards: `server/health/status.rs` fills the struct.
//! Only `http` knows the server, and asks its `Health` for the status.

mod accept;
mod counts;
mod fetch;
mod finding;
mod findings;
mod history;
mod http;
mod metrics;
mod process;
mod recent;
mod same_site;
mod status;
mod words;

pub(crate) use accept::Accept;
pub(crate) use counts::{
    AccessCounters, IdentityCounters, ProtocolCounters, SourceCounters, TrafficCounters,
};
pub(crate) use fetch::Target;
pub(crate) use finding::{Effect, Finding, seconds};
pub(crate) use history::History;
pub(crate) use http::{HEAD_BYTES_MAX, HEAD_WITHIN, HEADERS_MAX, Site, decoded, head_too_long};
pub(crate) use recent::Recent;
pub(crate) use same_site::{MISDIRECTED, SiteHeaders, is_local_name};
pub(crate) use status::{
    BOUNDS_US, CeilingsStatus, CertificateStatus, ClockState, ClockStatus, Connections, FleetStatus,
    IdentityStatus, KindStatus, LastReload, Latency, LimitedMinute, PoolStatus, ProtocolStatus,
    SnowflakeStatus, SourceMinute, SourceStatus, Status, TicketStatus,
};
pub(crate) use words::{counted, times};

#[cfg(test)]
pub(crate) use status::tests::healthy;
