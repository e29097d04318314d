//! The operator's view: the daemon's status in one struct, and the ways to it.
//!
//! - `status`: the struct. `checks`: its findings for the operator, and whether the daemon is ready.
//! - `history`: the last hour, for the page.
//! - `recent`: clients' experience of the last minute: refusals, latency, connections. `saturation`: its checks.
//! - `fleet`: the check of a fleet's ceilings.
//! - `finding`: the parts of a check's result.
//! - `exposition`: the status as metrics, in OpenMetrics text. `process`: the system's figures of the process.
//! - `http`: `/metrics`, `/healthz`, `/readyz`, `/status` and the page, on the main thread, away from the shards.
//! - `same_site`: which requests come from web pages of other sites. The HTTP front-end asks it too.
//! - `fetch`: asks another daemon for its status.
//!
//! This module knows nothing of sources, shards or the server: `server/health/status.rs` fills the struct.

mod checks;
mod exposition;
mod fetch;
mod finding;
mod fleet;
mod history;
mod http;
mod kind;
mod process;
mod recent;
mod same_site;
mod saturation;
mod status;

pub(crate) use fetch::Target;
pub(crate) use finding::seconds;
pub(crate) use history::History;
pub(crate) use http::{Beats, HEAD_BYTES_MAX, HEAD_WITHIN, HEADERS_MAX, Site, Via};
pub(crate) use kind::{KindStatus, SnowflakeStatus, TicketStatus};
pub(crate) use recent::Recent;
pub(crate) use same_site::{SiteHeaders, is_local_name};
pub(crate) use status::{
    BOUNDS_US, CeilingsStatus, CertificateStatus, Check, ClockState, ClockStatus, Connections, FleetStatus,
    IdentityStatus, LastMinute, LastReload, Latency, Level, LimitedMinute, PoolStatus, ProtocolStatus,
    SourceMinute, SourceStatus, Status,
};

#[cfg(test)]
pub(crate) use status::tests::healthy;
