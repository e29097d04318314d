//! The tables of counters. Each counter is a row: its field, the name of its metric, and its
//! meaning. The place that counts adds to the field. The status and the metrics have the sums.

use serde::{Deserialize, Serialize};

use super::metrics::{Metric, Samples, row, whole};
use crate::counter::Counter;

/// Defines the counters, their sums and their metrics. The head of a table says whose counters
/// these are, and where the status has their sums.
macro_rules! counters {
    ($counters:ident, $about:literal; $counts:ident, $metrics:ident in $samples:ident(|$of:ident| $sums:expr);
     $($field:ident: $metric:literal, $means:literal;)+) => {
        #[doc = concat!("The counters of ", $about, ".")]
        #[derive(Debug, Default)]
        pub(crate) struct $counters {
            $(#[doc = $means] pub(crate) $field: Counter,)+
        }

        #[doc = concat!("The sums of [`", stringify!($counters), "`].")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub(crate) struct $counts {
            $(#[doc = $means] pub(crate) $field: u64,)+
        }

        impl<'c> std::iter::Sum<&'c $counters> for $counts {
            fn sum<I: Iterator<Item = &'c $counters>>(all: I) -> Self {
                all.fold(Self::default(), |sum, one| Self { $($field: sum.$field + one.$field.get(),)+ })
            }
        }

        /// The differences from the counts at an earlier moment.
        impl std::ops::Sub for $counts {
            type Output = Self;

            fn sub(self, then: Self) -> Self {
                Self { $($field: self.$field.saturating_sub(then.$field),)+ }
            }
        }

        /// The metrics of these counters.
        const $metrics: &[Metric] =
            &[$(row($metric, $means, Samples::$samples(|$of| whole($sums.$field))),)+];
    };
}

counters! {
    SourceCounters, "one shard for one source"; SourceCounts, SOURCE in Source(|of| of.counts);
    ids: "snowbank_ids_issued_total", "IDs handed out";
    requests: "snowbank_requests_total", "requests for IDs that were answered, with IDs or a refusal of the source";
    refused: "snowbank_refusals_total", "refusals of the source: `exhausted`, `clock_behind`, `no_ceiling` or `shutting_down`";
    exhausted: "snowbank_exhausted_total", "refusals of the source with `exhausted`";
    waits: "snowbank_waits_total", "waits in the wait queue";
}

counters! {
    ProtocolCounters, "one shard for one protocol"; ProtocolCounts, PROTOCOL in Protocol(|of| of.counts);
    requests: "snowbank_protocol_requests_total", "requests answered, those for IDs and others";
    errors: "snowbank_protocol_errors_total", "requests answered with an error";
}

counters! {
    TrafficCounters, "one shard's bytes"; TrafficCounts, TRAFFIC in Daemon(|of| of.traffic);
    received_bytes: "snowbank_received_bytes_total", "bytes read from clients";
    sent_bytes: "snowbank_sent_bytes_total", "bytes written to clients";
}

counters! {
    AccessCounters, "one shard's unauthorized clients"; AccessCounts, ACCESS in Daemon(|of| of.connections.access);
    unauthorized_refusals: "snowbank_unauthorized_refusals_total", "requests and connections refused for a wrong token or none, and TLS handshakes that failed";
    unauthorized_timeouts: "snowbank_unauthorized_timeouts_total", "connections closed because they sent no token within five seconds";
}

counters! {
    IdentityCounters, "an identity, which all shards share"; IdentityCounts, IDENTITY in Identity(|of| of.counts);
    connected: "snowbank_identity_connected_total", "connections that had this identity so far";
    denied: "snowbank_identity_denied_total", "its requests to sources that it may not draw from";
    slowed: "snowbank_identity_slowed_total", "its requests that waited for its rate, or were refused for it";
}

/// The metrics of all tables.
pub(super) const COUNTED: [&[Metric]; 5] = [SOURCE, PROTOCOL, TRAFFIC, ACCESS, IDENTITY];
