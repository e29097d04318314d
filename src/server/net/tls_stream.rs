//! A TLS connection as a shard uses it: what differs from a socket, and must not be noticed.
//!
//! - What was decrypted and not read makes no socket readable: whoever had no room for it reads again.
//! - What was taken to be written may still be here, encrypted: [`TlsStream::has_unsent`].
//! - An end is said in TLS as well, or the peer takes it for an attack.

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;

use crate::tls::ServerStream;

/// A connection whose handshake is over.
#[derive(Debug)]
pub(crate) struct TlsStream(ServerStream<Counted>);

impl TlsStream {
    pub(crate) fn new(stream: ServerStream<Counted>) -> Self {
        TlsStream(stream)
    }

    /// Reads all records that are there, as far as the buffer has room. What has no room is there at the next read,
    /// whether the socket is readable or not.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.0.get_ref().1.wants_write()
    }

    /// As [`SocketStream::poll_send`](super::socket_stream::SocketStream::poll_send). What the peer takes is what its socket takes: a slow
    /// reader may for long make room for a part of what is encrypted already, and for none of `bytes`.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let before = self.0.get_ref().0.sent_bytes;
        let polled = if bytes.is_empty() {
            Pin::new(&mut self.0).poll_flush(cx).map_ok(|()| 0)
        } else {
            self.poll_write(cx, bytes)
        };
        match polled {
            Poll::Pending if self.0.get_ref().0.sent_bytes > before => Poll::Ready(Ok(0)),
            polled => polled,
        }
    }

    pub(crate) fn peer_addr(&self) -> io::Result<std::net::SocketAddr> {
        self.0.get_ref().0.socket.peer_addr()
    }

    /// Waits until the socket beneath is ready for any of `interest`.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        self.0.get_ref().0.socket.ready(interest).await
    }

    pub(crate) fn poll_half_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Drop for TlsStream {
    /// Says the end, if the socket has room for it: however a connection ended here, the peer can tell that it was meant.
    fn drop(&mut self) {
        let (counted, session) = self.0.get_mut();
        session.send_close_notify();
        // If it does not fit there is nobody who reads.
        let _ = session.write_tls(&mut Room(&counted.socket));
    }
}

/// A socket that knows how much it has taken.
#[derive(Debug)]
pub(crate) struct Counted {
    socket: TcpStream,
    sent_bytes: u64,
}

impl Counted {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Counted { socket, sent_bytes: 0 }
    }

    pub(crate) fn into_socket(self) -> TcpStream {
        self.socket
    }

    fn count(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.sent_bytes += bytes as u64;
        }
        written
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, parts);
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// Writes what the socket has room for at once.
struct Room<'a>(&'a TcpStream);

impl Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
