//! The status of a fleet: its ceilings at the coordinator, and the other daemons.

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

/// The daemons that this one asks for their worker IDs and their clocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeersStatus {
    /// The difference of clocks to warn of.
    pub(crate) clock_tolerance_s: f64,
    /// All of them but this daemon itself. Empty until the first look is over.
    pub(crate) peers: Vec<PeerStatus>,
}

/// A peer, as it answered last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerStatus {
    pub(crate) address: String,
    pub(crate) instance: Option<String>,
    /// The reason why it did not answer. `None`: it did.
    pub(crate) silent: Option<String>,
    /// The least time by which its clock is ahead of this machine's, negative if it is behind. `None`: unknown.
    pub(crate) clock_ahead_s: Option<f64>,
    /// The worker ID of this daemon that it has too, in words. `None`: it has none, as far as is known.
    pub(crate) shared: Option<String>,
}

impl PeerStatus {
    /// Returns its address, with its own name if that is known.
    pub(crate) fn name(&self) -> String {
        match &self.instance {
            Some(instance) => format!("peer {} ({instance})", self.address),
            None => format!("peer {}", self.address),
        }
    }
}
