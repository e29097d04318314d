//! The start of a TLS connection, as part of the connection's own task: a slow handshake keeps nobody else waiting.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rejections;
use super::socket_stream::SocketStream;
use super::tls_stream::{Counted, TlsStream};
use crate::tls::{Acceptor, Closed};

/// How long a peer whose handshake failed is read on, so that the alert arrives before the reset that unread bytes would
/// cause.
const LINGER: Duration = Duration::from_secs(1);

/// A handshake that came to nothing.
pub(crate) struct Failed(Option<TcpStream>);

impl Failed {
    /// Stays until the peer has had the time to read why.
    pub(crate) async fn see_out(self) {
        if let Some(socket) = self.0 {
            linger(socket).await;
        }
    }
}

/// Shakes hands, within the handshake timeout. A failure has been said.
pub(crate) async fn shake(socket: TcpStream, acceptor: &Acceptor) -> Result<SocketStream, Failed> {
    let peer = socket.peer_addr();
    match acceptor.accept(Counted::new(socket)).await {
        Ok(stream) => Ok(SocketStream::Tls(Box::new(TlsStream::new(stream)))),
        Err((closed, socket)) => {
            if closed != Closed::Left
                && let Ok(peer) = peer
            {
                rejections::log(peer, &format!("no TLS: {closed}"));
            }
            Err(Failed(socket.map(Counted::into_socket)))
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
    // However it ends, the connection has.
    let _ = tokio::time::timeout(LINGER, until_end).await;
}
