//! Ports for servers that must know their port before they listen, or that must return to the same
//! port after a restart. The kernel takes the local port of each connection from its own range. So
//! another connection may get a free port of that range before the server binds it. The ports here
//! are below that range. A test reserves a port by an abstract socket that is named after the port.
//! The reservation ends when the [`Port`] is dropped, or when the test's process ends.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as Name, UnixDatagram};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The lowest port. Most services of a machine use lower ports.
const LOWEST: u16 = 12_000;
/// Enough ports for all tests of a machine.
const ENOUGH: u16 = 4_000;

/// A port of 127.0.0.1. No other test takes the port until this value is dropped.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _held: UnixDatagram,
}

impl Port {
    /// Takes an unused port.
    pub fn take() -> Port {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let ports = candidates();
        // Processes start their search at different ports, so they rarely meet a port that is held.
        let first = std::process::id() as usize * 61 + TAKEN.fetch_add(1, Ordering::Relaxed);
        let mut from_first = ports.clone().cycle().skip(first % ports.len()).take(ports.len());
        from_first.find_map(Port::hold).expect("a free port below the kernel's own")
    }

    fn hold(number: u16) -> Option<Port> {
        let name = Name::from_abstract_name(format!("snowbank-test-port-{number}")).expect("a short name");
        let held = UnixDatagram::bind_addr(&name).ok()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, number));
        // A process that is no test, and so reserves nothing, may already use the port.
        TcpListener::bind(address).ok()?;
        Some(Port { address, _held: held })
    }

    /// Returns the address with this port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the port's number.
    pub fn number(&self) -> u16 {
        self.address.port()
    }
}

/// Returns the ports from [`LOWEST`] to the kernel's range. If these are too few, returns all ports
/// from [`LOWEST`] on.
fn candidates() -> Range<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    if end >= LOWEST + ENOUGH { LOWEST..end } else { LOWEST..u16::MAX }
}
