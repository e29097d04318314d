//! The acceptor accepts connections. It hands each to the shard that has the fewest connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use socket2::Socket;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::config::Protocol;
use crate::server::common::Common;
use crate::server::health::findings::more_connections;
use crate::server::health::rate_limited_log::RateLimited;
use crate::server::net::pending::{self, Occupancy, Pending, PendingLimits, Room};
use crate::server::net::registered::Registered;
use crate::tls;

/// The capacity of a shard's inbox. While the inbox is full, the acceptor waits, and new
/// connections stay in the kernel's backlog.
pub(crate) const INBOX_SOCKETS: usize = 256;

/// The most connections beyond `max_connections` that may be open while evicted connections are
/// being closed. The daemon's limit of open files has room for these connections.
const LEAVING_MAX: usize = 16;

/// A shard's inbox, as the acceptor sees it.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    pub(crate) sockets: mpsc::Sender<Admitted>,
    /// The number of connections that were handed to the shard and are not closed yet.
    pub(crate) connections: Arc<AtomicUsize>,
}

/// The properties of a listener that decide how its connections are served.
#[derive(Clone, Debug)]
pub(crate) struct ListenerInfo {
    pub(crate) protocol: Protocol,
    /// The acceptor for TLS handshakes. `None`: the listener does not speak TLS.
    pub(crate) tls: Option<tls::Acceptor>,
}

/// An accepted connection on its way to a shard.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) socket: Socket,
    pub(crate) info: ListenerInfo,
    /// The connection's place among the pending connections. `None`: the connection needs neither a
    /// handshake nor a token.
    pub(crate) pending: Option<Pending>,
    pub(crate) open: OpenConnection,
}

/// Counts a connection as open for its shard and its protocol, until this value is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    counts: [Arc<AtomicUsize>; 2],
}

impl OpenConnection {
    fn enter(counts: [&Arc<AtomicUsize>; 2]) -> Self {
        counts.iter().for_each(|count| _ = count.fetch_add(1, Ordering::Relaxed));
        OpenConnection { counts: counts.map(Arc::clone) }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.counts.iter().for_each(|count| _ = count.fetch_sub(1, Ordering::Relaxed));
    }
}

/// Accepts on one listener until `stop` turns true.
///
/// When this function returns, all accepted connections have been handed to a shard. The kernel
/// refuses later connections. If another process also holds the listening socket, later connections
/// wait in the socket's queue.
pub(crate) async fn accept(
    mut listener: Registered,
    info: ListenerInfo,
    inboxes: Arc<[Inbox]>,
    common: Arc<Common>,
    mut stop: watch::Receiver<bool>,
) {
    let mut turned_away = RateLimited::default();
    loop {
        let socket = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        let max_connections = common.live_config.borrow().limits.max_connections;
        if has_room(&inboxes, &common.pending, max_connections).await {
            let pending = enter_pending(&common, info.tls.is_some(), max_connections).await;
            common.metrics.accepted[info.protocol as usize].add(1);
            hand_over(socket, &info, pending, &inboxes, &common).await;
            continue;
        }
        common.metrics.refused.add(1);
        // A client of a TLS listener gets no reply: it could not read a reply in plain text, and a
        // handshake costs too much.
        if info.tls.is_none() {
            let all = format!(
                "the daemon has all its {max_connections} connections; ask another daemon, or retry later"
            );
            let mut refusal = Vec::new();
            (info.protocol.about().refuse_connection)(&mut refusal, &all);
            turn_away(&socket, &refusal);
        }
        if let Some(count) = turned_away.count(Instant::now()) {
            let wanted = common.live_config.borrow().connections_wanted.unwrap_or(0);
            let advice = more_connections(wanted as u64);
            tracing::warn!(
                address = %listener.address, count, max_connections,
                "connections were turned away, because all are in use: {advice}"
            );
        }
    }
}

/// Returns true if one more connection may be open. If all connections are in use, evicts a pending
/// connection.
async fn has_room(inboxes: &[Inbox], pending: &PendingLimits, max_connections: usize) -> bool {
    loop {
        let changed = pending.changed();
        let open: usize = inboxes.iter().map(|inbox| inbox.connections.load(Ordering::Relaxed)).sum();
        if open < max_connections {
            return true;
        }
        let Occupancy { inside, leaving, .. } = pending.occupancy();
        if open < max_connections + leaving.min(LEAVING_MAX) {
            return true;
        }
        let room = if leaving < LEAVING_MAX { pending.evict(Instant::now()) } else { Room::Full };
        match room {
            Room::Made => return true,
            Room::Full if inside + leaving == 0 => return false,
            // No pending connection can be evicted yet. Either [`LEAVING_MAX`] connections are
            // leaving. Or every pending connection has sent bytes that the daemon has not read yet,
            // or may be about to send some. This changes soon.
            room => pending::wait_for(room, changed).await,
        }
    }
}

/// Gives a connection a place among the pending connections if it needs a handshake or a token.
async fn enter_pending(common: &Common, has_tls: bool, max_connections: usize) -> Option<Pending> {
    let places = pending::places_of(max_connections);
    if has_tls {
        return Some(common.pending.handshakes.enter(places).await);
    }
    let needs_token = common.live_config.borrow().facts.access.tokens.is_some();
    if needs_token { Some(common.pending.tokens.enter(places).await) } else { None }
}

/// Hands a connection to the shard that has the fewest open connections.
async fn hand_over(
    socket: Socket,
    info: &ListenerInfo,
    pending: Option<Pending>,
    inboxes: &[Inbox],
    common: &Common,
) {
    let Some(inbox) = inboxes.iter().min_by_key(|inbox| inbox.connections.load(Ordering::Relaxed)) else {
        return;
    };
    let open_of_protocol = &common.metrics.open_by_protocol[info.protocol as usize];
    let open = OpenConnection::enter([&inbox.connections, open_of_protocol]);
    // Sending fails only if the shard's thread has ended, because the daemon stops.
    let _ = inbox.sockets.send(Admitted { socket, info: info.clone(), pending, open }).await;
}

/// Sends a refusal and closes the connection.
fn turn_away(socket: &Socket, refusal: &[u8]) {
    // The buffer of a new socket has room for one reply. Sending fails if the peer is gone.
    let _ = socket.send(refusal);
    let _ = socket.shutdown(std::net::Shutdown::Write);
    // Closing a socket with unread bytes resets the connection, and the client may lose the reply.
    // So the bytes that have arrived are read.
    let mut unread = [std::mem::MaybeUninit::uninit(); 4_096];
    let _ = socket.recv(&mut unread);
}
