//! The counters of a source. Each counter is a row. Each shard's thread has counters of its own,
//! and the status and the metrics have the sums over all shards.

use serde::{Deserialize, Serialize};

use super::metrics::{Metric, Samples, row, whole};
use crate::counter::Counter;

/// Defines the counters, their sums and their metrics. Each row is a counter: its field, the name
/// of its metric, and its meaning.
macro_rules! source_counters {
    ($($field:ident: $metric:literal, $means:literal;)+) => {
        /// The counters of one shard for one source.
        #[derive(Debug, Default)]
        pub(crate) struct SourceCounters {
            $(#[doc = $means] pub(crate) $field: Counter,)+
        }

        /// The sums of all shards' counters for one source.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub(crate) struct SourceCounts {
            $(#[doc = $means] pub(crate) $field: u64,)+
        }

        impl SourceCounts {
            pub(crate) fn add(&mut self, counters: &SourceCounters) {
                $(self.$field += counters.$field.get();)+
            }

            /// Returns the differences from the counts at an earlier moment.
            pub(super) fn since(&self, then: &SourceCounts) -> SourceCounts {
                SourceCounts { $($field: self.$field.saturating_sub(then.$field),)+ }
            }
        }

        /// The metrics of these counters.
        pub(super) const SOURCE_METRICS: &[Metric] =
            &[$(row($metric, $means, Samples::Source(|of| whole(of.counts.$field))),)+];
    };
}

source_counters! {
    ids: "snowbank_ids_issued_total", "IDs handed out";
    requests: "snowbank_requests_total", "requests for IDs that were answered, with IDs or a refusal of the source";
    refused: "snowbank_refusals_total", "refusals of the source: `exhausted`, `clock_behind`, `no_ceiling` or `shutting_down`";
    exhausted: "snowbank_exhausted_total", "refusals of the source with `exhausted`";
    waits: "snowbank_waits_total", "waits in the wait queue";
}
