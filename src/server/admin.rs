//! The admin listener: accepts on the main thread's reactor, away from the shards, and hands each connection to
//! [`admin`](crate::admin).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::accept::{Acceptor, is_of_the_peer};
use super::listen::Listener;
use super::stream::Stream;
use crate::admin::{Site, Via};
use crate::config::Address;

/// Admin connections open at once. A few scrapers, probes and pages are meant; the next waits in the kernel's backlog until
/// one is closed, which its deadlines see to.
pub const ADMIN_CONNECTIONS_MAX: usize = 64;

/// How long to rest when the system has no descriptor or memory left.
const OUT_OF_RESOURCES_PAUSE: Duration = Duration::from_millis(100);

/// Serves on one listener until the future is dropped, and its connections with it.
pub(super) async fn serve(listener: Listener, site: Arc<Site>) -> io::Result<()> {
    let Listener { socket, address, _file } = listener;
    let is_loopback = matches!(address, Address::Tcp { .. }) && address.is_local();
    let via = if is_loopback { Via::Loopback } else { Via::Other };
    let acceptor = Acceptor::register(socket)?;
    let places = Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut fails = false;
    loop {
        // Never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return Ok(());
        };
        while connections.try_join_next().is_some() {}
        match acceptor.accept().await.and_then(Stream::register) {
            Ok(stream) => {
                fails = false;
                let site = Arc::clone(&site);
                connections.spawn(async move {
                    site.serve(stream, via).await;
                    drop(place);
                });
            }
            Err(error) if is_of_the_peer(&error) => {}
            Err(error) => {
                if !std::mem::replace(&mut fails, true) {
                    tracing::warn!(%address, %error, "cannot accept admin connections; trying again until it works");
                }
                tokio::time::sleep(OUT_OF_RESOURCES_PAUSE).await;
            }
        }
    }
}
