//! The settings of a fleet. The comments of the fields are the reference that operators read.

use std::time::Duration;

use super::file_ref::FileRef;
use super::setting::{Change::Reload, Change::Restart, Section::Table};
use crate::fleet::etcd::Endpoint;
use snowbank_client::address::Address;

/// Why the settings of the coordinator stay.
const HELD: &str = "the worker numbers are held there";

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// The store that the daemons of a fleet share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorKind {
    /// None: this machine's locks and state alone keep worker IDs apart.
    None,
    /// etcd 3.4 or later.
    Etcd,
}

impl CoordinatorKind {
    /// All, with their names in a configuration.
    pub(super) const NAMES: [(&'static str, CoordinatorKind); 2] =
        [("none", CoordinatorKind::None), ("etcd", CoordinatorKind::Etcd)];

    /// Returns the name in a configuration.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("none", |(name, _)| name)
    }
}

settings! {
    /// The coordinator of daemons on several machines. docs/fleet.md shows how to set one up.
    pub struct FleetSettings at (fleet) {
        /// The store that all daemons of the fleet share: "etcd" (3.4 or later), or "none". Each worker ID then has a key
        /// there, with its holder and the bound of the IDs that the holder may hand out. A daemon whose worker ID another
        /// one holds does not start. `snowbank fleet init` prepares the store.
        ///
        /// "none": two machines with the same worker ID hand out the same IDs, and no daemon notices.
        coordinator: CoordinatorKind = r#""none""# in Table("fleet"), Restart(HELD),
            |value| value.choice(&CoordinatorKind::NAMES);

        /// The coordinator's members, as "http://HOST:PORT" or "https://HOST:PORT" (port 2379 by default). All are of
        /// one cluster. The daemon asks the next one if one does not answer.
        endpoints: Vec<Endpoint> = r#"["http://127.0.0.1:2379"]"# in Table("fleet"), Restart(HELD),
            |value| value.endpoints();

        /// The fleet's name at the coordinator, of the characters of a source's name. Daemons of one name share their
        /// worker IDs, and have the same layouts.
        name: String = r#""default""# in Table("fleet"), Restart(HELD), |value| value.name();

        /// The time that a daemon serves while the coordinator is out of reach, 1s to 24h, and the time after which the
        /// worker ID of a daemon that was killed is free for another one. At least four times max_ahead. The daemon
        /// raises its ceiling at the coordinator when half of this is used up, so an outage finds at least half of it left.
        ///
        /// Five minutes outlast the restart of a coordinator, and a fleet of 1,000 numbers writes seven times a second.
        horizon: Duration = r#""5m""# in Table("fleet"), Restart(HELD), |value| value.duration(SECOND..=DAY);

        /// The user's name at the coordinator. Empty: it asks for none.
        user: String = r#""""# in Table("fleet"), Restart(HELD), |value| value.text();

        /// The file of the user's password, in its first line: a path or "credential:NAME", as of auth.token_file.
        password_file: Option<FileRef> = r#""""# in Table("fleet"), Restart(HELD), |value| value.file();

        /// The file of the CA certificates that the certificate of an "https:" endpoint or a "tls:" peer must come from.
        /// Empty: the system's.
        ca: Option<FileRef> = r#""""# in Table("fleet"), Restart(HELD), |value| value.file();

        /// The file of this daemon's certificate for the coordinator and the peers, in PEM, where they ask for one.
        certificate: Option<FileRef> = r#""""# in Table("fleet"), Restart(HELD), |value| value.file();

        /// The file of that certificate's private key, in PEM without a passphrase.
        key: Option<FileRef> = r#""""# in Table("fleet"), Restart(HELD), |value| value.file();

        /// The addresses where other daemons listen for clients, as in listen. A name stands for every daemon that it
        /// resolves to, and this daemon may be among them: all can have the same list. The daemon asks each of them at the
        /// start and every ten seconds. It does not start if one has the same worker ID of the same IDs, and
        /// reports it at once if both run. Empty: none.
        ///
        /// It proves nothing while a peer is out of reach, and a check says so. Only a coordinator keeps daemons
        /// of several machines from the same worker IDs.
        peers: Vec<Address> = r#""""# in Table("fleet"), Reload, |value| value.peers();

        /// The file of the token that peers ask for, in its first line: a path or "credential:NAME", as of auth.token_file.
        peers_token_file: Option<FileRef> = r#""""# in Table("fleet"), Reload, |value| value.file();

        /// The difference to a peer's clock of which the daemon warns, 1ms to 24h.
        ///
        /// IDs of different daemons are sorted by time only as well as their clocks agree, which with time synchronisation
        /// is to milliseconds.
        clock_tolerance: Duration = r#""1s""# in Table("fleet"), Reload, |value| value.duration(MS..=DAY);
    }
}

impl FleetSettings {
    /// Returns true if the daemon is one of a fleet.
    pub fn is_used(&self) -> bool {
        self.coordinator != CoordinatorKind::None
    }
}
