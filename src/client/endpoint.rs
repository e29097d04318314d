//! Where a daemon listens, and a connected pair of streams to it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Where a daemon listens: `host:port`, `[IPv6]:port` or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A host name or address, resolved each time a connection is made.
    Tcp {
        /// The name or address, IPv6 without brackets.
        host: String,
        /// The port, not 0.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Text that names no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not an address: use host:port, [IPv6]:port or unix:PATH")]
pub struct BadEndpoint {
    found: String,
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        parse(text).ok_or_else(|| BadEndpoint { found: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Endpoint> {
    if let Some(path) = text.strip_prefix("unix:") {
        return (!path.is_empty()).then(|| Endpoint::Unix(path.into()));
    }
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // A colon without brackets would make the port a guess.
    let sound = match bare {
        Some(address) => address.contains(':'),
        None => !host.is_empty() && !host.contains([':', '[', ']', '/', ' ']),
    };
    sound.then(|| Endpoint::Tcp { host: bare.unwrap_or(host).to_owned(), port })
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(formatter, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(formatter, "{host}:{port}"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// Both directions of a connection, whatever carries it.
pub(super) struct Streams {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Endpoint {
    /// Resolves and connects, trying each address of the name; no longer than `limit` over all.
    pub(super) async fn connect(&self, limit: Duration) -> io::Result<Streams> {
        timeout(limit, self.connect_patiently(limit)).await.unwrap_or_else(|_| Err(timed_out(limit)))
    }

    async fn connect_patiently(&self, limit: Duration) -> io::Result<Streams> {
        match self {
            Self::Tcp { host, port } => {
                let began = Instant::now();
                let addresses: Vec<SocketAddr> =
                    tokio::net::lookup_host((host.as_str(), *port)).await?.collect();
                let (reader, writer) = connect_any(&addresses, began + limit).await?.into_split();
                Ok(Streams { reader: Box::new(reader), writer: Box::new(writer) })
            }
            #[cfg(unix)]
            Self::Unix(path) => {
                let (reader, writer) = tokio::net::UnixStream::connect(path).await?.into_split();
                Ok(Streams { reader: Box::new(reader), writer: Box::new(writer) })
            }
            #[cfg(not(unix))]
            Self::Unix(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "no Unix sockets on this system"))
            }
        }
    }
}

/// Connects to the first address that accepts. Each gets an equal share of the time that is left, so that one that
/// swallows packets does not use up the others' turn.
async fn connect_any(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (index, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Without it the kernel may hold a small request back until an earlier one is acknowledged.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = timed_out(share),
        }
    }
    Err(last)
}

fn timed_out(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("not connected within {limit:?}"))
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    #[test]
    fn addresses_come_back() {
        for text in ["127.0.0.1:7660", "ids-1.example:1", "[::1]:65535", "unix:/run/snowbank.sock", "unix:@x"]
        {
            let endpoint: Endpoint = text.parse().expect(text);
            assert_eq!(endpoint.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_by_name() {
        for text in [
            "",
            ":",
            "host",
            "host:",
            ":7660",
            "host:0",
            "host:65536",
            "::1:7660",
            "[::1]",
            "[a]:1",
            "unix:",
            "a b:1",
        ] {
            let error = text.parse::<Endpoint>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("{text:?} is not an address: use host:port")), "{error}");
        }
    }
}
