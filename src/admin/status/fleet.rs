//! The status of a fleet: its ceilings at the coordinator.

use serde::{Deserialize, Serialize};

/// The ceilings at the fleet's coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FleetStatus {
    /// The number of durable raises there.
    pub(crate) raises: u64,
    /// The time for which IDs can be handed out without the coordinator: of the source whose ceiling is the nearest.
    pub(crate) left_s: f64,
    /// The reason why the coordinator did not answer. `None`: it did.
    pub(crate) silent: Option<String>,
}
