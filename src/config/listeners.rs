//! The listeners of the daemon, whatever their protocol.

use super::Settings;
use crate::frontends::Protocol;
use snowbank_client::address::Address;

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

impl Purpose {
    /// Returns the use of a socket of this name. Any other name is that of Snowbank's own protocol,
    /// because systemd's default is the name of the socket's unit.
    pub fn from_socket(name: &str) -> Purpose {
        if name == "admin" {
            return Purpose::Admin;
        }
        let known = Protocol::ALL.into_iter().find(|protocol| protocol.name() == name);
        Purpose::Clients(known.unwrap_or(Protocol::Native))
    }
}
