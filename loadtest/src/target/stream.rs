//! Connected sockets: TCP, TLS over it, and Unix sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use snowbank_client::Endpoint;
use snowbank_client::tls::{self, ClientConnection, Connector, StreamOwned};

use crate::machine::owner::Owner;

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    /// TCP, without delay.
    Tcp(TcpStream),
    /// TLS over TCP, after its handshake.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// A Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Connects and blocks; tries a name's addresses in turn, each for `timeout`. An address of TLS needs a
    /// connector.
    ///
    /// # Errors
    /// The last address's, or that of the handshake.
    pub(crate) fn connect(
        endpoint: &Endpoint,
        connector: Option<&Connector>,
        timeout: Duration,
    ) -> io::Result<Self> {
        match (endpoint, connector) {
            (Endpoint::Unix(path), _) => UnixStream::connect(path).map(Self::Unix),
            (Endpoint::Tcp { host, port }, _) => connect_tcp(host, *port, timeout).map(Self::Tcp),
            (Endpoint::Tls { host, port }, Some(connector)) => {
                let stream = connect_tcp(host, *port, timeout)?;
                shake_hands(connector.session(host)?, stream, timeout)
            }
            (Endpoint::Tls { .. }, None) => unreachable!("addresses of TLS come with a connector"),
        }
    }

    /// Makes reads and writes return at once.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Tls(stream) => stream.sock.set_nonblocking(true),
        }
    }

    /// Returns true if bytes that were written wait in front of the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.conn.wants_write(),
            Self::Tcp(_) | Self::Unix(_) => false,
        }
    }

    /// Finds the process at the other end, if that is on this machine.
    pub(crate) fn owner(&self) -> Owner {
        let stream = match self {
            Self::Unix(stream) => {
                let peer = rustix::net::sockopt::socket_peercred(stream);
                return Owner::of_listener(
                    peer.ok().and_then(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()).ok()),
                );
            }
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        };
        match (stream.local_addr(), stream.peer_addr()) {
            (Ok(ours), Ok(theirs))
                if ours.ip() == theirs.ip() || theirs.ip().to_canonical().is_loopback() =>
            {
                Owner::of_tcp(ours, theirs)
            }
            _ => Owner::Remote,
        }
    }

    pub(super) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = timeout.max(Duration::from_millis(1));
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
            Self::Tcp(stream) => set_timeout_of_tcp(stream, timeout),
            Self::Tls(stream) => set_timeout_of_tcp(&stream.sock, timeout),
        }
    }
}

fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            // A port of the ephemeral range without a listener may be given to the connecting side itself.
            Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                last = ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn set_timeout_of_tcp(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))
}

/// Makes the handshake; each of its reads and writes has the time limit.
fn shake_hands(
    mut session: ClientConnection,
    mut stream: TcpStream,
    timeout: Duration,
) -> io::Result<Stream> {
    set_timeout_of_tcp(&stream, timeout)?;
    // Requests in flight have a limit of their own.
    session.set_buffer_limit(None);
    while session.is_handshaking() {
        let moved = session.complete_io(&mut stream);
        moved.map_err(|error| tls::explain(&error).map_or(error, io::Error::other))?;
    }
    Ok(Stream::Tls(Box::new(StreamOwned::new(session, stream))))
}

/// Reads what was received, without a write: a socket that takes no more must not keep answers unread.
fn read_tls(stream: &mut StreamOwned<ClientConnection, TcpStream>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.conn.reader().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read,
        }
        stream.conn.read_tls(&mut stream.sock)?;
        stream.conn.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    }
}

/// Takes all bytes and writes as many as the socket takes. It does not read, because nobody would handle the
/// answers.
fn write_tls(stream: &mut StreamOwned<ClientConnection, TcpStream>, bytes: &[u8]) -> io::Result<usize> {
    let taken = stream.conn.writer().write(bytes)?;
    while stream.conn.wants_write() {
        match stream.conn.write_tls(&mut stream.sock) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(taken)
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Tls(stream) => read_tls(stream, buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => write_tls(stream, bytes),
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
            Self::Tls(stream) => stream.sock.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}
