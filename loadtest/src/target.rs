//! Connections to a target, and its INFO.

mod access;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use snowbank_client::Endpoint;
use snowbank_client::protocol::collect::{InfoCollector, Progress};
use snowbank_client::protocol::{ErrorCode, Info, request};

use crate::machine::owner::Owner;
use crate::units::printable;
pub(crate) use access::{Access, Conversation, Token};

/// The time limit of a connection, and of the answer to INFO after it.
pub(crate) const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    /// TCP, without delay.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

/// The reason why there is no target to load.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoTarget {
    /// Nothing listens there.
    #[error("cannot connect to {address}: {reason}")]
    Unreachable { address: String, reason: io::Error },
    /// It ended the connection before it answered.
    #[error(
        "{address} closed the connection without an answer: another protocol, a token that it asks for, or a \
         connection limit"
    )]
    Closed { address: String },
    /// It did not answer.
    #[error("{address} did not answer within {GREETING_TIMEOUT:?}: another protocol, or it hangs")]
    Silent { address: String },
    /// It answered something else.
    #[error("{address} does not speak snowbank's protocol, version 1: {reason}")]
    OtherProtocol { address: String, reason: String },
    /// It answers, but not so that it can be loaded.
    #[error("{address}: {reason}")]
    Unusable { address: String, reason: String },
    /// It wants a token, and has seen none or a wrong one.
    #[error("{address} refused: {message}; {advice}")]
    Unauthorized { address: String, message: String, advice: &'static str },
    /// It refused.
    #[error("{address} refused: {name}: {message}")]
    Refused { address: String, name: String, message: String },
}

impl NoTarget {
    fn no_answer(address: &str, error: &io::Error) -> Self {
        let address = address.to_owned();
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Silent { address },
            _ => Self::Closed { address },
        }
    }
}

impl Stream {
    /// Connects and blocks; tries a name's addresses in turn, each for `timeout`.
    ///
    /// # Errors
    /// The last address's.
    pub(crate) fn connect(endpoint: &Endpoint, timeout: Duration) -> io::Result<Self> {
        let (host, port) = match endpoint {
            Endpoint::Unix(path) => return UnixStream::connect(path).map(Self::Unix),
            Endpoint::Tcp { host, port } => (host, *port),
            Endpoint::Tls { .. } => {
                return Err(io::Error::new(ErrorKind::Unsupported, "the load generator speaks no TLS"));
            }
        };
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in (host.as_str(), port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                // A port of the ephemeral range on which nobody listens may be given to the connecting side
                // itself.
                Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                    last = ErrorKind::ConnectionRefused.into();
                }
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Self::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Makes reads and writes return at once.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    /// Finds the process at the other end, if that is on this machine.
    pub(crate) fn owner(&self) -> Owner {
        match self {
            Self::Unix(stream) => {
                let peer = rustix::net::sockopt::socket_peercred(stream);
                Owner::of_listener(
                    peer.ok().and_then(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()).ok()),
                )
            }
            Self::Tcp(stream) => match (stream.local_addr(), stream.peer_addr()) {
                (Ok(ours), Ok(theirs))
                    if ours.ip() == theirs.ip() || theirs.ip().to_canonical().is_loopback() =>
                {
                    Owner::of_tcp(ours, theirs)
                }
                _ => Owner::Remote,
            },
        }
    }

    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Some(timeout.max(Duration::from_millis(1)));
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Asks a target for its INFO on a connection of its own. Returns it with the process that answered.
///
/// # Errors
/// [`NoTarget`] if there is none that speaks the protocol.
pub(crate) fn greet(access: &Access) -> Result<(Info, Owner), NoTarget> {
    let mut conversation = Conversation::begin(access, GREETING_TIMEOUT)?;
    conversation.send(|out| request::encode_info(out, 0))?;
    let mut collector = InfoCollector::default();
    let address = access.endpoint.to_string();
    let other = |reason: String| NoTarget::OtherProtocol { address: address.clone(), reason };
    while conversation.next_reply(|reply| collector.add(&reply).map_err(|bad| other(bad.to_string())))?
        == Progress::More
    {}
    let mut info = collector.finish().map_err(|bad| other(bad.to_string()))?;
    info.version = info.version.map(|version| printable(&version));
    Ok((info, conversation.owner()))
}

/// The number under which refusals without an error code of Snowbank are counted; those begin at 1.
pub(crate) const OTHER_ERROR: u16 = 0;

/// Returns the name of an error code, or its number where version 1 has none.
pub(crate) fn code_name(code: u16) -> String {
    if code == OTHER_ERROR {
        return "error".to_owned();
    }
    ErrorCode::from_u16(code).map_or_else(|| format!("code {code}"), |code| code.name().to_owned())
}
