//! Refuses a start with a worker ID of a peer.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use super::threads::make_runtime;
use crate::config::Address;
use crate::server::shared::note::Note;
use crate::server::shared::start_error::StartError;
use snowbank_fleet::peers::{self, PeerAccess, Unanswered};
use snowbank_wire::Info;

/// The longest time that a start waits for its peers. A peer answers within milliseconds, and
/// refuses a wrong token after a second. So a start waits this long only for a peer that is out of
/// reach.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks all peers for their worker IDs. This daemon listens at the addresses in `own`. Peers with
/// these addresses are skipped, because all daemons may have the same list of peers. A peer that
/// does not answer does not prevent the start. Returns a line about the peers that did not answer,
/// if there are any.
///
/// # Errors
/// A peer has a worker ID of this daemon.
pub(super) fn refuse_shared(
    access: Option<&PeerAccess>,
    info_json: &[u8],
    own: &[Address],
) -> Result<Option<Note>, StartError> {
    let Some(access) = access else { return Ok(None) };
    let runtime = make_runtime()?;
    let answers = runtime.block_on(peers::ask(access, START_TIMEOUT, |at| {
        own.iter().filter_map(Address::socket_address).any(|own| leads_to(at, own))
    }));
    // The runtime may still be resolving a name. The start does not wait for that.
    runtime.shutdown_background();
    compare(info_json, &answers)
}

/// Compares this daemon with the peers that answered. An answer that comes from this daemon itself
/// is ignored.
fn compare(
    info_json: &[u8],
    answers: &[(Address, Result<Info, Unanswered>)],
) -> Result<Option<Note>, StartError> {
    let own = Info::from_json(info_json).ok();
    let mut silent = Vec::new();
    for (address, result) in answers {
        let info = match result {
            Ok(info) => info,
            Err(reason) => {
                silent.push(format!("{address}, {reason}"));
                continue;
            }
        };
        let Some(own) = &own else { continue };
        let is_itself = info.instance.is_some() && info.instance == own.instance;
        if let Some((source, worker_id)) = own.shared_worker_id(info).filter(|_| !is_itself) {
            let name = info.instance.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
            return Err(StartError::WorkerIdHeld(format!(
                "peer {address}{name}, one of fleet.peers, has worker ID {worker_id} of source {source:?} too: both \
                 would hand out the same IDs; give this daemon a worker ID of its own (worker_ids), or stop the other one"
            )));
        }
    }
    let first = silent.first();
    Ok(first.map(|first| {
        Note::Warning(format!(
            "{} of {} peers gave no answer, so nothing is known of their worker IDs: {first}; peers are asked at a start only",
            silent.len(),
            answers.len()
        ))
    }))
}

/// Returns whether a connection to `address` reaches `listener`, which is on this machine.
fn leads_to(address: SocketAddr, listener: SocketAddr) -> bool {
    // Binding succeeds only with an address of this machine.
    address.port() == listener.port()
        && (address.ip() == listener.ip()
            || listener.ip().is_unspecified() && UdpSocket::bind((address.ip(), 0)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_addresses_lead_to_an_unspecified_listener() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        for (address, listener, expected) in [
            ("127.0.0.1:7660", "127.0.0.1:7660", true),
            ("127.0.0.1:7660", "0.0.0.0:7660", true),
            ("127.0.0.1:7661", "0.0.0.0:7660", false),
            ("127.0.0.2:7660", "127.0.0.1:7660", false),
            // No machine has this address, which is for documentation (RFC 5737).
            ("192.0.2.1:7660", "0.0.0.0:7660", false),
        ] {
            assert_eq!(leads_to(at(address), at(listener)), expected, "{address} and {listener}");
        }
    }
}
