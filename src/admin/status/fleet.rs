//! The status of a fleet: its ceilings at the coordinator.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FleetStatus {
    /// The number of durable raises at the coordinator.
    pub(crate) raises: u64,
    /// The time for which every source can hand out IDs without the coordinator.
    pub(crate) left_s: f64,
    /// The reason why the coordinator did not answer. `None`: it answered.
    pub(crate) silent: Option<String>,
    /// The reason why the daemon has no worker ID. `None`: it has them.
    pub(crate) waits_for: Option<String>,
    /// The worker IDs in use and those left, as they were last counted.
    pub(crate) pools: Vec<PoolStatus>,
    /// The end of the daemon's certificate for the coordinator, in Unix time. `None`: it has none.
    pub(crate) certificate_ends_unix_s: Option<i64>,
}

/// The worker IDs that the coordinator may assign to a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolStatus {
    pub(crate) source: String,
    /// The number of worker IDs that the source may have.
    pub(crate) numbers: u64,
    /// The number of them that daemons hold.
    pub(crate) held: u64,
}
