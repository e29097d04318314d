//! TCP, Unix and TLS connections behind one face.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::{Domain, Socket};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::tls_stream::TlsStream;

/// An accepted connection on its shard's reactor.
#[derive(Debug)]
pub(crate) enum SocketStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// Boxed, so that connections without TLS are no larger for it.
    Tls(Box<TlsStream>),
}

const _: () = assert!(size_of::<SocketStream>() <= size_of::<TcpStream>() + size_of::<usize>());

impl SocketStream {
    /// Registers a non-blocking socket with the reactor of the thread that calls.
    pub(crate) fn register(socket: Socket) -> io::Result<SocketStream> {
        if socket.domain()? == Domain::UNIX {
            UnixStream::from_std(socket.into()).map(SocketStream::Unix)
        } else {
            TcpStream::from_std(socket.into()).map(SocketStream::Tcp)
        }
    }

    /// Reads what is there. A read that does not fill the buffer has drained the socket, and tokio then knows that the
    /// next one would block: a turn costs one `recv`.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            SocketStream::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            SocketStream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            SocketStream::Tls(stream) => stream.poll_read(cx, buffer),
        }
    }

    /// Writes as much as is taken. Of a TLS connection that may be more than has left: see
    /// [`has_unsent`](Self::has_unsent).
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            SocketStream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            SocketStream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            SocketStream::Tls(stream) => stream.poll_write(cx, bytes),
        }
    }

    /// Waits until the peer has reset the connection, or its machine says that it is gone. One that has only sent its last
    /// byte may still read.
    pub(crate) async fn reset(&self) -> io::Error {
        let ready = match self {
            SocketStream::Tcp(stream) => stream.ready(Interest::ERROR).await,
            SocketStream::Unix(stream) => stream.ready(Interest::ERROR).await,
            SocketStream::Tls(stream) => stream.ready(Interest::ERROR).await,
        };
        ready.err().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    /// Whether what was taken to be written has not all left, so that [`poll_send`](Self::poll_send) has something to do.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            SocketStream::Tcp(_) | SocketStream::Unix(_) => false,
            SocketStream::Tls(stream) => stream.has_unsent(),
        }
    }

    /// One step of writing `bytes` and what was taken before: ready as soon as the peer has made room for some of it, with
    /// how many of `bytes` were taken.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            SocketStream::Tls(stream) => stream.poll_send(cx, bytes),
            SocketStream::Tcp(_) | SocketStream::Unix(_) => {
                self.poll_write(cx, bytes).map(|written| match written {
                    Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                    written => written,
                })
            }
        }
    }

    /// Who is at the other end, for people.
    #[cold]
    pub(crate) fn peer(&self) -> String {
        let address = match self {
            SocketStream::Tcp(stream) => stream.peer_addr(),
            SocketStream::Tls(stream) => stream.peer_addr(),
            SocketStream::Unix(stream) => return credentials_of(stream),
        };
        address.map_or_else(|_| String::from("unknown"), |address| address.to_string())
    }

    /// Says that nothing more will be written; reading goes on.
    pub(crate) fn poll_half_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            SocketStream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            SocketStream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            SocketStream::Tls(stream) => stream.poll_half_close(cx),
        }
    }
}

/// A process on this machine, by its number and user.
fn credentials_of(stream: &UnixStream) -> String {
    match stream.peer_cred() {
        Ok(peer) => format!("process {} of user {}", peer.pid().unwrap_or_default(), peer.uid()),
        Err(_) => String::from("unknown"),
    }
}

impl AsyncRead for SocketStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        SocketStream::poll_read(self.get_mut(), cx, buffer)
    }
}

impl AsyncWrite for SocketStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        SocketStream::poll_write(self.get_mut(), cx, bytes)
    }

    /// Sockets keep nothing back; TLS does.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.has_unsent() {
            ready!(self.poll_send(cx, &[]))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_half_close(cx)
    }
}
