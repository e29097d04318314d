//! The metrics of a fleet: its ceilings at the coordinator, and the daemons that this one asks.

use std::fmt;

use prometheus_client::registry::Unit;

use super::sources::SourceMetric;
use super::{Page, Value};
use crate::admin::status::{FleetStatus, PeerStatus, PeersStatus, SourceStatus};

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

    /// Encodes the peers, each with its address.
    pub(super) fn peers(&mut self, status: &PeersStatus) -> fmt::Result {
        let help = "1 if a peer of fleet.peers gave an answer when it was last asked, else 0";
        self.of_peers("snowbank_peer_up", help, None, status, |peer| {
            Some(u64::from(peer.silent.is_none()).into())
        })?;
        let help = "1 while a peer has a worker ID of this daemon, so that both hand out the same IDs";
        self.of_peers("snowbank_peer_same_worker_ids", help, None, status, |peer| {
            Some(u64::from(peer.shared.is_some()).into())
        })?;
        let (help, seconds) = (
            "The least by which a peer's clock is ahead of this machine's, negative if it is behind",
            Some(&Unit::Seconds),
        );
        self.of_peers("snowbank_peer_clock_ahead", help, seconds, status, |peer| {
            peer.clock_ahead_s.map(Value::from)
        })?;
        let help = "The difference to a peer's clock above which the daemon warns";
        self.gauge("snowbank_peer_clock_tolerance", help, seconds, status.clock_tolerance_s)
    }

    fn of_peers(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        status: &PeersStatus,
        value: fn(&PeerStatus) -> Option<Value>,
    ) -> fmt::Result {
        let values = status.peers.iter();
        let values = values.filter_map(|peer| Some((("peer", peer.address.as_str()), value(peer)?)));
        self.family(name, help, unit, false, values)
    }
}
