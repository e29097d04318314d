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
        self.of_sources(sources, &metric)?;
        let help = "Worker numbers of the fleet that a source could have";
        let values = fleet.pools.iter().map(|pool| (("source", pool.source.as_str()), pool.numbers.into()));
        self.family("snowbank_fleet_numbers", help, None, false, values)?;
        let help = "Those of them that a daemon holds";
        let values = fleet.pools.iter().map(|pool| (("source", pool.source.as_str()), pool.held.into()));
        self.family("snowbank_fleet_numbers_held", help, None, false, values)?;
        let Some(ends) = fleet.certificate_ends_unix_s else { return Ok(()) };
        let name = "snowbank_fleet_certificate_expiry_timestamp";
        let help = "Until when the coordinator believes the daemon's certificate, in Unix time";
        self.gauge(name, help, Some(&Unit::Seconds), ends as f64)
    }
}
