//! A TLS connection as a shard uses it. It differs from a plain socket in three ways:
//!
//! - Decrypted bytes that were not read make no socket readable. A reader whose buffer was full must read again.
//! - Bytes that were accepted for writing may still be here, encrypted: [`TlsStream::has_unsent`].
//! - The end must be sent as a TLS alert. Otherwise the peer takes it for a truncation attack.

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWrite, Interest, Ready};
use tokio::net::TcpStream;

use crate::access::Shown;
use crate::tls::ServerStream;

/// A connection whose handshake is over.
#[derive(Debug)]
pub(crate) struct TlsStream {
    pub(super) inner: ServerStream<TcpStream>,
    /// The digest of the authorities that the client's certificate was checked against.
    checked_by: u64,
}

impl TlsStream {
    pub(crate) fn new(inner: ServerStream<TcpStream>, checked_by: u64) -> Self {
        TlsStream { inner, checked_by }
    }

    /// Returns the certificates that the client has shown.
    pub(crate) fn shown(&self) -> Shown<'_> {
        let chain = self.inner.get_ref().1.peer_certificates().unwrap_or_default();
        Shown { chain, checked_by: self.checked_by }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.inner.get_ref().1.wants_write()
    }

    /// Works as `SocketStream::poll_send`. Sends the encrypted bytes first: a slow reader may take them for a long time before
    /// any of `bytes`, and that is progress as well.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        while self.has_unsent() {
            let (socket, session) = self.inner.get_mut();
            ready!(socket.poll_write_ready(cx))?;
            match session.write_tls(&mut Room(socket)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => return Poll::Ready(Ok(0)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if bytes.is_empty() { Poll::Ready(Ok(0)) } else { Pin::new(&mut self.inner).poll_write(cx, bytes) }
    }

    pub(crate) fn peer_addr(&self) -> io::Result<std::net::SocketAddr> {
        self.inner.get_ref().0.peer_addr()
    }

    /// Waits until the socket beneath is ready for any of `interest`.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        self.inner.get_ref().0.ready(interest).await
    }
}

impl Drop for TlsStream {
    /// Sends the TLS alert for the end if the socket has room for it. The peer then knows that the end was intended.
    fn drop(&mut self) {
        let (socket, session) = self.inner.get_mut();
        session.send_close_notify();
        // If it does not fit, the peer does not read.
        let _ = session.write_tls(&mut Room(socket));
    }
}

/// A writer that writes as much as the socket takes at once.
struct Room<'a>(&'a TcpStream);

impl Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
