//! Connected sockets: TCP, TLS over TCP, and Unix sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use snowbank_tls::{ClientConnection, Connector};
use snowbank_wire::Address as Endpoint;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::machine::owner::Owner;

/// A connected socket, and the TLS session over it if it has one.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) socket: Socket,
    session: Option<Box<ClientConnection>>,
}

impl Stream {
    /// Returns the stream of a socket without TLS.
    pub(crate) fn plain(socket: impl Into<Socket>) -> Self {
        Self { socket: socket.into(), session: None }
    }

    /// Connects, and blocks until the connection is made. If a name has several addresses, this
    /// tries them in turn, each for up to `timeout`. A TLS address needs `connector`.
    ///
    /// # Errors
    /// The error of the name's look-up, of the last address, or of the TLS handshake.
    pub(crate) fn connect(
        endpoint: &Endpoint,
        connector: Option<&Connector>,
        timeout: Duration,
    ) -> io::Result<Self> {
        match (endpoint, connector) {
            (Endpoint::Unix(path), _) => {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                // This also limits the wait for a place in the queue of the listener.
                socket.set_write_timeout(Some(timeout))?;
                match socket.connect(&SockAddr::unix(path)?) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        Err(io::Error::other("its queue of new connections stayed full"))
                    }
                    connected => connected.map(|()| Self::plain(socket)),
                }
            }
            (Endpoint::Tcp { host, port }, _) => connect_tcp(host, *port, timeout).map(Self::plain),
            (Endpoint::Tls { host, port }, Some(connector)) => {
                let stream = Self::plain(connect_tcp(host, *port, timeout)?);
                stream.set_timeout(timeout)?;
                stream.secured(connector.session(host)?)
            }
            (Endpoint::Tls { .. }, None) => unreachable!("a TLS address comes with a connector"),
        }
    }

    /// Makes the TLS handshake. Each of its reads and writes has the socket's time limit.
    fn secured(mut self, mut session: ClientConnection) -> io::Result<Self> {
        // The session's buffer needs no limit, because the number of requests in flight is limited.
        session.set_buffer_limit(None);
        while session.is_handshaking() {
            let moved = session.complete_io(&mut self.socket);
            moved.map_err(|error| snowbank_tls::explain(&error).map_or(error, io::Error::other))?;
        }
        Ok(Self { session: Some(Box::new(session)), ..self })
    }

    /// Returns true if the TLS session has bytes that the socket has not taken yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.wants_write())
    }

    /// Finds the process at the other end, if the process is on this machine.
    pub(crate) fn owner(&self) -> Owner {
        let (Ok(ours), Ok(theirs)) = (self.socket.local_addr(), self.socket.peer_addr()) else {
            return Owner::Remote;
        };
        if ours.is_unix() {
            let peer = rustix::net::sockopt::socket_peercred(&self.socket);
            let process = peer.ok().and_then(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()).ok());
            return Owner::from_listener(process);
        }
        match ours.as_socket().zip(theirs.as_socket()) {
            Some((ours, theirs)) if ours.ip() == theirs.ip() || theirs.ip().to_canonical().is_loopback() => {
                Owner::from_tcp(ours, theirs)
            }
            _ => Owner::Remote,
        }
    }

    pub(crate) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Some(timeout.max(Duration::from_millis(1)));
        self.socket.set_read_timeout(timeout)?;
        self.socket.set_write_timeout(timeout)
    }
}

fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            // The kernel may give a new connection the very port that it connects to. If nothing
            // listens on that port, the connection then reaches itself.
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

/// Reads what was received, and never writes: answers must be read even while the socket takes no
/// bytes to send.
fn read_tls(session: &mut ClientConnection, socket: &mut Socket, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match session.reader().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read,
        }
        session.read_tls(socket)?;
        session.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    }
}

/// Encrypts all bytes, and writes as many as the socket takes. Does not read, because nobody would
/// handle the answers.
fn write_tls(session: &mut ClientConnection, socket: &mut Socket, bytes: &[u8]) -> io::Result<usize> {
    let taken = session.writer().write(bytes)?;
    while session.wants_write() {
        match session.write_tls(socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(taken)
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.socket.read(buffer),
            Some(session) => read_tls(session, &mut self.socket, buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.socket.write(bytes),
            Some(session) => write_tls(session, &mut self.socket, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
