//! The metrics of identities.

use std::fmt;

use prometheus_client::encoding::NoLabelSet;
use prometheus_client::metrics::MetricType;

use super::Page;
use crate::admin::status::{IdentityStatus, Status};

/// A metric that each identity has: name, help, true for a counter, value.
type IdentityMetric = (&'static str, &'static str, bool, fn(&IdentityStatus) -> u64);

/// The metrics of an identity, besides the IDs that it drew from each source.
const IDENTITY_METRICS: [IdentityMetric; 4] = [
    ("snowbank_identity_connections", "Connections that have an identity now", false, |identity| {
        identity.connections
    }),
    ("snowbank_identity_connected", "Connections that had an identity so far", true, |identity| {
        identity.connected
    }),
    (
        "snowbank_identity_denied",
        "Requests to sources that an identity may not draw from",
        true,
        |identity| identity.denied,
    ),
    (
        "snowbank_identity_slowed",
        "Requests that waited for an identity's rate, or were refused for it",
        true,
        |identity| identity.slowed,
    ),
];

impl Page<'_> {
    /// Encodes the counts of each identity. Identities are configured, so their number is bounded.
    pub(super) fn identities(&mut self, status: &Status) -> fmt::Result {
        if status.identities.is_empty() {
            return Ok(());
        }
        for (name, help, is_counter, value) in &IDENTITY_METRICS {
            let values = status.identities.iter();
            let values =
                values.map(|identity| (("identity", identity.name.as_str()), value(identity).into()));
            self.family(name, help, None, *is_counter, values)?;
        }
        let help = "IDs that an identity drew from a source";
        let mut family =
            self.encoder.encode_descriptor("snowbank_identity_ids", help, None, MetricType::Counter)?;
        for identity in &status.identities {
            for (source, ids) in &identity.ids {
                let labels = [("identity", identity.name.as_str()), ("source", source)];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(ids, None)?;
            }
        }
        Ok(())
    }
}
