//! The operator's view: the daemon's status in one struct, and the ways to read it.
//!
//! - `status`: the struct. `findings`: what is wrong, and whether the daemon is ready. `words`: the
//!   status in words.
//! - `history`: the last hour, for the page.
//! - `recent`: clients' experience of the last minute: refusals, latency, connections.
//! - `metrics`: a row for each metric, and the status in OpenMetrics text. `source_counts`: the
//!   rows of sources' counters. `process`: the process's CPU time, memory and open files.
//! - `http`: `/metrics`, `/healthz`, `/readyz`, `/status` and the page, on the main thread, away
//!   from the shards.
//! - `same_site`: which requests come from web pages of other sites. The HTTP front end uses it,
//!   too.
//! - `fetch`: asks another daemon for its status.
//!
//! This module knows nothing of sources, shards or the server: `server/health/status.rs` fills the
//! struct.

mod fetch;
mod finding;
mod findings;
mod history;
mod http;
mod metrics;
mod process;
mod recent;
mod same_site;
mod source_counts;
mod status;
mod words;

pub(crate) use fetch::Target;
pub(crate) use finding::{Effect, Finding, seconds};
pub(crate) use history::History;
pub(crate) use http::{HEAD_BYTES_MAX, HEAD_WITHIN, HEADERS_MAX, Site};
pub(crate) use recent::Recent;
pub(crate) use same_site::{SiteHeaders, is_local_name};
pub(crate) use source_counts::{SourceCounters, SourceCounts};
pub(crate) use status::{
    BOUNDS_US, CeilingsStatus, CertificateStatus, ClockState, ClockStatus, Connections, FleetStatus,
    IdentityStatus, KindStatus, LastReload, Latency, LimitedMinute, PoolStatus, ProtocolStatus,
    SnowflakeStatus, SourceMinute, SourceStatus, Status, TicketStatus,
};
pub(crate) use words::{counted, times};

#[cfg(test)]
pub(crate) use status::tests::healthy;
