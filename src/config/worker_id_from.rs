//! The origins of worker IDs, as a configuration writes them.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

use snowbank_fleet::NUMBERS_MAX;

/// The origin of a source's worker IDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerIdFrom {
    /// The setting `worker_ids`.
    Given,
    /// This many worker IDs that no other daemon of the fleet has. They are picked at the start.
    Coordinator(usize),
    /// The number at the end of the machine's host name.
    HostName,
    /// The low bits of an IPv4 address of the machine.
    Ipv4(Ipv4Of),
    /// The number in a file, which another program writes.
    File(PathBuf),
}

/// The machine's addresses that can give a worker ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ipv4Of {
    /// The machine's only address.
    Machine,
    /// The addresses of the interface with this name.
    Interface(String),
    /// The addresses in a subnet, given by its first address and the length of its prefix.
    Subnet(Ipv4Addr, u32),
}

/// The text of every origin, for messages.
pub(super) const ORIGINS: &str = "\"given\", \"coordinator\", \"coordinator:COUNT\" with a count of 1 to 100, \"hostname\", \"ipv4\", \"ipv4:INTERFACE\" as in \
     \"ipv4:eth0\", \"ipv4:SUBNET\" with the subnet's first address, as in \"ipv4:10.1.4.0/22\", or \"file:PATH\"";

/// The longest name of an interface in Linux, in bytes (`IFNAMSIZ` less its zero).
const INTERFACE_BYTES_MAX: usize = 15;

impl FromStr for WorkerIdFrom {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.split_once(':') {
            None => match text {
                "given" => Ok(WorkerIdFrom::Given),
                "coordinator" => Ok(WorkerIdFrom::Coordinator(1)),
                "hostname" => Ok(WorkerIdFrom::HostName),
                "ipv4" => Ok(WorkerIdFrom::Ipv4(Ipv4Of::Machine)),
                _ => Err(()),
            },
            Some(("coordinator", count)) => match count.parse() {
                // One request to the coordinator cannot take more worker IDs.
                Ok(count @ 1..=NUMBERS_MAX) => Ok(WorkerIdFrom::Coordinator(count)),
                _ => Err(()),
            },
            Some(("ipv4", of)) => parse_ipv4_of(of).map(WorkerIdFrom::Ipv4).ok_or(()),
            Some(("file", path)) if !path.is_empty() && !path.contains(char::is_control) => {
                Ok(WorkerIdFrom::File(path.into()))
            }
            Some(_) => Err(()),
        }
    }
}

fn parse_ipv4_of(text: &str) -> Option<Ipv4Of> {
    if let Some((address, prefix)) = text.split_once('/') {
        let first: Ipv4Addr = address.parse().ok()?;
        let is_plain = prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix: u32 = prefix.parse().ok().filter(|&prefix| is_plain && prefix <= 32)?;
        return (low_bits(first, 32 - prefix) == 0).then_some(Ipv4Of::Subnet(first, prefix));
    }
    let is_name = (1..=INTERFACE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b":/".contains(&byte))
        && text.parse::<Ipv4Addr>().is_err();
    is_name.then(|| Ipv4Of::Interface(text.to_owned()))
}

/// Returns the low bits of an address.
pub(super) fn low_bits(address: Ipv4Addr, bits: u32) -> u64 {
    u64::from(address.to_bits()) & !(u64::MAX << bits)
}

impl Ipv4Of {
    /// Returns true if this address of this interface can give a worker ID.
    pub(super) fn has(&self, interface: &str, address: Ipv4Addr) -> bool {
        match self {
            Ipv4Of::Machine => true,
            // An additional address of an interface may have a label, such as eth0:1.
            Ipv4Of::Interface(name) => interface.split(':').next() == Some(name),
            Ipv4Of::Subnet(..) => self.spans(address),
        }
    }

    /// Returns true if an address is in the subnet, or if no subnet is named.
    pub(super) fn spans(&self, address: Ipv4Addr) -> bool {
        match *self {
            Ipv4Of::Subnet(first, prefix) => {
                u64::from(address.to_bits()) >> (32 - prefix) == u64::from(first.to_bits()) >> (32 - prefix)
            }
            Ipv4Of::Machine | Ipv4Of::Interface(_) => true,
        }
    }
}

impl fmt::Display for WorkerIdFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerIdFrom::Given => f.write_str("given"),
            WorkerIdFrom::Coordinator(1) => f.write_str("coordinator"),
            WorkerIdFrom::Coordinator(count) => write!(f, "coordinator:{count}"),
            WorkerIdFrom::HostName => f.write_str("hostname"),
            WorkerIdFrom::Ipv4(Ipv4Of::Machine) => f.write_str("ipv4"),
            WorkerIdFrom::Ipv4(Ipv4Of::Interface(name)) => write!(f, "ipv4:{name}"),
            WorkerIdFrom::Ipv4(Ipv4Of::Subnet(first, prefix)) => write!(f, "ipv4:{first}/{prefix}"),
            WorkerIdFrom::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}
