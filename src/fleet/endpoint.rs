//! The places of a coordinator's members.

use std::fmt;
use std::str::FromStr;

/// The store that the daemons of a fleet share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorKind {
    /// etcd 3.4 or later.
    Etcd,
    /// ZooKeeper 3.5 or later.
    ZooKeeper,
}

impl CoordinatorKind {
    /// Returns the kind's own port.
    const fn port(self) -> u16 {
        match self {
            CoordinatorKind::Etcd => 2379,
            CoordinatorKind::ZooKeeper => 2181,
        }
    }

    /// Returns the schemes of its endpoints: the plain one, and the one over TLS.
    const fn schemes(self) -> [&'static str; 2] {
        match self {
            CoordinatorKind::Etcd => ["http", "https"],
            CoordinatorKind::ZooKeeper => ["zookeeper", "zookeepers"],
        }
    }

    /// Returns the form of its endpoints, for people.
    pub fn allowed(self) -> String {
        let [plain, tls] = self.schemes();
        format!("\"{plain}://HOST:PORT\" or \"{tls}://HOST:PORT\"")
    }
}

/// The place of one member of a coordinator, as in `http://HOST:PORT`. The scheme names the kind, and TLS or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    kind: CoordinatorKind,
    is_tls: bool,
    host: String,
    port: u16,
}

/// A text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "found {0:?}, allowed: \"http://HOST:PORT\" or \"https://HOST:PORT\" for etcd, \"zookeeper://HOST:PORT\" or \
     \"zookeepers://HOST:PORT\" for ZooKeeper"
)]
pub struct WrongEndpoint(String);

impl FromStr for Endpoint {
    type Err = WrongEndpoint;

    fn from_str(text: &str) -> Result<Self, WrongEndpoint> {
        const KINDS: [CoordinatorKind; 2] = [CoordinatorKind::Etcd, CoordinatorKind::ZooKeeper];
        let wrong = || WrongEndpoint(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let kind = KINDS.into_iter().find(|kind| kind.schemes().contains(&scheme)).ok_or_else(wrong)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (rest, kind.port()),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".:-_%".contains(c);
        if host.is_empty() || !host.chars().all(is_plain) {
            return Err(wrong());
        }
        Ok(Endpoint { kind, is_tls: scheme == kind.schemes()[1], host: host.to_owned(), port })
    }
}

impl Endpoint {
    /// Returns the endpoint of a coordinator on this machine, at its kind's own port.
    pub fn local(kind: CoordinatorKind) -> Self {
        Endpoint { kind, is_tls: false, host: String::from("127.0.0.1"), port: kind.port() }
    }

    /// Returns the coordinator's kind.
    pub fn kind(&self) -> CoordinatorKind {
        self.kind
    }

    /// Returns the host and the port, as in a URL.
    pub(super) fn authority(&self) -> String {
        let Endpoint { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns true if it is reached over TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
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
