//! A TLS connection as a shard uses it. It differs from a plain socket in three ways:
//!
//! - Decrypted bytes that were not read do not make the socket readable. A reader whose buffer was
//!   full must read again.
//! - Bytes that were accepted for writing may still be here, encrypted: [`TlsStream::has_unsent`].
//! - The end must be sent as a TLS alert. Otherwise the peer takes it for a truncation attack.

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::counted_socket::{CountedSocket, RECORD_OVERHEAD};
use crate::access::Shown;
use crate::tls::ServerStream;

/// A connection whose handshake is over.
#[derive(Debug)]
pub(crate) struct TlsStream {
    pub(super) inner: ServerStream<CountedSocket>,
    /// The digest of the authorities that the client's certificate was checked against.
    checked_by: u64,
}

impl TlsStream {
    pub(crate) fn new(mut inner: ServerStream<CountedSocket>, checked_by: u64) -> Self {
        // The first turn does not pay for the handshake's records.
        inner.get_mut().0.count.take();
        TlsStream { inner, checked_by }
    }

    pub(crate) fn shown(&self) -> Shown<'_> {
        let chain = self.inner.get_ref().1.peer_certificates().unwrap_or_default();
        Shown { chain, checked_by: self.checked_by }
    }

    /// Works as `SocketStream::is_readable`, also for bytes that are already decrypted.
    pub(crate) fn is_readable(&self, cx: &mut Context<'_>) -> bool {
        let (socket, session) = self.inner.get_ref();
        !session.wants_read() || socket.tcp.poll_read_ready(cx).is_ready()
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.inner.get_ref().1.wants_write()
    }

    /// Works as `SocketStream::poll_send`, but sends earlier encrypted bytes first, and returns 0
    /// for them. That is progress too: a slow reader may need a long time to take them.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        while self.has_unsent() {
            let (socket, session) = self.inner.get_mut();
            ready!(socket.tcp.poll_write_ready(cx))?;
            match session.write_tls(&mut SocketWriter(&socket.tcp)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => return Poll::Ready(Ok(0)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if bytes.is_empty() { Poll::Ready(Ok(0)) } else { Pin::new(&mut self.inner).poll_write(cx, bytes) }
    }

    /// Works as `SocketStream::poll_read`. It reads at most `buffer`'s room plus overhead, or the
    /// rest of a record that has begun if that is more. By itself, the library would read until
    /// `buffer` is full, however many records have no byte for the reader (key changes, or empty
    /// records).
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = self.socket();
        // A record can be decrypted only once all of it was read.
        socket.left = (buffer.remaining() + RECORD_OVERHEAD).max(socket.count.rest);
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if polled.is_pending() && self.socket().left == 0 {
            // More bytes may have arrived. Other connections have their turn before these are read.
            cx.waker().wake_by_ref();
        }
        polled
    }

    pub(super) fn socket(&mut self) -> &mut CountedSocket {
        self.inner.get_mut().0
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.inner.get_ref().0.tcp
    }
}

impl Drop for TlsStream {
    /// Sends the TLS alert for the end if the socket has room for it. The peer then knows that the
    /// end was intended.
    fn drop(&mut self) {
        let (socket, session) = self.inner.get_mut();
        session.send_close_notify();
        // If the alert does not fit, the peer reads nothing anyway.
        let _ = session.write_tls(&mut SocketWriter(&socket.tcp));
    }
}

/// Writes as much as the socket takes without waiting.
struct SocketWriter<'a>(&'a TcpStream);

impl Write for SocketWriter<'_> {
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
