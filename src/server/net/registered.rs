//! A listener on a reactor: waits for connections, also while the system has no descriptor left.

use std::io;
use std::time::Duration;

use socket2::{Domain, Socket};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::Instant;

use super::listen::{Listener, SocketFile};
use super::listen_error::ListenError;
use crate::config::Address;
use crate::server::health::rate_limited_log::RateLimited;
use crate::server::shared::start_error::StartError;

/// The pause of the acceptor when the system has no descriptor or memory left. It is so long that
/// the acceptor does not spin, and so short that no client's attempt to connect times out.
const OUT_OF_RESOURCES_PAUSE: Duration = Duration::from_millis(100);

/// A listener that is registered with the main thread's reactor.
pub(crate) struct Registered {
    acceptor: Acceptor,
    pub(crate) address: Address,
    _file: Option<SocketFile>,
    failures: RateLimited,
}

impl Registered {
    /// Registers a listener with the current reactor.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn new(listener: Listener) -> Result<Registered, StartError> {
        let Listener { socket, address, _file } = listener;
        let acceptor = match Acceptor::register(socket) {
            Ok(acceptor) => acceptor,
            Err(error) => return Err(ListenError::NotRegistered { address, error }.into()),
        };
        Ok(Registered { acceptor, address, _file, failures: RateLimited::default() })
    }

    /// Returns the non-blocking socket of the next connection. If the system has no descriptor or
    /// memory left, logs that, and tries again after a pause.
    pub(crate) async fn accept(&mut self) -> Socket {
        loop {
            match self.acceptor.accept().await {
                Ok(accepted) => return accepted,
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    if let Some(count) = self.failures.count(Instant::now()) {
                        let address = &self.address;
                        tracing::warn!(%address, %error, count, "cannot accept connections; trying again until it works");
                    }
                    tokio::time::sleep(OUT_OF_RESOURCES_PAUSE).await;
                }
            }
        }
    }
}

/// A TCP or Unix listener.
enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    fn register(socket: Socket) -> io::Result<Acceptor> {
        if socket.domain()? == Domain::UNIX {
            UnixListener::from_std(socket.into()).map(Acceptor::Unix)
        } else {
            TcpListener::from_std(socket.into()).map(Acceptor::Tcp)
        }
    }

    /// Returns the socket of the next connection. The socket is not registered with this thread's
    /// reactor, because a shard registers it with the shard's reactor.
    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Acceptor::Tcp(listener) => Ok(listener.accept().await?.0.into_std()?.into()),
            Acceptor::Unix(listener) => Ok(listener.accept().await?.0.into_std()?.into()),
        }
    }
}

/// Returns true if the peer gave up before its connection was accepted, or a signal interrupted the
/// call.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
