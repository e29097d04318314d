//! The status of clients: their identities, their connections and the protocols that they speak.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A client with a name of its own. Counts are kept as long as reloads keep the name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IdentityStatus {
    pub(crate) name: String,
    /// The IDs per second that it may draw. `None`: no rate is set.
    pub(crate) rate: Option<u32>,
    /// The connections that have the identity now, and all that have had it so far.
    pub(crate) connections: u64,
    pub(crate) connected: u64,
    /// The IDs that it drew, by source.
    pub(crate) ids: BTreeMap<String, u64>,
    /// Requests that came under its limits.
    pub(crate) requests: u64,
    /// Requests to sources that it may not draw from.
    pub(crate) denied: u64,
    /// Requests that waited for its rate, or were refused for it.
    pub(crate) slowed: u64,
    pub(crate) last_minute: LimitedMinute,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LimitedMinute {
    /// Requests that came under the identity's limits.
    pub(crate) requests: u64,
    /// The number of them that were slowed or denied.
    pub(crate) limited: u64,
    /// The limited requests as a share, formed like a source's `refused_share`.
    pub(crate) limited_share: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProtocolStatus {
    pub(crate) name: String,
    /// The addresses of the protocol's listeners.
    pub(crate) addresses: Vec<String>,
    pub(crate) connections: u64,
    /// Requests that were answered.
    pub(crate) requests: u64,
    /// Requests that were answered with an error.
    pub(crate) errors: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) open: u64,
    pub(crate) max: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// The bytes that connections keep: replies that clients have not taken, and requests that have
    /// arrived in part.
    pub(crate) queued_bytes: u64,
    pub(crate) queued_bytes_max: u64,
    /// Open connections that owe a token or are in a TLS handshake.
    pub(crate) unauthorized: u64,
    /// Connections that were evicted by a newcomer before they had authorized themselves.
    pub(crate) evicted: u64,
    /// Requests and connections refused because of a wrong token or none, and TLS handshakes that
    /// failed.
    pub(crate) unauthorized_refusals: u64,
    /// Connections that were closed because they sent no token in time.
    pub(crate) unauthorized_timeouts: u64,
    /// The number of addresses whose clients did not authorize themselves in the last minute.
    pub(crate) unauthorized_addresses: u64,
    /// Connections of Redis' protocol that sent INCR, by the form of their first reply.
    pub(crate) incr_integers: u64,
    pub(crate) incr_strings: u64,
}

impl IdentityStatus {
    /// Returns the counts since the start, in the form of [`LimitedMinute`].
    pub(crate) fn counted(&self) -> LimitedMinute {
        LimitedMinute { requests: self.requests, limited: self.denied + self.slowed, limited_share: 0.0 }
    }
}
