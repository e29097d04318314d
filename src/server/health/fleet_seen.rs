//! Gives other threads what the fleet thread last learned from the coordinator.

use snowbank_fleet::Counted;

/// The facts for the operator that the fleet thread learns during a check of its keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct FleetSeen {
    /// The reason why the coordinator did not answer the last time. `None`: the coordinator
    /// answered.
    pub(crate) silence: Option<String>,
    /// The count of each source's worker IDs.
    pub(crate) pools: Vec<Counted>,
    /// The Unix time at which the certificate that the daemon shows to the coordinator expires.
    pub(crate) certificate_ends_unix_s: Option<i64>,
}
