//! The peers of a daemon: other daemons. At its start, a daemon asks its peers which worker IDs
//! they use. It asks as a client does.
//!
//! A peer that does not answer may have the same worker ID. So peers do not replace a coordinator.

mod question;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use question::Unanswered;
use snowbank_tls::ClientFiles;
use snowbank_wire::Info;
use snowbank_wire::address::Address;

/// A start asks at most this many addresses, and ignores the rest.
pub const PEERS_MAX: usize = 256;

/// The peers' addresses, and the credentials for them.
#[derive(Clone)]
pub struct PeerAccess {
    /// The configured addresses of peers. A name stands for all addresses that it resolves to.
    pub addresses: Vec<Address>,
    /// The token. It is sent only to addresses where nobody on a network can read it.
    pub token: Option<Vec<u8>>,
    /// The authorities to trust, and this side's certificate.
    pub tls: ClientFiles,
}

impl fmt::Debug for PeerAccess {
    /// Leaves out the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerAccess").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Asks all peers at the same time, except those at `skipped` addresses. Resolving names and asking
/// each take at most `within`. Returns the addresses that were asked, each with its peer's answer, in
/// the order of the configured addresses.
pub async fn ask(
    access: &PeerAccess,
    within: Duration,
    skipped: impl Fn(SocketAddr) -> bool,
) -> Vec<(Address, Result<Info, Unanswered>)> {
    // The addresses to ask, each with the index of the configured address that led to it.
    let mut asked = Vec::new();
    let mut answers = Vec::new();
    for (place, address, found) in resolve_all(&access.addresses, within).await {
        match found {
            Ok(found) => asked.extend(found.into_iter().map(|address| (place, address))),
            Err(reason) => answers.push((place, address, Err(reason))),
        }
    }
    asked.retain(|(_, address)| !address.socket_address().is_some_and(&skipped));
    asked.truncate(PEERS_MAX);
    let mut tasks = JoinSet::new();
    for (place, address) in asked {
        let token = access.token_for(place, &address).unwrap_or_default().to_vec();
        let tls = match &access.addresses[place] {
            // The server's certificate must have the configured name.
            Address::Tls { host, .. } => access.tls.clone().server_name(host),
            _ => access.tls.clone(),
        };
        tasks.spawn(async move {
            let answer = timeout(within, question::ask(&address, &token, &tls)).await;
            let result = answer.unwrap_or(Err(Unanswered::Late(within)));
            (place, address, result)
        });
    }
    answers.extend(tasks.join_all().await);
    distinct(answers)
}

impl PeerAccess {
    /// Returns the token, if it may be sent to `address`. The configured address with index `place`
    /// resolved to `address`. A client sends the token before it knows who answers. So both
    /// addresses must be private ([`is_private`]): a name that resolves to a loopback address today
    /// may resolve to another address tomorrow.
    fn token_for(&self, place: usize, address: &Address) -> Option<&[u8]> {
        let is_private = is_private(&self.addresses[place]) && is_private(address);
        self.token.as_deref().filter(|_| is_private)
    }
}

/// Returns true if nobody on a network can read what a client sends to this address.
pub fn is_private(address: &Address) -> bool {
    address.is_tls() || address.is_local()
}

async fn resolve_all(
    addresses: &[Address],
    wait: Duration,
) -> Vec<(usize, Address, Result<Vec<Address>, Unanswered>)> {
    let mut tasks = JoinSet::new();
    for (place, address) in addresses.iter().cloned().enumerate() {
        tasks.spawn(async move {
            let found = resolve(&address, wait).await;
            (place, address, found)
        });
    }
    let mut found = tasks.join_all().await;
    found.sort_by_key(|(place, ..)| *place);
    found
}

async fn resolve(address: &Address, wait: Duration) -> Result<Vec<Address>, Unanswered> {
    let (host, port) = match address {
        Address::Tcp { host, port } | Address::Tls { host, port } if host.parse::<IpAddr>().is_err() => {
            (host, port)
        }
        _ => return Ok(vec![address.clone()]),
    };
    let found = timeout(wait, lookup_host((host.as_str(), *port))).await;
    let found = found.map_err(|_| Unanswered::UnresolvedWithin(host.clone(), wait))?;
    let found = found.map_err(|error| Unanswered::Unresolved(host.clone(), error.to_string()))?;
    let mut found: Vec<SocketAddr> = found.collect();
    found.sort_unstable();
    found.dedup();
    let mut addresses = Vec::new();
    for at in found {
        let host = at.ip().to_string();
        let port = at.port();
        let is_tls = address.is_tls();
        addresses.push(if is_tls { Address::Tls { host, port } } else { Address::Tcp { host, port } });
    }
    Ok(addresses)
}

/// Returns the answers in the order of the configured addresses, each daemon once. A name may have
/// IPv4 and IPv6 addresses, and its daemon may listen on only one of them. So an address that does
/// not answer is left out if an address of the other family answers.
fn distinct(
    mut all: Vec<(usize, Address, Result<Info, Unanswered>)>,
) -> Vec<(Address, Result<Info, Unanswered>)> {
    all.sort_by_key(|(place, address, _)| (*place, address.to_string()));
    // The index of each configured address that answered, and whether it answered over IPv6.
    let mut answered = Vec::new();
    for (place, address, _) in all.iter().filter(|(.., result)| result.is_ok()) {
        answered.extend(address.socket_address().map(|at| (*place, at.is_ipv6())));
    }
    let mut instances = Vec::new();
    let mut answers = Vec::new();
    for (place, address, result) in all {
        let is_known = match &result {
            Ok(info) => info.instance.is_some() && instances.contains(&info.instance),
            Err(_) => address.socket_address().is_some_and(|at| answered.contains(&(place, !at.is_ipv6()))),
        };
        if !is_known {
            instances.extend(result.as_ref().map(|info| info.instance.clone()));
            answers.push((address, result));
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(
        place: usize,
        address: &str,
        instance: Option<&str>,
    ) -> (usize, Address, Result<Info, Unanswered>) {
        let described = |name| {
            let json = format!(r#"{{"protocol":1,"max_count":5,"instance":"{name}","sources":[]}}"#);
            Info::from_json(json.as_bytes()).expect("right JSON")
        };
        (place, address.parse().expect("an address"), instance.map(described).ok_or(Unanswered::Closed))
    }

    #[test]
    fn no_token_goes_over_a_network_in_clear_text() {
        let address = |text: &str| text.parse::<Address>().expect("an address");
        for (setting, resolved, is_sent) in [
            ("tls:ids-1:7660", "tls:10.0.0.1:7660", true),
            ("unix:/run/other.sock", "unix:/run/other.sock", true),
            ("127.0.0.1:7660", "127.0.0.1:7660", true),
            ("localhost:7660", "[::1]:7660", true),
            ("localhost:7660", "10.0.0.1:7660", false),
            ("ids-1:7660", "127.0.1.1:7660", false),
            ("10.0.0.1:7660", "10.0.0.1:7660", false),
        ] {
            let addresses = vec![address(setting)];
            let token = Some(b"of the fleet".to_vec());
            let access = PeerAccess { addresses, token, tls: ClientFiles::new() };
            assert_eq!(access.token_for(0, &address(resolved)).is_some(), is_sent, "{setting}, {resolved}");
        }
    }

    #[test]
    fn each_peer_is_listed_once_and_by_an_address_that_answers() {
        let all = vec![
            answer(1, "10.0.0.1:1", Some("a")),
            answer(0, "127.0.0.1:1", Some("a")),
            answer(0, "[::1]:1", None),
            answer(2, "10.0.0.2:1", None),
            answer(2, "10.0.0.3:1", Some("b")),
        ];
        let addresses: Vec<String> =
            distinct(all).into_iter().map(|(address, _)| address.to_string()).collect();
        assert_eq!(addresses, ["127.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]);
    }
}
