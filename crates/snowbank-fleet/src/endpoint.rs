//! The addresses of a coordinator's members.

use std::fmt;
use std::str::FromStr;

use super::CoordinatorKind;

/// The address of one member of a coordinator, such as `http://HOST:PORT`. The scheme determines
/// the coordinator's kind, and whether TLS is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The coordinator's kind.
    pub kind: CoordinatorKind,
    /// True if connections to the endpoint use TLS.
    pub is_tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
}

/// The error for a text that is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found {:?}, allowed: {forms}", snowbank_wire::hide_password(.0), forms = forms())]
pub struct WrongEndpoint(String);

/// Returns the forms of all kinds' endpoints, for people.
fn forms() -> String {
    CoordinatorKind::ALL.map(|kind| format!("{} for {}", kind.allowed(), kind.name())).join(", ")
}

impl FromStr for Endpoint {
    type Err = WrongEndpoint;

    fn from_str(text: &str) -> Result<Self, WrongEndpoint> {
        Endpoint::parse(text).ok_or_else(|| WrongEndpoint(text.to_owned()))
    }
}

impl Endpoint {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let kind = CoordinatorKind::ALL.into_iter().find(|kind| kind.schemes().contains(&scheme))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (rest, kind.port()),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-_%".contains(&byte));
        let is_tls = scheme == kind.schemes()[1];
        (is_plain && !host.is_empty()).then(|| Endpoint { kind, is_tls, host: host.to_owned(), port })
    }

    /// Returns the endpoint of a coordinator on this machine, at its kind's own port.
    pub fn local(kind: CoordinatorKind) -> Self {
        Endpoint { kind, is_tls: false, host: String::from("127.0.0.1"), port: kind.port() }
    }

    /// Returns the host and the port, as in a URL.
    pub(super) fn authority(&self) -> String {
        let Endpoint { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.kind.schemes()[usize::from(self.is_tls)], self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_of_a_host() {
        for (text, written) in [
            ("http://127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("https://etcd-1.example/", "https://etcd-1.example:2379"),
            ("http://[::1]:79", "http://[::1]:79"),
            ("http://[::1]", "http://[::1]:2379"),
            ("zookeeper://a", "zookeeper://a:2181"),
            ("zookeepers://[::1]:7", "zookeepers://[::1]:7"),
        ] {
            assert_eq!(text.parse::<Endpoint>().map(|endpoint| endpoint.to_string()).as_deref(), Ok(written));
        }
        for wrong in [
            "",
            "127.0.0.1:2379",
            "http://",
            "http://a b",
            "http://a:x",
            "ftp://a",
            "http://a/b",
            "redis://a",
        ] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
