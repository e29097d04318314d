//! A TLS connection as a shard uses it. It differs from a plain socket in three ways:
//!
//! - Decrypted bytes that were not read make no socket readable. A reader whose buffer was full must read again.
//! - Bytes that were accepted for writing may still be here, encrypted: [`TlsStream::has_unsent`].
//! - The end must be sent as a TLS alert. Otherwise the peer takes it for a truncation attack.

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

    /// Reads all records that have arrived, as far as the buffer has room. The next read returns the rest, even if the socket
    /// is not readable.
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

    /// Works as `SocketStream::poll_send`. Progress is counted at the socket: a slow reader may take encrypted bytes for a long
    /// time before any of `bytes`.
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
    /// Sends the TLS alert for the end if the socket has room for it. The peer then knows that the end was intended.
    fn drop(&mut self) {
        let (counted, session) = self.0.get_mut();
        session.send_close_notify();
        // If it does not fit, the peer does not read.
        let _ = session.write_tls(&mut Room(&counted.socket));
    }
}

/// A socket that counts the bytes that it has sent.
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

/// A writer that writes as much as the socket takes at once.
struct Room<'a>(&'a TcpStream);

impl Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
