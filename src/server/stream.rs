//! TCP and Unix connections behind one face.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::{Domain, Socket};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// An accepted connection on its shard's reactor.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Registers a non-blocking socket with the reactor of the thread that calls.
    pub(super) fn register(socket: Socket) -> io::Result<Stream> {
        if socket.domain()? == Domain::UNIX {
            UnixStream::from_std(socket.into()).map(Stream::Unix)
        } else {
            TcpStream::from_std(socket.into()).map(Stream::Tcp)
        }
    }

    /// Reads what is there. A read that does not fill the buffer has drained the socket, and tokio then knows that the
    /// next one would block: a turn costs one `recv`.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    /// Waits until the peer has reset the connection, or its machine says that it is gone. One that has only sent its last
    /// byte may still read.
    pub(super) async fn reset(&self) -> io::Error {
        let ready = match self {
            Stream::Tcp(stream) => stream.ready(Interest::ERROR).await,
            Stream::Unix(stream) => stream.ready(Interest::ERROR).await,
        };
        ready.err().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    /// Says that nothing more will be written; reading goes on.
    pub(super) fn half_close(&mut self) -> io::Result<()> {
        let socket = match self {
            Stream::Tcp(stream) => socket2::SockRef::from(&*stream),
            Stream::Unix(stream) => socket2::SockRef::from(&*stream),
        };
        socket.shutdown(std::net::Shutdown::Write)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Stream::poll_read(self.get_mut(), cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Stream::poll_write(self.get_mut(), cx, bytes)
    }

    /// Sockets keep nothing back.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.half_close())
    }
}
