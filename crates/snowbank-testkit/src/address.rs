//! The address of a daemon.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An address on which a daemon listens. A line of the daemon's output names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Plain TCP.
    Tcp(SocketAddr),
    /// TLS over TCP.
    Tls(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    pub(super) fn from_line(line: &str) -> Address {
        let text = line.split_once(" on ").map(|(_, text)| text);
        let text = text.unwrap_or_else(|| panic!("expected a line `… on ADDRESS`, found {line:?}"));
        if let Some(path) = text.strip_prefix("unix:") {
            return Address::Unix(path.into());
        }
        let (make, text): (fn(SocketAddr) -> Address, &str) = match text.strip_prefix("tls:") {
            Some(rest) => (Address::Tls, rest),
            None => (Address::Tcp, text),
        };
        make(text.parse().unwrap_or_else(|error| panic!("{line:?}: {error}")))
    }

    /// Returns the address of a TCP listener, with TLS or without.
    pub fn tcp(&self) -> SocketAddr {
        match self {
            Address::Tcp(address) | Address::Tls(address) => *address,
            Address::Unix(path) => panic!("unix:{} is not a TCP address", path.display()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Tls(address) => write!(f, "tls:{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
