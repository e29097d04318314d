//! The TLS handshake. It runs in the connection's own task, so a slow handshake delays no other
//! connection.

use tokio::net::TcpStream;

use super::counted_socket::CountedSocket;
use super::rejections;
use super::socket_stream::{SocketStream, network_of};
use super::tls_stream::TlsStream;
use crate::tls::{Acceptor, Authorities, HandshakeFailure};

/// Shakes hands within the time that the acceptor allows. If that fails, logs the reason and lets
/// the peer read the alert.
///
/// # Errors
/// The reason.
pub(crate) async fn shake(socket: TcpStream, acceptor: &Acceptor) -> Result<SocketStream, HandshakeFailure> {
    let peer = socket.peer_addr();
    // The authorities are read before the handshake. If a reload changes them during the handshake,
    // the session checks the certificate again.
    let checked_by = acceptor.identity().authorities.as_ref().map_or(0, Authorities::digest);
    match acceptor.accept(CountedSocket::new(socket)).await {
        Ok(stream) => Ok(SocketStream::Tls(Box::new(TlsStream::new(stream, checked_by)))),
        Err((failure, socket)) => {
            if failure != HandshakeFailure::Left
                && let Ok(peer) = peer
            {
                rejections::log_unauthorized(peer, &network_of(peer.ip()), &format!("no TLS: {failure}"));
            }
            if let Some(socket) = socket {
                SocketStream::Tcp(socket.tcp).linger(|| ()).await;
            }
            Err(failure)
        }
    }
}
