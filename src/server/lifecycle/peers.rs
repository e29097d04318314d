//! The daemon and its peers: refuses to start with the worker ID of one, and watches them while it runs.

use std::future::pending;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::threads::make_runtime;
use crate::admin::PeerStatus;
use crate::config::{Address, InheritedAddresses, Purpose};
use crate::fleet::peers::{Answer, Described, PeerAccess, Peers};
use crate::server::shared::common::Common;
use crate::server::shared::live_config::LiveConfig;
use crate::server::shared::start_error::StartError;
use snowbank_client::protocol::Info;

/// The longest that a start waits for its peers. A peer's machine answers or refuses within milliseconds, so a start takes
/// this long only if a peer is cut off.
const START_TIMEOUT: Duration = Duration::from_secs(1);

/// The time from one look to the next. Two daemons with one worker ID may hand out IDs unnoticed for that time.
const PERIOD: Duration = Duration::from_secs(10);

/// The time from one look to the next while a peer does not answer, so that its return is noticed soon.
const SILENT_PERIOD: Duration = Duration::from_secs(1);

/// The longest wait for an answer while the daemon runs. It outlasts a peer's restart.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks all peers, before anything is handed out. A peer that does not answer stops no start.
///
/// # Errors
/// A peer has a worker ID of this daemon.
pub(super) fn refuse_shared(
    access: &PeerAccess,
    info_json: &[u8],
    inherited: &InheritedAddresses,
) -> Result<(), StartError> {
    let runtime = make_runtime()?;
    let own_sockets: Vec<SocketAddr> = inherited.iter().filter_map(own_socket).collect();
    let mut peers = Peers::new(access.clone(), START_TIMEOUT, true);
    let answers = runtime.block_on(peers.ask(|at| own_sockets.iter().any(|own| leads_to(at, *own))));
    // A name that is still being resolved must not delay the start.
    runtime.shutdown_background();
    let found = judge(info_json, answers);
    match found.iter().find_map(|peer| peer.shared.as_ref().map(|shared| (peer, shared))) {
        Some((peer, shared)) => Err(StartError::WorkerIdHeld(format!(
            "{}, a peer in fleet.peers, has {shared} too: both would hand out the same IDs; give this daemon a worker ID of its \
             own (worker_ids), or stop the other one",
            peer.name()
        ))),
        None => Ok(()),
    }
}

/// Returns the address of an inherited socket for clients. The daemon does not answer there until its start is over.
fn own_socket((purpose, address): &(Purpose, Address)) -> Option<SocketAddr> {
    match (purpose, address) {
        (Purpose::Clients(_), Address::Tcp { host, port } | Address::Tls { host, port }) => {
            Some(SocketAddr::new(host.parse().ok()?, *port))
        }
        _ => None,
    }
}

/// Returns whether connections to an address lead to this listener.
fn leads_to(address: SocketAddr, listener: SocketAddr) -> bool {
    // Only an address of this machine can be bound.
    let is_here = || UdpSocket::bind((address.ip(), 0)).is_ok();
    address.port() == listener.port()
        && (address.ip() == listener.ip() || listener.ip().is_unspecified() && is_here())
}

/// Asks the peers every few seconds, for the status, until the daemon ends.
pub(super) async fn watch(common: Arc<Common>) {
    let mut live_config = common.live_config.clone();
    loop {
        let config = Arc::clone(&live_config.borrow_and_update());
        tokio::select! {
            () = watch_by(&config, &common) => {}
            changed = live_config.changed() => if changed.is_err() { return },
        }
    }
}

/// Asks the peers of one configuration every few seconds. Never completes.
async fn watch_by(config: &LiveConfig, common: &Common) {
    let Some(access) = &config.peers else {
        common.metrics.peers().clear();
        return pending().await;
    };
    let mut peers = Peers::new(access.clone(), TIMEOUT, false);
    loop {
        let seen = judge(&config.facts.info_json, peers.ask(|_| false).await);
        let some_silent = seen.iter().any(|peer| peer.silent.is_some());
        *common.metrics.peers() = seen;
        sleep(if some_silent { SILENT_PERIOD } else { PERIOD }).await;
    }
}

/// Compares this daemon with the peers that answered. Leaves out this daemon itself.
fn judge(info_json: &[u8], answers: Vec<Answer>) -> Vec<PeerStatus> {
    let own = Info::from_json(info_json).ok();
    let own_instance = own.as_ref().and_then(|own| own.instance.clone());
    let judge = |Answer { address, result }: Answer| {
        let silent = PeerStatus { address, instance: None, silent: None, clock_ahead_s: None, shared: None };
        let Described { info, clock_ahead_us } = match result {
            Ok(described) => described,
            Err(reason) => return Some(PeerStatus { silent: Some(reason), ..silent }),
        };
        if info.instance.is_some() && info.instance == own_instance {
            return None;
        }
        let shared = own.as_ref().and_then(|own| own.shared_worker_id(&info));
        let shared =
            shared.map(|shared| format!("worker ID {} of source {:?}", shared.worker_id, shared.source));
        let clock_ahead_s = clock_ahead_us.map(|ahead_us| ahead_us as f64 / 1e6);
        Some(PeerStatus { instance: info.instance, clock_ahead_s, shared, ..silent })
    };
    answers.into_iter().filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_to_a_listener_of_all_addresses_lead_there_from_this_machine_alone() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        for (address, listener, expected) in [
            ("127.0.0.1:7660", "127.0.0.1:7660", true),
            ("127.0.0.1:7660", "0.0.0.0:7660", true),
            ("127.0.0.1:7661", "0.0.0.0:7660", false),
            ("127.0.0.2:7660", "127.0.0.1:7660", false),
            // An address of the documentation, which no machine has.
            ("192.0.2.1:7660", "0.0.0.0:7660", false),
        ] {
            assert_eq!(leads_to(at(address), at(listener)), expected, "{address} and {listener}");
        }
    }
}
