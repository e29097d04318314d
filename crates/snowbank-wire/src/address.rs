//! Addresses on which a daemon listens, and to which a client connects.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use crate::hide_password;

/// The longest path of a Unix socket, in bytes. Linux's `sun_path` holds 108 bytes, and the last of
/// them is a zero.
pub const UNIX_PATH_BYTES_MAX: usize = 107;

/// An address. Its text is, for example, `127.0.0.1:7660`, `[::1]:7660`, `host.name:7660`,
/// `tls:host.name:7661` or `unix:/path`.
///
/// This module resolves no host names. The code that opens the socket resolves them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP port.
    Tcp {
        /// An IPv4 address, an IPv6 address without brackets (a `%zone` may follow), or a host
        /// name.
        host: String,
        /// The port. 0 lets the system choose a free one.
        port: u16,
    },
    /// A TCP port with TLS.
    Tls {
        /// The host, as for [`Tcp`](Address::Tcp). A client compares it with the server's
        /// certificate.
        host: String,
        /// The port, as for [`Tcp`](Address::Tcp).
        port: u16,
    },
    /// A Unix stream socket.
    Unix(PathBuf),
}

impl Address {
    /// Parses the address of an admin listener. A port alone means that port of 127.0.0.1.
    ///
    /// # Errors
    /// Returns an error if the text is neither a port nor an address.
    pub fn from_admin(text: &str) -> Result<Self, AddressError> {
        let is_port = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_port { format!("127.0.0.1:{text}").parse() } else { text.parse() }
    }

    /// Returns whether only this machine can reach the address. This is so for a loopback IP,
    /// `localhost` and a Unix socket.
    ///
    /// Every other host name counts as reachable from outside, because it can resolve to another
    /// address later.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp { host, .. } | Address::Tls { host, .. } => match self.ip() {
                Some(ip) => ip.to_canonical().is_loopback(),
                None => host.eq_ignore_ascii_case("localhost"),
            },
        }
    }

    /// Returns the IP address, unless the host is a name or has a zone.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Address::Unix(_) => None,
            Address::Tcp { host, .. } | Address::Tls { host, .. } => host.parse().ok(),
        }
    }

    /// Returns the IP address and the port, unless the host is a name or has a zone.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        match self {
            Address::Unix(_) => None,
            Address::Tcp { port, .. } | Address::Tls { port, .. } => {
                self.ip().map(|ip| SocketAddr::new(ip, *port))
            }
        }
    }

    /// Returns whether connections to the address use TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, Address::Tls { .. })
    }

    /// Returns whether the system chooses the port.
    pub fn has_any_port(&self) -> bool {
        matches!(self, Address::Tcp { port: 0, .. } | Address::Tls { port: 0, .. })
    }

    /// Parses an address to connect to. Port 0 is not allowed, because no daemon listens on port 0.
    ///
    /// # Errors
    /// Returns an error if the text is not an address, or if its port is 0.
    pub fn parse_remote(text: &str) -> Result<Self, AddressError> {
        let address: Address = text.parse()?;
        if address.has_any_port() {
            let reason = Fault::PortZero.to_string();
            return Err(AddressError { text: text.to_owned(), reason });
        }
        Ok(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host, port } | Address::Tls { host, port } => {
                let scheme = if self.is_tls() { "tls:" } else { "" };
                if host.contains(':') {
                    write!(f, "{scheme}[{host}]:{port}")
                } else {
                    write!(f, "{scheme}{host}:{port}")
                }
            }
        }
    }
}

/// The reason why a text is not an [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{:?} is not an address: {reason}", hide_password(text))]
pub struct AddressError {
    text: String,
    reason: String,
}

impl AddressError {
    /// Returns what is wrong, and often what to write instead.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// What is wrong with a text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("unix: wants the path of a socket, as in unix:/run/snowbank/snowbank.sock")]
    NoPath,
    #[error(
        "an abstract socket has no permissions; write the path of a file, as in unix:/run/snowbank/snowbank.sock"
    )]
    Abstract,
    #[error("the path of a socket holds no control characters")]
    PathHasControl,
    #[error("the path of a socket has at most {UNIX_PATH_BYTES_MAX} bytes, and this one has {0}")]
    PathTooLong(usize),
    #[error(
        "a Unix socket takes no TLS: nothing leaves the machine, and the file's permissions say who may connect"
    )]
    UnixWithTls,
    #[error("after tls:, {0}")]
    AfterTls(Box<Fault>),
    #[error("the path of a Unix socket is written unix:{}", hide_password(.0).escape_debug())]
    BarePath(String),
    #[error("leave out the scheme; write host:port or tls:host:port")]
    Scheme,
    #[error("the bracket is never closed; write [::1]:PORT")]
    OpenBracket,
    #[error("{0:?} in brackets is not an IPv6 address")]
    NoIpv6(String),
    #[error("an IPv6 address stands in brackets before its port, as in [::1]:PORT")]
    BareIpv6,
    #[error("{0} is not an IPv4 address")]
    NoIpv4(String),
    #[error("it is empty; write HOST:PORT")]
    Empty,
    #[error("the port is missing; write {0}:PORT")]
    NoPort(String),
    #[error("the host is missing; write 127.0.0.1:{0}")]
    PortAlone(String),
    #[error("the port {0:?} is not a number from 0 to 65535")]
    NoNumber(String),
    #[error("the port {0} is above 65535")]
    HighPort(String),
    #[error("nobody listens on port 0; give the daemon's port")]
    PortZero,
    #[error("the host is missing; 127.0.0.1:{0} is this machine alone, [::]:{0} every interface")]
    NoHost(u16),
    #[error("{0:?} cannot be part of a host name")]
    HostCharacter(char),
    #[error("it has a comma; several addresses are a list, each in quotes")]
    Comma,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let parsed = if let Some(path) = text.strip_prefix("unix:") {
            parse_unix(path)
        } else if let Some(rest) = text.strip_prefix("tls:") {
            parse_tls(rest)
        } else {
            parse_tcp(text).map(|(host, port)| Address::Tcp { host, port })
        };
        parsed.map_err(|fault| AddressError { text: text.to_owned(), reason: fault.to_string() })
    }
}

fn parse_unix(path: &str) -> Result<Address, Fault> {
    if path.is_empty() || path.ends_with('/') {
        return Err(Fault::NoPath);
    }
    if path.starts_with('@') {
        return Err(Fault::Abstract);
    }
    if path.contains(char::is_control) {
        return Err(Fault::PathHasControl);
    }
    if path.len() > UNIX_PATH_BYTES_MAX {
        return Err(Fault::PathTooLong(path.len()));
    }
    Ok(Address::Unix(PathBuf::from(path)))
}

fn parse_tls(rest: &str) -> Result<Address, Fault> {
    if rest.starts_with("//") {
        return Err(Fault::Scheme);
    }
    if rest.starts_with("unix:") || rest.starts_with('/') {
        return Err(Fault::UnixWithTls);
    }
    let (host, port) = parse_tcp(rest).map_err(|fault| Fault::AfterTls(Box::new(fault)))?;
    Ok(Address::Tls { host, port })
}

/// Parses a host and its port.
fn parse_tcp(text: &str) -> Result<(String, u16), Fault> {
    if text.starts_with('/') {
        return Err(Fault::BarePath(text.to_owned()));
    }
    if text.contains("://") {
        return Err(Fault::Scheme);
    }
    if text.contains(',') {
        return Err(Fault::Comma);
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => split_bracketed(rest)?,
        None => split_plain(text)?,
    };
    Ok((host.to_owned(), port))
}

/// Splits an IPv6 address from its port. `rest` is the text after the opening bracket.
fn split_bracketed(rest: &str) -> Result<(&str, u16), Fault> {
    let (host, after) = rest.split_once(']').ok_or(Fault::OpenBracket)?;
    if !is_ipv6(host) {
        return Err(Fault::NoIpv6(host.to_owned()));
    }
    let port = after.strip_prefix(':').ok_or_else(|| Fault::NoPort(format!("[{host}]")))?;
    Ok((host, parse_port(port)?))
}

/// Splits an IPv4 address or a host name from its port.
fn split_plain(text: &str) -> Result<(&str, u16), Fault> {
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(match text {
            _ if text.trim().is_empty() => Fault::Empty,
            _ if text.bytes().all(|byte| byte.is_ascii_digit()) => Fault::PortAlone(text.to_owned()),
            _ => Fault::NoPort(text.escape_debug().to_string()),
        });
    };
    if is_ipv6(text) || is_ipv6(host) {
        return Err(Fault::BareIpv6);
    }
    let port = parse_port(port)?;
    check_host(host, port)?;
    Ok((host, port))
}

/// Returns whether this is an IPv6 address, with or without a `%zone`.
fn is_ipv6(host: &str) -> bool {
    let (ip, zone) = host.split_once('%').unwrap_or((host, "zone"));
    ip.parse::<Ipv6Addr>().is_ok() && !zone.is_empty() && zone.chars().all(is_host_char)
}

fn is_host_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._".contains(c)
}

fn parse_port(port: &str) -> Result<u16, Fault> {
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Fault::NoNumber(port.to_owned()));
    }
    port.parse().map_err(|_| Fault::HighPort(port.to_owned()))
}

fn check_host(host: &str, port: u16) -> Result<(), Fault> {
    if host.is_empty() || host == "*" {
        return Err(Fault::NoHost(port));
    }
    if host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return match host.parse::<IpAddr>() {
            Ok(_) => Ok(()),
            Err(_) => Err(Fault::NoIpv4(host.to_owned())),
        };
    }
    match host.chars().find(|&c| !is_host_char(c)) {
        Some(c) => Err(Fault::HostCharacter(c)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Address {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn refusal(text: &str) -> String {
        text.parse::<Address>().expect_err(text).to_string()
    }

    #[test]
    fn every_form_prints_as_it_was_written() {
        for text in [
            "127.0.0.1:7660",
            "[::1]:7660",
            "[fe80::1%eth0]:7660",
            "host.name:0",
            "unix:/run/snowbank/snowbank.sock",
            "unix:./@x",
            "tls:[::1]:7661",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
        assert_eq!(parse("[::1]:7"), Address::Tcp { host: "::1".into(), port: 7 });
    }

    #[test]
    fn only_loopback_and_unix_sockets_are_local() {
        for text in
            ["127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "LocalHost:1", "unix:/s", "tls:127.0.0.1:1"]
        {
            assert!(parse(text).is_local(), "{text}");
        }
        for text in
            ["0.0.0.0:1", "[::]:1", "localhost.example.com:1", "[fe80::1%lo]:1", "[::ffff:10.0.0.1]:1"]
        {
            assert!(!parse(text).is_local(), "{text}");
        }
    }

    #[test]
    fn refusals_repeat_the_text_and_say_what_is_wrong() {
        for (text, right) in [
            ("", "write HOST:PORT"),
            (" ", "it is empty"),
            ("127.0.0.1:1,127.0.0.1:2", "several addresses are a list"),
            ("[::1]:1,host:2", "several addresses are a list"),
            ("7660", "write 127.0.0.1:7660"),
            (":7660", "127.0.0.1:7660"),
            ("*:7660", "[::]:7660"),
            ("localhost", "write localhost:PORT"),
            ("::1", "as in [::1]:PORT"),
            ("[::1]", "write [::1]:PORT"),
            ("[::1:7660", "never closed"),
            ("[::1]7660", "port is missing"),
            ("[localhost]:1", "not an IPv6 address"),
            ("[::1%]:1", "not an IPv6 address"),
            ("lo%eth0:1", "'%' cannot be part of a host name"),
            ("host:port", "not a number from 0 to 65535"),
            ("host:65536", "above 65535"),
            ("256.0.0.1:1", "not an IPv4 address"),
            ("tcp://host:1", "leave out the scheme"),
            ("tls://host:1", "leave out the scheme"),
            ("/run/s.sock", "written unix:/run/s.sock"),
            ("tls:", "after tls:, it is empty"),
            ("tls::::1", "in brackets"),
            ("tls:unix:/run/s.sock", "takes no TLS"),
            ("unix:", "wants the path"),
            ("unix:/a\0b", "control characters"),
            ("unix:@x", "an abstract socket has no permissions"),
        ] {
            let refusal = refusal(text);
            assert!(refusal.contains(right), "{refusal}");
            assert!(refusal.starts_with(&format!("{text:?}")), "{refusal}");
            assert_eq!(refusal.lines().count(), 1, "{refusal}");
        }
        let refused = Address::parse_remote("tls:host:0").expect_err("port 0").to_string();
        assert!(refused.contains("nobody listens on port 0"), "{refused}");
        assert!(refusal(&format!("unix:/{}", "s".repeat(107))).contains("at most 107"));
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_or_a_refusal_of_one_line(
            text in prop_oneof!["(unix:|tls:)?[\\[\\]a-z0-9.:%/_-]{0,24}(:[0-9]{1,5})?", "[/\\[]?(?s:.{0,40})"],
        ) {
            match text.parse::<Address>() {
                Ok(address) => prop_assert_eq!(address.to_string().parse(), Ok(address)),
                Err(refusal) => prop_assert_eq!(refusal.to_string().lines().count(), 1),
            }
        }
    }
}
