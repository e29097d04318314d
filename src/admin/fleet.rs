//! The checks of a fleet: its ceilings at the coordinator, and the daemons that this one asks.

use super::finding::{about_daemon, fail, ok, seconds, warn};
use super::status::{Check, FleetStatus, PeerStatus, PeersStatus};

/// Checks the ceilings at the fleet's coordinator. An outage alone does not make a daemon unready: all daemons of the fleet
/// have it at the same time.
pub(super) fn check_fleet(fleet: &FleetStatus) -> Check {
    let left = seconds(fleet.left_s);
    let result = match &fleet.silent {
        Some(reason) if fleet.left_s <= 0.0 => fail(format!(
            "the ceiling at the coordinator is reached, and cannot be raised: {reason}; refuses with no_ceiling until it \
             can"
        )),
        Some(reason) => {
            warn(format!("the coordinator does not answer: {reason}; IDs last for another {left} without it"))
        }
        None if fleet.left_s <= 0.0 => fail(
            "the ceiling at the coordinator is reached, and being raised; refuses with no_ceiling until then",
        ),
        None => ok(format!("worker numbers held for {left} ahead")),
    };
    about_daemon("fleet", result)
}

/// Checks that no peer has a worker ID of this daemon, as far as peers answer. If a peer has one, both daemons
/// are unready: it is better to hand out nothing than the same IDs twice.
pub(super) fn check_peers(status: &PeersStatus) -> Check {
    let all = &status.peers;
    let silent: Vec<(&PeerStatus, &String)> =
        all.iter().filter_map(|peer| Some((peer, peer.silent.as_ref()?))).collect();
    let shared = all.iter().find_map(|peer| Some((peer, peer.shared.as_ref()?)));
    let result = match (shared, silent.first()) {
        (Some((peer, shared)), _) => fail(format!(
            "{} has {shared} too: both hand out the same IDs; stop one of them, and give it another worker ID",
            peer.name()
        )),
        (None, Some((first, reason))) => warn(format!(
            "{} of {} peers {}: {}, {reason}",
            silent.len(),
            all.len(),
            match silent.len() {
                1 => "does not answer, so nothing is known of its worker IDs",
                _ => "do not answer, so nothing is known of their worker IDs",
            },
            first.name()
        )),
        (None, None) if all.len() == 1 => ok("1 other daemon answers, and has no worker ID of this one"),
        (None, None) => {
            ok(format!("{} other daemons answer, and none has a worker ID of this one", all.len()))
        }
    };
    about_daemon("peers", result)
}

/// Checks that the clocks of peers agree with this machine's.
pub(super) fn check_peer_clocks(status: &PeersStatus) -> Check {
    let tolerance = status.clock_tolerance_s;
    let apart = status.peers.iter().filter_map(|peer| Some((peer, peer.clock_ahead_s?)));
    let furthest = apart.max_by(|(_, one), (_, other)| one.abs().total_cmp(&other.abs()));
    let result = match furthest.filter(|(_, ahead_s)| ahead_s.abs() > tolerance) {
        Some((peer, ahead_s)) => {
            let (by, side) = (seconds(ahead_s.abs()), if ahead_s > 0.0 { "ahead of" } else { "behind" });
            warn(format!(
                "the clock of {} is {by} {side} this machine's: check time synchronisation on both",
                peer.name()
            ))
        }
        None => {
            ok(format!("no clock of a peer is more than {} away, as far as is known", seconds(tolerance)))
        }
    };
    about_daemon("peer_clocks", result)
}

#[cfg(test)]
mod tests {
    use super::super::checks::tests::{checked, finds};
    use super::super::status::{FleetStatus, Level, PeerStatus, PeersStatus, Status};

    fn peer(address: &str) -> PeerStatus {
        let address = address.to_owned();
        PeerStatus { address, instance: None, silent: None, clock_ahead_s: Some(0.0), shared: None }
    }

    fn peers(peers: Vec<PeerStatus>) -> Option<PeersStatus> {
        Some(PeersStatus { clock_tolerance_s: 1.0, peers })
    }

    #[test]
    fn a_coordinators_outage_warns_until_the_ceiling_is_reached() {
        let fleet = |left_s, silent: Option<&'static str>| {
            move |status: &mut Status| {
                status.fleet = Some(FleetStatus { raises: 1, left_s, silent: silent.map(String::from) });
            }
        };
        assert_eq!(checked(fleet(200.0, None)), (true, None));
        finds("fleet", Level::Warn, "refused; IDs last for another 2 min", fleet(120.0, Some("refused")));
        finds("fleet", Level::Fail, "cannot be raised: refused", fleet(0.0, Some("refused")));
        finds("fleet", Level::Fail, "being raised", fleet(0.0, None));
    }

    #[test]
    fn a_peer_with_a_worker_id_of_this_daemon_fails_and_one_out_of_reach_warns() {
        let shared = PeerStatus { shared: Some("worker ID 5".to_owned()), ..peer("b:1") };
        let silent = PeerStatus { silent: Some("no route".to_owned()), clock_ahead_s: None, ..peer("c:1") };
        let all = [peer("a:1"), shared, silent.clone()];
        finds("peers", Level::Fail, "peer b:1 has worker ID 5 too", |status| {
            status.peers = peers(all.to_vec());
        });
        let part = "1 of 2 peers does not answer, so nothing is known of its worker IDs: peer c:1, no route";
        finds("peers", Level::Warn, part, |status| status.peers = peers(vec![peer("a:1"), silent]));
    }

    #[test]
    fn clocks_further_apart_than_the_setting_warn_on_both_sides() {
        for (ahead_s, part) in [(1.5, "1.5 s ahead of"), (-240.0, "4 min behind")] {
            finds("peer_clocks", Level::Warn, part, |status| {
                let away = PeerStatus { clock_ahead_s: Some(ahead_s), ..peer("b:1") };
                status.peers = peers(vec![peer("a:1"), away]);
            });
        }
        let mut status = super::super::status::tests::healthy();
        status.peers = peers(vec![PeerStatus { clock_ahead_s: Some(-1.0), ..peer("a:1") }]);
        status.check();
        assert_eq!(status.findings().count(), 0);
    }
}
