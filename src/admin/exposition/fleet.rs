//! The metrics of a fleet: its ceilings at the coordinator.

use std::fmt;

use prometheus_client::registry::Unit;

use super::sources::SourceMetric;
use super::{Page, Value};
use crate::admin::status::{FleetStatus, SourceStatus};

impl Page<'_> {
    /// Encodes the ceilings at the fleet's coordinator.
    pub(super) fn fleet(&mut self, fleet: &FleetStatus, sources: &[SourceStatus]) -> fmt::Result {
        let help = "Durable raises of the ceilings at the fleet's coordinator";
        self.counter("snowbank_fleet_raises", help, None, fleet.raises)?;
        let help = "1 if the fleet's coordinator gave an answer when it was last asked, else 0";
        self.gauge("snowbank_fleet_coordinator_up", help, None, u64::from(fleet.silent.is_none()))?;
        let help = "For how long IDs can be handed out without the fleet's coordinator";
        let (name, unit) = ("snowbank_fleet_headroom", Some(Unit::Seconds));
        let metric: SourceMetric =
            (name, help, unit, false, |source| source.fleet_headroom_s.map(Value::from));
        self.of_sources(sources, &metric)
    }
}
