//! The settings of a fleet. The comments of the fields are the reference that operators read.

use std::time::Duration;

use super::file_ref::FileRef;
use super::refused::Refused;
use super::setting::{Change::Restart, Section::Table};
use super::units::{Written, quoted};
use super::value::Value;
use snowbank_fleet::HORIZON_MAX;
use snowbank_fleet::{CoordinatorKind, Endpoint, HORIZON_MIN};
use snowbank_wire::address::Address;

/// The reason why a reload cannot change the settings of the coordinator.
const HELD: &str = "the worker IDs are held there";
const PEERS: &str = "peers are asked at the start";

/// The word for no coordinator: only this machine's locks and state keep worker IDs apart.
const NONE: &str = "none";

impl Written for Option<CoordinatorKind> {
    fn written(&self) -> String {
        quoted(self.map_or(NONE, CoordinatorKind::name))
    }
}

/// Reads the kind of a coordinator. The refusal of "redis" gives the reason, because katsubushi
/// keeps its worker IDs in a Redis.
fn read_coordinator(value: Value<'_>) -> Result<Option<CoordinatorKind>, Refused> {
    let kinds = CoordinatorKind::ALL.map(|kind| (kind.name(), Some(kind)));
    let choices: Vec<_> = [(NONE, None)].into_iter().chain(kinds).collect();
    let read = value.choice(&choices);
    if value.is_word("redis") { read.map_err(|refused| Refused::Redis(Box::new(refused))) } else { read }
}

settings! {
    /// The coordinator of daemons on several machines. docs/fleet.md shows how to set one up.
    pub struct FleetSettings in Table("fleet"), at |settings, _index| (settings.fleet) {
        /// The store that all daemons of the fleet share: "etcd" (3.4 or later), "zookeeper" (3.5
        /// or later), or "none". A daemon waits while another one holds its worker ID. `snowbank
        /// fleet init` prepares the store: see docs/fleet.md.
        ///
        /// "none": two machines with the same worker ID hand out the same IDs.
        coordinator: Option<CoordinatorKind> = r#""none""#, Restart(HELD),
            read_coordinator;

        /// The coordinator's members, as "http://HOST:PORT" or "https://HOST:PORT" for etcd,
        /// "zookeeper://HOST:PORT" or "zookeepers://HOST:PORT" for ZooKeeper. The second form of
        /// each is over TLS. All must be of one cluster. If one does not answer, the daemon asks
        /// the next. Empty: this machine. The default ports are 2379 and 2181.
        endpoints: Vec<Endpoint> = "[]", Restart(HELD), |value| value.endpoints();

        /// The fleet's name at the coordinator, of the characters that a source's name may have.
        /// Daemons with one fleet name share their worker IDs, and have the same layouts.
        name: String = r#""default""#, Restart(HELD), |value| value.name();

        /// The longest time that a daemon serves while the coordinator is out of reach, 14s to 24h,
        /// and at least six times max_ahead. It is the fleet's: `snowbank fleet init` stores it
        /// together with max_ahead, and a daemon that is configured otherwise is refused. After this time at most, another daemon may take the worker ID of a killed daemon. The
        /// daemon raises its ceiling there when half of this time is used up, so at least half is
        /// left when an outage begins.
        ///
        /// Five minutes outlast the restart of a coordinator, and a fleet of 1,000 numbers then
        /// writes seven times a second.
        horizon: Duration = r#""5m""#, Restart(HELD), |value| value.duration(HORIZON_MIN..=HORIZON_MAX);

        /// The user name at the coordinator. Empty: the coordinator requires none.
        user: String = r#""""#, Restart(HELD), |value| value.text();

        /// The file with the user's password in its first line: a path or "credential:NAME", as for
        /// auth.token_file.
        password_file: Option<FileRef> = r#""""#, Restart(HELD), |value| value.file();

        /// The file of the CA certificates that the daemon trusts for endpoints and peers over TLS.
        /// Empty: those of the system.
        ca: Option<FileRef> = r#""""#, Restart(HELD), |value| value.file();

        /// The file of this daemon's certificate in PEM, for a coordinator or peers that require
        /// one.
        certificate: Option<FileRef> = r#""""#, Restart(HELD), |value| value.file();

        /// The file of that certificate's private key, in PEM without a passphrase.
        key: Option<FileRef> = r#""""#, Restart(HELD), |value| value.file();

        /// The addresses where other daemons listen for clients, as in listen. A name stands for
        /// every daemon that it resolves to, and this daemon may be among them: all can have the
        /// same list. The daemon asks each of them at its start, and does not start if a peer has
        /// the same worker ID with the same layout. Empty: none.
        ///
        /// Peers over "tls:", on Unix sockets and on loopback addresses get a token at once: the
        /// first line of auth.token_file with a token itself, not its hash. Others get none.
        ///
        /// Only a coordinator prevents daemons on several machines from using the same worker ID.
        peers: Vec<Address> = r#""""#, Restart(PEERS), |value| value.peers();
    }
}

impl FleetSettings {
    /// Returns true if the daemon is one of a fleet.
    pub fn is_used(&self) -> bool {
        self.coordinator.is_some()
    }

    /// Returns the members of a coordinator of this kind.
    pub(super) fn members(&self, kind: CoordinatorKind) -> Vec<Endpoint> {
        if self.endpoints.is_empty() { vec![Endpoint::local(kind)] } else { self.endpoints.clone() }
    }
}
