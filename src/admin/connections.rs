//! Accepts connections of the admin listeners on the main thread's reactor, away from the shards.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;

use super::http::{HEAD_WITHIN, Site};
use crate::server::Health;
use crate::server::health::metrics::CloseReason;
use crate::server::net::pending::{Pending, PendingLimit};
use crate::server::net::registered::Registered;
use crate::server::net::rejections::Rejections;
use crate::server::net::socket_stream::{self, SocketStream};
use crate::tls;

/// The most open connections of an admin listener: enough for scrapers, probes and pages. All
/// these connections are pending, so one more connection evicts the connection that has been silent
/// for longest.
pub(crate) const ADMIN_CONNECTIONS_MAX: usize = 128;

/// Serves the connections of one listener, over TLS if `tls` is given, until the future is dropped.
/// The connections end then, too.
pub(crate) async fn serve(mut listener: Registered, tls: Option<tls::Acceptor>, health: Health) {
    let site = Site(health);
    let limit: Arc<PendingLimit> = Arc::default();
    let mut connections = JoinSet::new();
    loop {
        let socket = listener.accept().await;
        let pending = limit.enter(ADMIN_CONNECTIONS_MAX).await;
        while connections.try_join_next().is_some() {}
        // Registering fails only if the system cannot watch one more socket.
        if let Ok(stream) = SocketStream::register(socket) {
            connections.spawn(serve_pending(stream, tls.clone(), site.clone(), pending));
        }
    }
}

/// Serves a connection until it ends or is evicted. The connection counts as silent while its
/// client neither sends nor waits for an answer.
async fn serve_pending(stream: SocketStream, tls: Option<tls::Acceptor>, site: Site, mut pending: Pending) {
    let ends = stream.ends();
    let rejections = &site.0.0.rejections;
    let answers = AtomicBool::new(false);
    let evicted = pending.evicted();
    let mut served = pin!(async {
        if let Some(stream) = encrypted(stream, tls, rejections).await {
            let is_loopback = stream.is_at_loopback();
            if let Some((reason, text)) = site.serve(stream, is_loopback, &answers).await {
                rejections.close(reason, &ends, &text);
            }
        }
    });
    let served = poll_fn(|cx| {
        pending.record_heard();
        let polled = served.as_mut().poll(cx);
        if polled.is_pending() && !answers.load(Ordering::Relaxed) {
            pending.record_silent();
        }
        polled
    });
    tokio::select! {
        biased;
        () = evicted => {
            let text = "it was idle at the admin listener, and a newcomer needed its place";
            rejections.close(CloseReason::Idle, &ends, text);
        }
        () = served => {}
    }
}

/// Shakes hands if the listener speaks TLS. Returns `None` if the handshake fails.
async fn encrypted(
    stream: SocketStream,
    tls: Option<tls::Acceptor>,
    rejections: &Rejections,
) -> Option<SocketStream> {
    match (stream, tls) {
        (SocketStream::Tcp(socket), Some(acceptor)) => {
            tokio::time::timeout(HEAD_WITHIN, socket_stream::shake(socket, &acceptor, rejections))
                .await
                .ok()?
                .ok()
        }
        (stream, _) => Some(stream),
    }
}
