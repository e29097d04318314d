//! The facts of a machine that worker IDs can come from, and the number that each origin finds.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use super::read_bounded;
use super::value::excerpt;
use super::worker_id_from::{Ipv4Of, WorkerIdFrom, low_bits};

/// The environment variable with the machine's address. It replaces the addresses of the
/// interfaces.
pub(super) const IPV4_VARIABLE: &str = "SNOWBANK_IPV4";

/// The facts of a machine that worker IDs can come from.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The host name.
    pub host_name: String,
    /// The value of `SNOWBANK_IPV4`, if it is set.
    pub given_ipv4: Option<String>,
    /// Each IPv4 address with the name of its interface, or the reason why they are not known.
    pub interfaces: Result<Vec<(String, Ipv4Addr)>, String>,
}

/// The reason why an origin has no number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoNumber {
    /// The line that names what was found and what is allowed.
    pub(super) text: String,
    /// True if the origin may have a number later, without a change of the configuration.
    pub(super) may_pass: bool,
}

impl Machine {
    /// Returns the machine that this process runs on.
    pub fn here() -> Machine {
        let host_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let given_ipv4 = std::env::var_os(IPV4_VARIABLE).map(|text| text.to_string_lossy().into_owned());
        let interfaces = match if_addrs::get_if_addrs() {
            Ok(all) => Ok(all.into_iter().filter_map(named_ipv4).collect()),
            Err(error) => Err(error.to_string()),
        };
        // An empty variable counts as not set, as everywhere.
        Machine { host_name, given_ipv4: given_ipv4.filter(|text| !text.is_empty()), interfaces }
    }

    /// Returns an address at which other machines may reach this one, if its interfaces show any.
    pub fn reachable_address(&self) -> Option<Ipv4Addr> {
        let interfaces = self.interfaces.as_ref().ok()?;
        interfaces.iter().map(|(_, address)| *address).find(|address| !address.is_loopback())
    }

    /// Returns the number below `numbers` that an origin gives, and words for the place where the
    /// number was found.
    ///
    /// # Errors
    /// The origin gives no number, or one that is too large.
    pub(super) fn number(&self, from: &WorkerIdFrom, numbers: u64) -> Result<(u64, String), NoNumber> {
        let (number, place) = match from {
            WorkerIdFrom::Given | WorkerIdFrom::Coordinator(_) => (0, String::new()),
            WorkerIdFrom::HostName => {
                let number = number_of_host_name(&self.host_name).map_err(lasting)?;
                (number, format!("host name {:?}", self.host_name))
            }
            WorkerIdFrom::Ipv4(of) => {
                let (address, place) = self.address(of)?;
                // `settle` has refused any `numbers` that is not a power of two.
                let bits = numbers.trailing_zeros();
                (low_bits(address, bits), format!("the low {} bits of {address}, {place}", bits.min(32)))
            }
            WorkerIdFrom::File(path) => (number_in_file(path)?, format!("file {}", path.display())),
        };
        if number >= numbers {
            let most = numbers - 1;
            return Err(lasting(format!(
                "found {number} ({place}), allowed: 0 to {most}, the worker IDs of the layout"
            )));
        }
        Ok((number, place))
    }

    /// Returns the address that gives the number, and the place where it was found.
    fn address(&self, of: &Ipv4Of) -> Result<(Ipv4Addr, String), NoNumber> {
        if let Some(text) = &self.given_ipv4 {
            return match text.parse() {
                Ok(address) if is_a_machines(address) && of.spans(address) => {
                    Ok((address, IPV4_VARIABLE.into()))
                }
                _ => Err(lasting(format!(
                    "found {IPV4_VARIABLE}={:?}, allowed with {}: an IPv4 address that only this machine has, as in 10.1.2.3",
                    excerpt(text),
                    WorkerIdFrom::Ipv4(of.clone())
                ))),
            };
        }
        let all = self.interfaces.as_ref().map_err(|error| {
            lasting(format!(
                "cannot list the addresses of this machine: {error}; allow AF_NETLINK sockets, or set {IPV4_VARIABLE}"
            ))
        })?;
        let mut others: Vec<_> = all.iter().filter(|(_, address)| is_a_machines(*address)).collect();
        let fit: Vec<_> = others.extract_if(.., |(interface, address)| of.has(interface, *address)).collect();
        let distinct = fit.iter().filter(|(_, address)| *address != fit[0].1).count();
        match &fit[..] {
            [(interface, address), ..] if distinct == 0 => Ok((*address, format!("interface {interface}"))),
            [] => Err(NoNumber {
                text: format!(
                    "found no address that fits (others: {}), allowed: one IPv4 address that is not loopback; bring the \
                     interface up, or set {IPV4_VARIABLE}",
                    in_words(&others)
                ),
                may_pass: true,
            }),
            several => Err(lasting(format!(
                "found {}, allowed: one address; name its interface or subnet, as in \"ipv4:eth0\" or \"ipv4:10.0.0.0/8\", \
                 or set {IPV4_VARIABLE}",
                in_words(several)
            ))),
        }
    }
}

/// Returns the name and the address of an interface, if it has an IPv4 address.
fn named_ipv4(interface: if_addrs::Interface) -> Option<(String, Ipv4Addr)> {
    match interface.addr {
        if_addrs::IfAddr::V4(address) => Some((interface.name, address.ip)),
        if_addrs::IfAddr::V6(_) => None,
    }
}

fn lasting(text: String) -> NoNumber {
    NoNumber { text, may_pass: false }
}

/// Returns false for an address that does not belong to one machine.
fn is_a_machines(address: Ipv4Addr) -> bool {
    !address.is_loopback() && !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast()
}

fn in_words(found: &[&(String, Ipv4Addr)]) -> String {
    let found: Vec<_> = found.iter().map(|(interface, address)| format!("{address} ({interface})")).collect();
    if found.is_empty() { "none".into() } else { found.join(", ") }
}

/// The characters that Kubernetes uses in random suffixes.
const POD_SUFFIX: &str = "bcdfghjklmnpqrstvwxz2456789";
/// The length of the random suffix of a pod of a Deployment, a DaemonSet or a Job.
const POD_SUFFIX_LENGTH: usize = 5;
/// The length of the random host name of a container, in hexadecimal digits.
const CONTAINER_NAME_LENGTH: usize = 12;

/// Returns the number at the end of a host name's first label.
///
/// # Errors
/// There is no number, it is too large, or the name is random, so that two machines could have it.
fn number_of_host_name(name: &str) -> Result<u64, String> {
    let allowed =
        "allowed: a number at its end, one for each machine, as in \"web-12\"; or choose another origin";
    let found = excerpt(name);
    let label = name.split('.').next().unwrap_or_default();
    let is_a_pods = label.rsplit_once('-').is_some_and(|(_, suffix)| {
        suffix.len() == POD_SUFFIX_LENGTH && suffix.chars().all(|letter| POD_SUFFIX.contains(letter))
    });
    let is_a_containers =
        label.len() == CONTAINER_NAME_LENGTH && label.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_a_pods || is_a_containers {
        return Err(format!("found host name {found:?}, whose end is random, {allowed}"));
    }
    let digits = &label[label.trim_end_matches(|letter: char| letter.is_ascii_digit()).len()..];
    match digits.parse() {
        Ok(number) => Ok(number),
        Err(_) if digits.is_empty() => Err(format!("found host name {found:?}, {allowed}")),
        Err(_) => Err(format!("found {digits} (host name {found:?}), allowed: at most {}", u64::MAX)),
    }
}

/// Returns the number in a file that has nothing else except white space.
///
/// # Errors
/// There are three reasons: the file is missing or empty, which may change without the operator; it
/// cannot be read; or its text is not one number.
fn number_in_file(path: &Path) -> Result<u64, NoNumber> {
    let shown = path.display();
    let bytes = read_bounded(path).map_err(|error| NoNumber {
        text: format!(
            "cannot read {shown}: {error}; allowed: a file with one number, written by the program that assigns the numbers"
        ),
        may_pass: error.kind() == io::ErrorKind::NotFound,
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    if text.is_empty() {
        let text = format!(
            "found {shown} empty, allowed: one number, written by the program that assigns the numbers"
        );
        return Err(NoNumber { text, may_pass: true });
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or_else(|| {
        lasting(format!("found {:?} in {shown}, allowed: one number, as in 12", excerpt(text)))
    })
}

#[cfg(test)]
mod tests;
