//! The TLS handshake. It runs in the connection's own task, so a slow handshake delays no other connection.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rejections;
use super::socket_stream::SocketStream;
use super::tls_stream::{Counted, TlsStream};
use crate::tls::{Acceptor, Closed};

/// The time for which the socket is read after a failed handshake. Unread bytes would cause a reset, which could overtake the
/// alert.
const LINGER: Duration = Duration::from_secs(1);

/// A handshake that failed, with the socket if it is still open.
pub(crate) struct FailedHandshake(Option<TcpStream>);

impl FailedHandshake {
    /// Closes the socket once the peer has had the time to read the alert.
    pub(crate) async fn close(self) {
        if let Some(socket) = self.0 {
            linger(socket).await;
        }
    }
}

/// Shakes hands within the handshake timeout, and logs a failure.
pub(crate) async fn shake(socket: TcpStream, acceptor: &Acceptor) -> Result<SocketStream, FailedHandshake> {
    let peer = socket.peer_addr();
    match acceptor.accept(Counted::new(socket)).await {
        Ok(stream) => Ok(SocketStream::Tls(Box::new(TlsStream::new(stream)))),
        Err((closed, socket)) => {
            if closed != Closed::Left
                && let Ok(peer) = peer
            {
                rejections::log(peer, &format!("no TLS: {closed}"));
            }
            Err(FailedHandshake(socket.map(Counted::into_socket)))
        }
    }
}

async fn linger(mut socket: TcpStream) {
    let mut discarded = [0; 1_024];
    let until_end = async {
        socket.shutdown().await?;
        while socket.read(&mut discarded).await? > 0 {}
        std::io::Result::Ok(())
    };
    // The connection is over, whatever the result.
    let _ = tokio::time::timeout(LINGER, until_end).await;
}
