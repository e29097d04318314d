//! The listeners of the daemon, whatever their protocol.

use std::collections::{BTreeMap, BTreeSet};

use super::{Override, Overrides, Protocol, Settings};
use snowbank_wire::address::Address;

impl Settings {
    /// Returns every address where clients connect.
    pub fn client_addresses(&self) -> impl Iterator<Item = &Address> {
        self.listeners().into_iter().flat_map(|(_, addresses)| addresses)
    }
}

/// The use of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For clients that speak this protocol.
    Clients(Protocol),
    /// HTTP, for the operator.
    Admin,
}

impl Overrides {
    /// Makes the daemon listen on sockets that a service manager has opened, instead of the
    /// configured addresses for the same use.
    pub fn listen_at(&mut self, inherited: &[(Purpose, Address)]) {
        // Several sockets may have one address and share its connections (`ReusePort=`).
        let mut by_key: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (purpose, address) in inherited {
            by_key.entry(purpose.listen_key()).or_default().insert(address.to_string());
        }
        for (key, texts) in by_key {
            let origin = format!("{key} of inherited sockets");
            self.0.push(Override { key: key.to_owned(), texts: texts.into_iter().collect(), origin });
        }
    }
}

impl Purpose {
    /// Returns the key of the setting with the addresses for this use.
    fn listen_key(self) -> &'static str {
        match self {
            Purpose::Clients(protocol) => protocol.listen_key(),
            Purpose::Admin => "admin.listen",
        }
    }

    /// Returns the use of a socket with this name. An unknown name stands for Snowbank's own
    /// protocol, because systemd names a socket after its unit unless told otherwise.
    pub fn from_socket(name: &str) -> Purpose {
        if name == "admin" {
            return Purpose::Admin;
        }
        let known = Protocol::ALL.into_iter().find(|protocol| protocol.name() == name);
        Purpose::Clients(known.unwrap_or(Protocol::Native))
    }
}
