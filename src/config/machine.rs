//! The facts of a machine that worker IDs can come from, and the number that each origin finds.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::read_bounded;
use super::value::excerpt;
use super::worker_id_from::{Ipv4Of, WorkerIdFrom, low_bits};
use snowbank_id::layout::LayoutError;

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
    /// The IPv4 addresses of the interfaces, or the system's reason why they are not known.
    pub interfaces: Result<Vec<Interface>, Errno>,
}

/// An IPv4 address of an interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The address.
    pub address: Ipv4Addr,
    /// The length of the prefix of the interface's subnet, in bits.
    pub prefix: u32,
}

/// The reason why an origin has no number. `Display` names what was found and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoNumber {
    #[error(
        "found host name {name:?}, {fault}, allowed: words, a hyphen and a number of at most {NUMBER_DIGITS_MAX} digits, one for each \
         machine, as in \"web-12\", or one word and its number, as in \"db7\"; name the machines so, {OTHER_ORIGINS}"
    )]
    HostName { name: String, fault: HostNameFault },
    #[error("found {number} ({place}), allowed: 0 to {most}, the worker IDs of the layout")]
    TooLarge { number: u64, place: String, most: u64 },
    /// The subnet has more addresses than the layout has worker IDs.
    #[error(
        "found {address}/{prefix} ({place}), whose subnet has {} bits for its addresses, allowed: at most {bits}, or two \
         machines whose addresses end alike would hand out the same IDs; name the smaller subnet that has all \
         machines, as in \"ipv4:10.1.2.0/24\", choose a layout with more workers, or share a coordinator ([fleet])",
        32 - prefix
    )]
    WideSubnet { address: Ipv4Addr, prefix: u32, bits: u32, place: String },
    #[error(
        "found {IPV4_VARIABLE}={found:?}, allowed with {origin}: an IPv4 address that only this machine has, within the subnet \
         if one is named, as in 10.1.2.3"
    )]
    WrongVariable { found: String, origin: WorkerIdFrom },
    #[error(
        "cannot list the addresses of this machine: {0}; allow AF_NETLINK sockets, or set {IPV4_VARIABLE}"
    )]
    NotListed(Errno),
    #[error(
        "found no address that fits (others: {others}), allowed: one IPv4 address that is not loopback; bring the \
         interface up, or set {IPV4_VARIABLE}"
    )]
    NoAddress { others: String },
    #[error(
        "found {found}, allowed: one address; name an interface or a subnet that has only one of them, as in \"ipv4:eth0\" or \
         \"ipv4:10.1.4.0/22\", or set {IPV4_VARIABLE} to one"
    )]
    SeveralAddresses { found: String },
    #[error(
        "cannot read {}: {reason}; allowed: a file with one number, written by the program that assigns the numbers",
        path.display()
    )]
    UnreadableFile { path: PathBuf, reason: String, is_missing: bool },
    #[error("found {} empty, allowed: one number, written by the program that assigns the numbers", .0.display())]
    EmptyFile(PathBuf),
    // The text is not repeated, because the file may be one of secrets.
    #[error("found a text in {} that is no number, allowed: one number, as in 12", .0.display())]
    NotANumber(PathBuf),
    /// The layout does not have worker IDs with this number.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl NoNumber {
    /// Returns true if the origin may have a number later, without a change of the configuration.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            NoNumber::NoAddress { .. } | NoNumber::EmptyFile(_) => true,
            NoNumber::UnreadableFile { is_missing, .. } => *is_missing,
            _ => false,
        }
    }
}

/// What is wrong with a host name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HostNameFault {
    #[error("whose last part is not a number")]
    NoNumber,
    #[error("whose end is random")]
    RandomEnd,
    #[error("whose last part may be random: letters and digits behind a hyphen")]
    LettersAndDigits,
    #[error("whose number belongs to an address or is not behind a word")]
    NoWord,
    #[error("whose part {0:?} may be random or belong to an address")]
    RandomPart(String),
    #[error("whose number {0} has too many digits")]
    LongNumber(String),
}

impl Machine {
    /// Returns the machine that this process runs on.
    pub fn here() -> Machine {
        let host_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let given_ipv4 = std::env::var_os(IPV4_VARIABLE).map(|text| text.to_string_lossy().into_owned());
        let interfaces = match if_addrs::get_if_addrs() {
            Ok(all) => Ok(all.into_iter().filter_map(with_ipv4).collect()),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        };
        // An empty variable counts as not set, as everywhere.
        Machine { host_name, given_ipv4: given_ipv4.filter(|text| !text.is_empty()), interfaces }
    }

    /// Returns an address at which other machines may reach this one, if its interfaces show any.
    pub fn reachable_address(&self) -> Option<Ipv4Addr> {
        let interfaces = self.interfaces.as_ref().ok()?;
        interfaces.iter().map(|at| at.address).find(|address| !address.is_loopback())
    }

    /// Returns the number below `numbers` that an origin gives, and words for the place where the
    /// number was found. In a fleet, the coordinator tells two machines with one number apart.
    ///
    /// # Errors
    /// The origin gives no number, one that is too large, or one that another machine of the subnet
    /// may have, too.
    pub(super) fn number(
        &self,
        from: &WorkerIdFrom,
        numbers: u64,
        in_fleet: bool,
    ) -> Result<(u64, String), NoNumber> {
        let (number, place) = match from {
            WorkerIdFrom::Given | WorkerIdFrom::Coordinator(_) => (0, String::new()),
            WorkerIdFrom::HostName => {
                let number = number_of_host_name(&self.host_name);
                let name = || excerpt(&self.host_name);
                let number = number.map_err(|fault| NoNumber::HostName { name: name(), fault })?;
                let place = format!("host name {:?}", self.host_name);
                let has_others = !in_fleet && has_other_digits(&self.host_name);
                (number, if has_others { format!("{place}, {OTHERS_DO_NOT_COUNT}") } else { place })
            }
            WorkerIdFrom::Ipv4(of) => {
                let (address, prefix, place) = self.address(of)?;
                // `settle` has refused any `numbers` that is not a power of two.
                let bits = numbers.trailing_zeros().min(32);
                let place = format!("the low {bits} bits of {address}, {place}");
                match prefix {
                    Some(prefix) if 32 - prefix > bits && !in_fleet => {
                        return Err(NoNumber::WideSubnet { address, prefix, bits, place });
                    }
                    // An interface does not tell whether other machines are in other subnets.
                    _ if bits < 32 && !in_fleet && !matches!(of, Ipv4Of::Subnet(..)) => (
                        low_bits(address, bits),
                        format!(
                            "{place}: no other machine's address may end in the same {bits} bits; name the subnet that has \
                             all machines, as in \"ipv4:10.1.2.0/24\", and it is checked"
                        ),
                    ),
                    _ => (low_bits(address, bits), place),
                }
            }
            WorkerIdFrom::File(path) => (number_in_file(path)?, format!("file {}", path.display())),
        };
        if number >= numbers {
            return Err(NoNumber::TooLarge { number, place, most: numbers - 1 });
        }
        Ok((number, place))
    }

    /// Returns the address that gives the number, and the place where it was found. If the length
    /// of its subnet's prefix is known, returns that, too.
    fn address(&self, of: &Ipv4Of) -> Result<(Ipv4Addr, Option<u32>, String), NoNumber> {
        let named_prefix = match of {
            Ipv4Of::Subnet(_, prefix) => Some(*prefix),
            Ipv4Of::Machine | Ipv4Of::Interface(_) => None,
        };
        if let Some(text) = &self.given_ipv4 {
            return match text.parse() {
                Ok(address) if is_a_machines(address) && of.spans(address) => {
                    Ok((address, named_prefix, IPV4_VARIABLE.into()))
                }
                _ => {
                    let origin = WorkerIdFrom::Ipv4(of.clone());
                    Err(NoNumber::WrongVariable { found: excerpt(text), origin })
                }
            };
        }
        let all = self.interfaces.as_ref().map_err(|error| NoNumber::NotListed(*error))?;
        let mut others: Vec<_> = all.iter().filter(|at| is_a_machines(at.address)).collect();
        let fit: Vec<_> = others.extract_if(.., |at| of.has(&at.name, at.address)).collect();
        let is_one = fit.iter().all(|at| at.address == fit[0].address);
        match &fit[..] {
            // An interface of a bridge or a tunnel may give the same address a longer prefix.
            [at, ..] if is_one => {
                let widest = fit.iter().map(|at| at.prefix).min();
                let subnet = widest.filter(|prefix| *prefix <= SUBNET_PREFIX_MAX);
                Ok((at.address, named_prefix.or(subnet), format!("interface {}", at.name)))
            }
            [] => Err(NoNumber::NoAddress { others: in_words(&others) }),
            several => Err(NoNumber::SeveralAddresses { found: in_words(several) }),
        }
    }
}

/// Returns an interface with its IPv4 address, if it has one.
fn with_ipv4(interface: if_addrs::Interface) -> Option<Interface> {
    let if_addrs::IfAddr::V4(found) = interface.addr else { return None };
    let prefix = found.netmask.to_bits().leading_ones();
    Some(Interface { name: interface.name, address: found.ip, prefix })
}

/// Returns false for an address that does not belong to one machine.
fn is_a_machines(address: Ipv4Addr) -> bool {
    !address.is_loopback() && !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast()
}

fn in_words(found: &[&Interface]) -> String {
    let found: Vec<_> = found.iter().map(|at| format!("{} ({})", at.address, at.name)).collect();
    if found.is_empty() { "none".into() } else { found.join(", ") }
}

/// The longest prefix of an interface that tells which addresses other machines have. Clouds and
/// networks of containers give each machine a link of its own, with a longer one.
const SUBNET_PREFIX_MAX: u32 = 29;

/// The characters that Kubernetes uses in random suffixes.
const POD_SUFFIX: &str = "bcdfghjklmnpqrstvwxz2456789";
/// The length of the random suffix of a pod of a Deployment, a DaemonSet or a Job.
const POD_SUFFIX_LENGTH: usize = 5;
/// A part with this many hexadecimal digits and nothing else is random: a container's or a
/// machine's ID, or a hash.
const HEX_LENGTH_MIN: usize = 8;
/// The most digits of the number. Longer ones are random, or a date, or an address without its
/// dots.
const NUMBER_DIGITS_MAX: usize = 5;
/// The most digits behind a word before the number, as in `eu1` or `pg15`. More belong to a hash, a
/// date or an address.
const DIGITS_OF_WORD_MAX: usize = 2;

/// The origins to choose in place of a host name without an ordinal.
const OTHER_ORIGINS: &str = "or set worker_id_from = \"given\" and give the number in SNOWBANK_WORKER_IDS (in Kubernetes from \
     the pod's label apps.kubernetes.io/pod-index, or cut from the pod's name), or worker_id_from = \"coordinator\" or \
     \"file:PATH\"";

/// Returns the ordinal at the end of a host name's first label. It is a number behind the last
/// hyphen or, in a label without hyphens, behind one word. Each part before is a word, which at
/// most two digits may follow. The second label, if there is one, is not a number, as in an
/// address.
///
/// # Errors
/// There is no ordinal, or a part is random or belongs to an address, so that two machines could
/// have it.
fn number_of_host_name(name: &str) -> Result<u64, HostNameFault> {
    let mut labels = name.split('.');
    let label = labels.next().unwrap_or_default();
    let mut parts = label.split('-').rev();
    let last = parts.next().unwrap_or_default();
    let Some((word, digits)) = word_and_digits(last).filter(|(_, digits)| !digits.is_empty()) else {
        return Err(HostNameFault::NoNumber);
    };
    let mut before = parts.clone().peekable();
    let is_one_word = before.peek().is_none();
    let is_pods = last.len() == POD_SUFFIX_LENGTH && last.chars().all(|letter| POD_SUFFIX.contains(letter));
    if is_hex(label) || (is_pods && !is_one_word) {
        return Err(HostNameFault::RandomEnd);
    }
    if !is_one_word && !word.is_empty() {
        return Err(HostNameFault::LettersAndDigits);
    }
    // The part before the number, or the one word, has letters.
    let explains = before.next().unwrap_or(word);
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if is_number(explains) || labels.next().is_some_and(|next| !next.is_empty() && is_number(next)) {
        return Err(HostNameFault::NoWord);
    }
    let is_plain = |part: &str| {
        !is_hex(part) && word_and_digits(part).is_some_and(|(_, digits)| digits.len() <= DIGITS_OF_WORD_MAX)
    };
    if let Some(part) = parts.find(|part| !is_plain(part)) {
        return Err(HostNameFault::RandomPart(excerpt(part)));
    }
    if digits.len() > NUMBER_DIGITS_MAX {
        return Err(HostNameFault::LongNumber(excerpt(digits)));
    }
    Ok(digits.parse().expect("so few digits are a number"))
}

/// What is said of a host name with several numbers.
const OTHERS_DO_NOT_COUNT: &str =
    "whose other numbers do not count: no other machine's name may have the same number at its place";

/// Returns whether a host name has digits besides those of the ordinal, so that others may differ in these
/// alone.
fn has_other_digits(name: &str) -> bool {
    let (label, domain) = name.split_once('.').unwrap_or((name, ""));
    let before = label.trim_end_matches(|digit: char| digit.is_ascii_digit());
    [before, domain].iter().any(|part| part.bytes().any(|byte| byte.is_ascii_digit()))
}

/// Returns true for a hash or an ID in hexadecimal digits.
fn is_hex(part: &str) -> bool {
    part.len() >= HEX_LENGTH_MIN && part.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the letters of a part, and the digits behind them. Returns `None` for any other part.
fn word_and_digits(part: &str) -> Option<(&str, &str)> {
    let (word, digits) = part.split_at(part.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(part.len()));
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some((word, digits))
}

/// Returns the number in a file that has nothing else except white space.
///
/// # Errors
/// The file is missing or empty, which may change without the operator. Or it cannot be read, or
/// its text is not one number.
fn number_in_file(path: &Path) -> Result<u64, NoNumber> {
    let bytes = read_bounded(path).map_err(|error| NoNumber::UnreadableFile {
        path: path.to_owned(),
        reason: error.to_string(),
        is_missing: error.kind() == io::ErrorKind::NotFound,
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    if text.is_empty() {
        return Err(NoNumber::EmptyFile(path.to_owned()));
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| NoNumber::NotANumber(path.to_owned()))
}

#[cfg(test)]
mod tests;
