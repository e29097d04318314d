//! The addresses of clients: how many connections each has, and the rate at which it draws.
//!
//! An IPv6 client has a network of its own, so an address is its first 64 bits. Unix sockets have no address: their clients
//! are processes of this machine, which the socket file's permissions let in.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pace::Pace;
use super::usage::Events;
use crate::clock::BootMicros;

/// The most addresses without a connection that a sweep keeps. They are remembered because they drew ahead of their rate a
/// moment ago. Fewer new ones than this come in a second. Clients decide how many there are, and each costs some 200 bytes.
const REMEMBERED_MAX: usize = 20_000;

/// A client's address: an IPv4 address, or the first 64 bits of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Network(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

/// One address with its connections.
#[derive(Debug)]
pub struct Address {
    network: Network,
    /// Its last rate, and the version of the configuration that set it.
    pace: Mutex<Option<(u64, Arc<Pace>)>>,
    /// Connections refused because the address already has as many as it may have.
    pub refused: Events,
    slowed: Events,
}

impl Address {
    /// Returns its network.
    pub fn network(&self) -> Network {
        self.network
    }

    /// Returns its rate by the newest configuration that any shard has asked for. IDs drawn ahead at an earlier rate stay
    /// counted. All its connections follow that rate, even on shards that still use an older configuration.
    pub(super) fn pace(&self, per_second: u32, version: u64, now: BootMicros) -> Arc<Pace> {
        let mut last = lock(&self.pace);
        let old = match &*last {
            Some((of, pace)) if *of >= version => return Arc::clone(pace),
            last => last.as_ref().map(|(_, pace)| Arc::clone(pace)),
        };
        let pace = Pace::follow(old.as_ref(), per_second);
        if let Some(old) = old {
            old.supersede(&pace, now);
        }
        Arc::clone(&last.insert((version, pace)).1)
    }

    fn is_idle(&self, now: BootMicros) -> bool {
        lock(&self.pace).as_ref().is_none_or(|(_, pace)| pace.is_idle(now))
    }
}

/// All addresses that have connections, and those that drew ahead of their rate lately.
#[derive(Debug, Default)]
pub struct Addresses {
    table: Mutex<Table>,
    /// The events of all addresses since the start.
    refused: AtomicU64,
    asked: AtomicU64,
    slowed: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    /// Each seat holds a handle of its address, and the table holds one more.
    known: HashMap<Network, Arc<Address>>,
    /// The number of addresses at which those without a connection are next looked for.
    sweep_at: usize,
}

/// A connection's place at its address, until it closes. Not cloned: the table counts these.
#[derive(Debug)]
pub struct Seat(Arc<Address>);

impl std::ops::Deref for Seat {
    type Target = Address;

    fn deref(&self) -> &Address {
        &self.0
    }
}

/// The address that gets no further connection, because it has as many as it may have.
#[derive(Debug)]
pub struct Full(pub Arc<Address>);

impl Addresses {
    /// Returns the seat of a new connection.
    ///
    /// # Errors
    /// The address has `most` connections.
    pub fn enter(&self, address: IpAddr, most: Option<u32>, now: BootMicros) -> Result<Seat, Full> {
        let table = &mut *lock(&self.table);
        if table.known.len() >= table.sweep_at {
            table.sweep(now);
        }
        let network = Network::from(address);
        let known = table.known.entry(network).or_insert_with(|| {
            let (refused, slowed) = (Events::default(), Events::default());
            Arc::new(Address { network, pace: Mutex::default(), refused, slowed })
        });
        if most.is_some_and(|most| connections(known) >= most as usize) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Full(Arc::clone(known)));
        }
        Ok(Seat(Arc::clone(known)))
    }

    /// Counts a request of a client with limits.
    pub fn note_asked(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the requests of clients with limits. With a rate for each address, that is every client with an address.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Counts a request that its address's rate delayed or refused. Returns the number of them if it must be logged.
    pub fn note_slowed(&self, seat: &Seat, now: BootMicros) -> Option<u64> {
        self.slowed.fetch_add(1, Ordering::Relaxed);
        seat.slowed.note(now)
    }

    /// Returns the number of connections refused because their address had all that it may have.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the requests that waited for their address's rate, or were refused for it.
    pub fn slowed(&self) -> u64 {
        self.slowed.load(Ordering::Relaxed)
    }

    /// Returns the number of addresses that have a connection.
    pub fn connected(&self) -> usize {
        lock(&self.table).known.values().filter(|address| connections(address) > 0).count()
    }
}

impl Table {
    /// Forgets addresses that have no connection and have regained their whole burst. Forgets all addresses without a
    /// connection if there are too many.
    fn sweep(&mut self, now: BootMicros) {
        self.known.retain(|_, address| connections(address) > 0 || !address.is_idle(now));
        let open = self.known.values().filter(|address| connections(address) > 0).count();
        if self.known.len() - open > REMEMBERED_MAX {
            self.known.retain(|_, address| connections(address) > 0);
        }
        // The next sweep comes after as many new addresses as there are now, so each address costs constant time.
        self.sweep_at = (2 * self.known.len()).max(64);
    }
}

/// Returns the connections that hold an address, besides the table.
fn connections(address: &Arc<Address>) -> usize {
    Arc::strong_count(address) - 1
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: BootMicros = BootMicros(1_000_000_000);

    fn enter(addresses: &Addresses, address: &str, most: u32) -> Option<Seat> {
        addresses.enter(address.parse().expect("an address"), Some(most), NOW).ok()
    }

    #[test]
    fn each_address_has_its_connections_and_an_ipv6_network_counts_as_one() {
        let addresses = Addresses::default();
        let first = enter(&addresses, "192.0.2.1", 2).expect("the first");
        // As a listener of both families names it.
        let _second = enter(&addresses, "::ffff:192.0.2.1", 2).expect("the second");
        assert!(enter(&addresses, "192.0.2.1", 2).is_none());
        assert!(enter(&addresses, "192.0.2.2", 2).is_some());
        drop(first);
        assert!(enter(&addresses, "192.0.2.1", 2).is_some());
        let network = enter(&addresses, "2001:db8:0:1::1", 1).expect("the first");
        assert_eq!(network.network().to_string(), "2001:db8:0:1::/64");
        assert!(enter(&addresses, "2001:db8:0:1:ffff::2", 1).is_none());
        assert!(enter(&addresses, "2001:db8:0:2::1", 1).is_some());
        assert_eq!(addresses.connected(), 2);
    }

    #[test]
    fn a_client_that_comes_again_finds_its_rate_as_it_left_it() {
        let addresses = Addresses::default();
        let pace = enter(&addresses, "192.0.2.1", 1).expect("a place").pace(10, 1, NOW);
        pace.reserve(NOW, NOW, 10, false).expect("the burst");
        // Others come meanwhile, so that the table is swept.
        for other in 0..200 {
            enter(&addresses, &format!("198.51.100.{other}"), 1).expect("a place");
        }
        let pace = enter(&addresses, "192.0.2.1", 1).expect("a place").pace(10, 1, NOW);
        assert!(pace.reserve(NOW, NOW, 1, false).is_err());
    }

    #[test]
    fn shards_that_reload_one_after_the_other_share_one_rate() {
        let addresses = Addresses::default();
        let (first, second) = (enter(&addresses, "192.0.2.1", 9), enter(&addresses, "192.0.2.1", 9));
        let (first, second) = (first.expect("a place"), second.expect("a place"));
        let before = second.pace(10, 1, NOW);
        let after = first.pace(20, 3, NOW);
        // On a shard that still has the old configuration: an earlier connection, and one that comes now.
        let newcomer = second.pace(10, 1, NOW);
        for pace in [&before, &after, &newcomer] {
            assert!(Arc::ptr_eq(pace.newest(), &after));
        }
        // A reload that changes something else keeps it.
        assert!(Arc::ptr_eq(&first.pace(20, 5, NOW), &after));
    }

    #[test]
    fn addresses_that_are_gone_are_forgotten() {
        let addresses = Addresses::default();
        for other in 0..10_000_u32 {
            let address = IpAddr::from(std::net::Ipv4Addr::from_bits(other));
            addresses.enter(address, None, NOW).expect("no limit");
        }
        assert!(lock(&addresses.table).known.len() <= 64);
        for other in 0..2 * REMEMBERED_MAX as u32 + 200 {
            let address = IpAddr::from(std::net::Ipv4Addr::from_bits(other));
            let entered = addresses.enter(address, None, NOW).expect("no limit");
            entered.pace(1, 1, NOW).reserve(NOW, NOW, 1, false).expect("the burst");
        }
        assert!(lock(&addresses.table).known.len() <= 2 * REMEMBERED_MAX + 1);
    }
}
