//! One type for TCP, Unix and TLS connections.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::counted_socket::{CountedSocket, TlsRead};
use super::ends::{Ends, listener_of, network_of};
use super::rejections::Rejections;
use super::tls_stream::TlsStream;
use crate::access::Shown;
use crate::server::health::metrics::CloseReason;
use crate::tls::{Acceptor, Authorities, HandshakeFailure};

/// The time for which a connection is still read while it is being closed. Bytes that are not read
/// would cause a reset, which could overtake the last reply or the TLS alert.
const LINGER: Duration = Duration::from_secs(1);

/// The number of bytes that are read at full speed while a connection is being closed. This is
/// enough for a message that the peer may have sent before it reads the last reply. Further bytes
/// are read slowly, so that a peer gains nothing by flooding such a connection.
const LINGER_BYTES: usize = 64 * 1024;

/// The pause between two reads of further bytes.
const LINGER_PAUSE: Duration = Duration::from_millis(10);

/// An accepted connection on its shard's reactor.
#[derive(Debug)]
pub(crate) enum SocketStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// Boxed, so that connections without TLS need no more memory.
    Tls(Box<TlsStream>),
}

const _: () = assert!(size_of::<SocketStream>() <= size_of::<TcpStream>() + size_of::<usize>());

impl SocketStream {
    /// Registers a non-blocking socket with the reactor of the calling thread.
    pub(crate) fn register(socket: Socket) -> io::Result<SocketStream> {
        if socket.domain()? == Domain::UNIX {
            UnixStream::from_std(socket.into()).map(SocketStream::Unix)
        } else {
            TcpStream::from_std(socket.into()).map(SocketStream::Tcp)
        }
    }

    /// Returns true if bytes may have arrived. Otherwise wakes the task once bytes arrive. Makes no
    /// system call.
    pub(crate) fn is_readable(&self, cx: &mut Context<'_>) -> bool {
        match self {
            SocketStream::Tcp(stream) => stream.poll_read_ready(cx).is_ready(),
            SocketStream::Unix(stream) => stream.poll_read_ready(cx).is_ready(),
            SocketStream::Tls(stream) => stream.is_readable(cx),
        }
    }

    /// Waits until the connection is reset, by the peer or because the peer's machine is
    /// unreachable. If the peer only closes its sending half, the wait continues, because the peer
    /// may still read.
    pub(crate) async fn reset(&self) -> io::Error {
        let ready = match self {
            SocketStream::Unix(stream) => stream.ready(Interest::ERROR).await,
            SocketStream::Tcp(stream) => stream.ready(Interest::ERROR).await,
            SocketStream::Tls(stream) => stream.tcp().ready(Interest::ERROR).await,
        };
        ready.err().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    /// Returns how much TLS has read since the last call. Without TLS, all numbers are 0.
    pub(crate) fn take_tls_read(&mut self) -> TlsRead {
        if let SocketStream::Tls(stream) = self { stream.socket().count.take() } else { TlsRead::default() }
    }

    /// Returns true while TLS keeps bytes that it has accepted but not sent.
    /// [`poll_send`](Self::poll_send) sends these bytes.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(self, SocketStream::Tls(stream) if stream.has_unsent())
    }

    /// Writes the bytes that TLS keeps, and then `bytes`. Is ready as soon as the socket has taken
    /// some bytes. Returns how many of `bytes` were accepted.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            SocketStream::Tls(stream) => stream.poll_send(cx, bytes),
            SocketStream::Tcp(_) | SocketStream::Unix(_) => {
                Pin::new(self).poll_write(cx, bytes).map(|written| match written {
                    Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                    written => written,
                })
            }
        }
    }

    /// Makes the kernel drop unsent bytes when the connection closes. Otherwise the kernel would
    /// keep these bytes for minutes, and a peer that reads nothing could fill memory by connecting
    /// again and again.
    pub(crate) fn drop_unsent_at_close(&self) {
        if let Some(tcp) = self.tcp() {
            // If setting this fails, the kernel frees the memory later.
            let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
        }
    }

    /// Returns the certificates that the client has shown. `None` without TLS.
    pub(crate) fn shown(&self) -> Option<Shown<'_>> {
        if let SocketStream::Tls(stream) = self { Some(stream.shown()) } else { None }
    }

    /// Returns whether this is a TCP connection without TLS to a loopback address of this machine,
    /// whatever addresses its listener has. A web page can lead a browser here by a DNS name of its
    /// own (DNS rebinding). Over TLS, the browser checks the name.
    pub(crate) fn is_at_loopback(&self) -> bool {
        let SocketStream::Tcp(stream) = self else { return false };
        stream.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback())
    }

    /// Returns a name for the peer, for log lines.
    #[cold]
    pub(crate) fn peer(&self) -> String {
        if let SocketStream::Unix(stream) = self
            && let Ok(peer) = stream.peer_cred()
        {
            return format!("process {} of user {}", peer.pid().unwrap_or_default(), peer.uid());
        }
        self.address().map_or_else(|| String::from("unknown"), |address| address.to_string())
    }

    /// Returns a name that all connections of one peer share. For IPv4, the name is the address.
    /// For IPv6, it is the network, because a peer can use all addresses of its network. For Unix
    /// sockets, it is the user.
    #[cold]
    pub(crate) fn origin(&self) -> String {
        if let SocketStream::Unix(stream) = self
            && let Ok(peer) = stream.peer_cred()
        {
            return format!("user-{}", peer.uid());
        }
        self.address().map_or_else(|| String::from("unknown"), |address| network_of(address.ip()))
    }

    /// Returns the TCP connection, with or without TLS above it. `None` for a Unix socket.
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            SocketStream::Tcp(stream) => Some(stream),
            SocketStream::Tls(stream) => Some(stream.tcp()),
            SocketStream::Unix(_) => None,
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        self.tcp()?.peer_addr().ok()
    }

    /// Returns both ends of the connection, for log lines.
    #[cold]
    pub(crate) fn ends(&self) -> Ends {
        let listener = match self {
            SocketStream::Tcp(stream) => listener_of(stream, ""),
            SocketStream::Tls(stream) => listener_of(stream.tcp(), "tls:"),
            SocketStream::Unix(stream) => {
                let address = stream.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                path.map_or_else(|| String::from("unknown"), |path| format!("unix:{}", path.display()))
            }
        };
        Ends { peer: self.peer(), origin: self.origin(), listener }
    }

    /// Closes the sending half, calls `half_closed`, and then reads for a moment, so that the last
    /// bytes that were sent reach the peer.
    pub(crate) async fn linger(&mut self, half_closed: impl FnOnce()) {
        let Ok(Ok(())) = timeout(LINGER, self.shutdown()).await else { return };
        half_closed();
        let mut discarded = [0; 1_024];
        let mut bytes = 0;
        let discard = async {
            while let Ok(size @ 1..) = self.discard(&mut discarded).await {
                bytes += size;
                // A peer that keeps sending must not delay other connections.
                if bytes < LINGER_BYTES { yield_now().await } else { sleep(LINGER_PAUSE).await }
            }
        };
        // The connection is over, whether this succeeds or not.
        let _ = timeout(LINGER, discard).await;
    }

    /// Reads bytes that nobody needs. Bytes that arrive over TLS are not decrypted.
    async fn discard(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            SocketStream::Tls(stream) => stream.socket().tcp.read(buffer).await,
            SocketStream::Tcp(_) | SocketStream::Unix(_) => self.read(buffer).await,
        }
    }
}

/// Shakes hands within the time that the acceptor allows. If the handshake fails, logs the reason,
/// and waits a moment so that the peer can read the alert.
///
/// # Errors
/// Returns the reason why the handshake failed.
pub(crate) async fn shake(
    socket: TcpStream,
    acceptor: &Acceptor,
    rejections: &Rejections,
) -> Result<SocketStream, HandshakeFailure> {
    let ends = Ends::of_handshake(&socket);
    // The digest of the authorities is read before the handshake. If a reload changes the
    // authorities during the handshake, the session checks the certificate again.
    let checked_by = acceptor.identity().authorities.as_ref().map_or(0, Authorities::digest);
    match acceptor.accept(CountedSocket::new(socket)).await {
        Ok(stream) => Ok(SocketStream::Tls(Box::new(TlsStream::new(stream, checked_by)))),
        Err((failure, socket)) => {
            if failure != HandshakeFailure::Left {
                rejections.close(CloseReason::Unauthorized, &ends, &format!("no TLS: {failure}"));
            }
            if let Some(socket) = socket {
                SocketStream::Tcp(socket.tcp).linger(|| ()).await;
            }
            Err(failure)
        }
    }
}

impl AsyncRead for SocketStream {
    /// Reads the bytes that have arrived. A read that does not fill the buffer has emptied the
    /// socket. Tokio then knows that the next read would block, so a turn costs only one `recv`.
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SocketStream::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            SocketStream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            SocketStream::Tls(stream) => stream.poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for SocketStream {
    /// Writes as many bytes as the stream takes. TLS may keep some of them: see
    /// [`has_unsent`](SocketStream::has_unsent).
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            SocketStream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            SocketStream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            SocketStream::Tls(stream) => Pin::new(&mut stream.inner).poll_write(cx, bytes),
        }
    }

    /// Sends the bytes that TLS keeps. Sockets without TLS keep no bytes.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.has_unsent() {
            ready!(self.poll_send(cx, &[]))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Closes the sending half. The connection can still be read.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SocketStream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            SocketStream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            SocketStream::Tls(stream) => Pin::new(&mut stream.inner).poll_shutdown(cx),
        }
    }
}
