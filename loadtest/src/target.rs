//! Connections to a target, and its INFO.

mod access;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use snowbank_client::Endpoint;
use snowbank_client::protocol::collect::{InfoCollector, Progress};
use snowbank_client::protocol::reply::{self, ErrorReply, Reply};
use snowbank_client::protocol::{ErrorCode, Info, Parsed, request};

pub use access::{Access, NoToken, Token};

/// How long a connection may take, and the answer to INFO after it.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    /// TCP, without delay.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

/// Why there is no target to load.
#[derive(Debug, thiserror::Error)]
pub enum NoTarget {
    /// Nothing listens there.
    #[error("cannot connect to {address}: {reason}")]
    Unreachable {
        /// Where.
        address: String,
        /// Why.
        reason: io::Error,
    },
    /// It ended the connection before it answered INFO.
    #[error(
        "{address} closed the connection without answering INFO: another protocol, or a connection limit"
    )]
    Closed {
        /// Where.
        address: String,
    },
    /// It did not answer INFO.
    #[error("{address} did not answer INFO within {GREETING_TIMEOUT:?}: another protocol, or it hangs")]
    Silent {
        /// Where.
        address: String,
    },
    /// It answered something else.
    #[error("{address} does not speak snowbank's protocol, version 1: {reason}")]
    OtherProtocol {
        /// Where.
        address: String,
        /// What was wrong.
        reason: String,
    },
    /// It answers, but not as Redis does.
    #[error("{address} does not speak RESP, the protocol of Redis")]
    NoRedis {
        /// Where.
        address: String,
    },
    /// It wants a token, and has seen none or a wrong one.
    #[error("{address} refused: {message}; {advice}")]
    Unauthorized {
        /// Where.
        address: String,
        /// The target's words.
        message: String,
        /// What to do.
        advice: &'static str,
    },
    /// It refused.
    #[error("{address} refused: {name}: {message}")]
    Refused {
        /// Where.
        address: String,
        /// The error code's name, or the command refused.
        name: String,
        /// The target's words.
        message: String,
    },
}

impl Stream {
    /// Connects, blocking; a name's addresses are tried in turn, each for `timeout`.
    ///
    /// # Errors
    /// The last address's.
    pub fn connect(endpoint: &Endpoint, timeout: Duration) -> io::Result<Self> {
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
                // A port of the ephemeral range on which nobody listens may be given to the connecting side itself.
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
    pub fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    /// Whether both ends are on one machine, and so under one clock.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(stream) => match (stream.local_addr(), stream.peer_addr()) {
                (Ok(local), Ok(peer)) => local.ip() == peer.ip() || peer.ip().to_canonical().is_loopback(),
                _ => false,
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

/// Asks a target what it is. The connection is given up afterwards; also tells whether it was on this machine.
///
/// # Errors
/// [`NoTarget`] if there is none that speaks the protocol.
pub fn greet(access: &Access) -> Result<(Info, bool), NoTarget> {
    let address = access.endpoint.to_string();
    let mut stream = Stream::connect(&access.endpoint, GREETING_TIMEOUT)
        .map_err(|reason| NoTarget::Unreachable { address: address.clone(), reason })?;
    let deadline = Instant::now() + GREETING_TIMEOUT;
    let mut bytes = Vec::new();
    if let Some(token) = &access.token {
        token.encode(&mut bytes);
    }
    request::encode_info(&mut bytes, 0);
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => NoTarget::Silent { address: address.clone() },
        _ => NoTarget::Closed { address: address.clone() },
    };
    stream.set_timeout(GREETING_TIMEOUT).and_then(|()| stream.write_all(&bytes)).map_err(failed)?;
    let info = read_info(&mut stream, access, deadline, failed)?;
    Ok((info, stream.is_local()))
}

fn read_info(
    stream: &mut Stream,
    access: &Access,
    deadline: Instant,
    failed: impl Fn(io::Error) -> NoTarget,
) -> Result<Info, NoTarget> {
    let address = access.endpoint.to_string();
    let other = |reason: String| NoTarget::OtherProtocol { address: address.clone(), reason };
    let mut greeting = Greeting {
        address: &address,
        has_token: access.token.is_some(),
        awaits_ok: access.token.is_some(),
        collector: InfoCollector::default(),
    };
    let mut input = Vec::new();
    let mut chunk = [0; 4_096];
    loop {
        while let Some((progress, consumed)) = greeting.next_part(&input)? {
            input.drain(..consumed);
            if progress == Progress::Done {
                return greeting.collector.finish().map_err(|bad| other(bad.to_string()));
            }
        }
        // One byte now and then must not hold us for ever.
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(failed(ErrorKind::TimedOut.into()));
        }
        stream.set_timeout(left).map_err(&failed)?;
        match stream.read(&mut chunk) {
            Ok(0) if input.is_empty() => return Err(NoTarget::Closed { address }),
            Ok(0) => return Err(other("it closed the connection within a frame".to_owned())),
            Ok(size) => input.extend_from_slice(&chunk[..size]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// What has come of the answers to AUTH, where a token was shown, and INFO.
struct Greeting<'a> {
    address: &'a str,
    has_token: bool,
    awaits_ok: bool,
    collector: InfoCollector,
}

impl Greeting<'_> {
    /// Takes the next frame, if it is all there.
    fn next_part(&mut self, input: &[u8]) -> Result<Option<(Progress, usize)>, NoTarget> {
        let address = self.address;
        let other = |reason: String| NoTarget::OtherProtocol { address: address.to_owned(), reason };
        match reply::parse(input) {
            Parsed::Incomplete => Ok(None),
            Parsed::BadLength(length) => Err(other(format!("a frame of {length} bytes came"))),
            Parsed::Frame { content: Err(fault), .. } => Err(other(fault.to_string())),
            Parsed::Frame { content: Ok(Reply::Error(error)), .. } => Err(self.refused(&error)),
            Parsed::Frame { content: Ok(Reply::Ok), consumed, .. } if self.awaits_ok => {
                self.awaits_ok = false;
                Ok(Some((Progress::More, consumed)))
            }
            Parsed::Frame { .. } if self.awaits_ok => {
                Err(other("something else than an answer to AUTH came".to_owned()))
            }
            Parsed::Frame { content: Ok(frame), consumed, .. } => {
                let progress = self.collector.add(&frame).map_err(|bad| other(bad.to_string()))?;
                Ok(Some((progress, consumed)))
            }
        }
    }

    fn refused(&self, error: &ErrorReply<'_>) -> NoTarget {
        let address = self.address.to_owned();
        let message = String::from_utf8_lossy(error.message).into_owned();
        if error.code != ErrorCode::Unauthorized.to_u16() {
            return NoTarget::Refused { address, name: code_name(error.code), message };
        }
        let advice = if self.has_token {
            "name the file of another token"
        } else {
            "give its token with --token-file"
        };
        NoTarget::Unauthorized { address, message, advice }
    }
}

/// Asks a Redis one thing, in its inline form, and gives its answer's first line.
///
/// # Errors
/// [`NoTarget`] if there is none that answers with `expected` at the line's begin.
pub fn ask_resp(endpoint: &Endpoint, command: &str, expected: &str) -> Result<(), NoTarget> {
    let address = endpoint.to_string();
    let mut stream = Stream::connect(endpoint, GREETING_TIMEOUT)
        .map_err(|reason| NoTarget::Unreachable { address: address.clone(), reason })?;
    let mut answer = [0; 512];
    let asked = stream.set_timeout(GREETING_TIMEOUT).and_then(|()| {
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        stream.read(&mut answer)
    });
    let size = asked.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => NoTarget::Silent { address: address.clone() },
        _ => NoTarget::Closed { address: address.clone() },
    })?;
    let line = String::from_utf8_lossy(&answer[..size]);
    let line = line.lines().next().unwrap_or_default();
    match line.strip_prefix('-') {
        _ if line.starts_with(expected) => Ok(()),
        Some(refusal) => {
            Err(NoTarget::Refused { address, name: command.to_owned(), message: refusal.to_owned() })
        }
        None => Err(NoTarget::NoRedis { address }),
    }
}

/// The number under which refusals by a Redis are counted; the protocol's own begin at 1.
pub const RESP_ERROR: u16 = 0;

/// The name of an error code, or its number where version 1 has none.
#[must_use]
pub fn code_name(code: u16) -> String {
    if code == RESP_ERROR {
        return "error".to_owned();
    }
    ErrorCode::from_u16(code).map_or_else(|| format!("code {code}"), |code| code.name().to_owned())
}
