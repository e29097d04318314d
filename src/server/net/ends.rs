//! The two ends of a connection, for log lines.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use tokio::net::TcpStream;

/// The two ends of a connection, for log lines.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) peer: String,
    /// A name that all connections of one peer share.
    pub(crate) origin: String,
    /// The daemon's own address.
    pub(crate) listener: String,
}

impl Ends {
    /// Returns the ends of a connection before its TLS handshake.
    pub(crate) fn of_handshake(socket: &TcpStream) -> Ends {
        let peer = socket.peer_addr();
        let unknown = || String::from("unknown");
        Ends {
            peer: peer.as_ref().map_or_else(|_| unknown(), SocketAddr::to_string),
            origin: peer.as_ref().map_or_else(|_| unknown(), |peer| network_of(peer.ip())),
            listener: listener_of(socket, "tls:"),
        }
    }
}

/// Returns the daemon's own address.
pub(super) fn listener_of(socket: &TcpStream, prefix: &str) -> String {
    let Ok(address) = socket.local_addr() else { return String::from("unknown") };
    format!("{prefix}{}", SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Returns an IPv4 address as it is. For an IPv6 address, returns its network of 64 bits.
pub(super) fn network_of(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            format!("{}/64", Ipv6Addr::from(network))
        }
    }
}
