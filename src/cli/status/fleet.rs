//! The fleet's part of `snowbank status`: ceilings at the coordinator, and peers.

use std::fmt::{self, Write as _};

use jiff::Timestamp;

use super::times;
use crate::admin::{FleetStatus, PeerStatus, SourceStatus, Status, seconds};

/// Writes how long the daemon can go on without the coordinator, and a line for each peer.
pub(super) fn describe_fleet(status: &Status, out: &mut String) -> fmt::Result {
    if let Some(FleetStatus { raises, left_s, silent }) = &status.fleet {
        let answers = if silent.is_some() { "does not answer" } else { "answers" };
        let raised = match *raises {
            0 => String::from("not raised there yet"),
            raises => format!("raised {} there", times(raises)),
        };
        let left = seconds(*left_s);
        writeln!(
            out,
            "fleet        coordinator {answers}; IDs last for {left} without it; ceilings {raised}"
        )?;
    }
    let Some(all) = &status.peers else { return Ok(()) };
    let silent = all.peers.iter().filter(|peer| peer.silent.is_some()).count() as u64;
    let known = all.peers.len() as u64;
    if known == 0 {
        return writeln!(out, "peers        none has been asked yet");
    }
    writeln!(out, "peers        {} answering, of {known} other than this one", known - silent)?;
    all.peers.iter().try_for_each(|peer| describe_peer(peer, out))
}

fn describe_peer(peer: &PeerStatus, out: &mut String) -> fmt::Result {
    let state = match (&peer.silent, &peer.shared) {
        (Some(reason), _) => format!("does not answer: {reason}"),
        (None, Some(shared)) => format!("has {shared} too"),
        (None, None) => String::from("has no worker ID of this daemon"),
    };
    let clock = match peer.clock_ahead_s {
        None => String::new(),
        Some(ahead_s) if ahead_s > 0.0 => format!("; its clock is {} ahead", seconds(ahead_s)),
        Some(ahead_s) if ahead_s < 0.0 => format!("; its clock is {} behind", seconds(-ahead_s)),
        Some(_) => String::from("; its clock agrees"),
    };
    writeln!(out, "       {}: {state}{clock}", peer.name())
}

/// Writes a source's ceiling at the coordinator, below which its worker IDs are this daemon's.
pub(super) fn describe_fleet_ceiling(
    status: &Status,
    source: &SourceStatus,
    out: &mut String,
) -> fmt::Result {
    let (Some(headroom_s), Some(snowflake)) = (source.fleet_headroom_s, source.snowflake()) else {
        return Ok(());
    };
    // The ceiling as a time: IDs are ahead of the clock during a catch-up.
    let until_s = status.started_unix_s + status.uptime_s + snowflake.ahead_s + headroom_s;
    let until = Timestamp::from_second(until_s as i64).unwrap_or(Timestamp::UNIX_EPOCH);
    writeln!(
        out,
        "       fleet: worker {} held by this daemon until {until}, {} ahead",
        snowflake.worker_ids,
        seconds(headroom_s)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{PeersStatus, healthy};

    #[test]
    fn fleet_ceilings_and_peers_are_shown_when_all_is_well() {
        let mut status = healthy();
        status.fleet = Some(FleetStatus { raises: 1, left_s: 240.0, silent: None });
        status.sources[0].fleet_headroom_s = Some(240.0);
        let (address, instance) = (String::from("b:1"), Some(String::from("host-2")));
        let peer = PeerStatus { address, instance, silent: None, clock_ahead_s: Some(-0.2), shared: None };
        status.peers = Some(PeersStatus { clock_tolerance_s: 1.0, peers: vec![peer] });
        let mut page = String::new();
        super::super::describe(&status, None, &mut page).expect("written to a string");
        for line in [
            "fleet        coordinator answers; IDs last for 4 min without it; ceilings raised once there\n",
            "peers        1 answering, of 1 other than this one\n",
            "       peer b:1 (host-2): has no worker ID of this daemon; its clock is 200 ms behind\n",
            "       fleet: worker 0 held by this daemon until 2027-01-15T08:05:00Z, 4 min ahead\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
    }
}
