//! The admin listener: accepts connections on the main thread's reactor, away from the shards. [`admin`](crate::admin)
//! serves them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::accept::Registered;
use super::handshake;
use super::socket_stream::SocketStream;
use crate::admin::{Site, Stay, Via};
use crate::config::Address;
use crate::tls;

/// The most admin connections that are open at once. It is meant for a few scrapers, probes and pages. The next connection
/// waits in the kernel's backlog until one of them reaches its deadline.
pub const ADMIN_CONNECTIONS_MAX: usize = 64;

/// The number of admin connections that may stay open between requests. Others are closed soon, so a new scrape or probe
/// never waits long.
const MAY_STAY: usize = ADMIN_CONNECTIONS_MAX / 2;

/// Serves on one listener, over TLS if `tls` is given. Runs until the future is dropped, and its connections with it.
pub(crate) async fn serve(mut listener: Registered, tls: Option<tls::Acceptor>, site: Arc<Site>) {
    let address = &listener.address;
    // Over TLS the browser compares the certificate's name, so no other site's name can lead here.
    let is_loopback = matches!(address, Address::Tcp { .. }) && address.is_local();
    let via = if is_loopback { Via::Loopback } else { Via::Other };
    let places = Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        // Fails when the peer is gone or no descriptor is free.
        if let Ok(stream) = SocketStream::register(listener.accept().await.0) {
            let is_crowded = places.available_permits() < ADMIN_CONNECTIONS_MAX - MAY_STAY;
            let stay = if is_crowded { Stay::Short } else { Stay::Long };
            connections.spawn(serve_one(stream, tls.clone(), Arc::clone(&site), via, stay, place));
        }
    }
}

async fn serve_one(
    stream: SocketStream,
    tls: Option<tls::Acceptor>,
    site: Arc<Site>,
    via: Via,
    stay: Stay,
    _place: OwnedSemaphorePermit,
) {
    let stream = match (stream, tls) {
        (SocketStream::Tcp(socket), Some(acceptor)) => {
            // The handshake has its own deadline, which may be longer than this connection's life.
            match tokio::time::timeout(stay.life(), handshake::shake(socket, &acceptor)).await {
                Ok(Some(stream)) => stream,
                _ => return,
            }
        }
        (stream, _) => stream,
    };
    site.serve(stream, via, stay).await;
}
