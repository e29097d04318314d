//! Pending connections: connections whose peers have not proved yet that they are clients. Such a
//! connection is in its TLS handshake, or owes a token. Connections of the admin listener stay
//! pending until they end.
//!
//! The number of pending connections is limited. At the limit, a newcomer evicts the connection
//! that has been silent for longest. A connection is silent while the daemon waits for bytes from
//! its peer. It is not silent while its bytes wait for the daemon. A connection that has just
//! fallen silent is not evicted either, because its peer may be about to send. If no connection can
//! be evicted, newcomers wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, timeout_at};

/// The time within which a client must send its token. Sending the token takes a round trip. The
/// time is long enough for a few lost packets. PING does not extend the time.
pub(crate) const AUTHORIZED_WITHIN: Duration = Duration::from_secs(5);

/// The time that a connection must have been silent before it can be evicted. A client sends its
/// first bytes right after it has connected, unless its machine is busy. Even with only
/// [`PLACES_MIN`] places, 3,200 newcomers get a place in each second.
const SILENT_FOR: Duration = Duration::from_millis(20);

/// The number of places of a limit is `max_connections` divided by this.
const PLACES_SHARE: usize = 8;
/// The least number of places of a limit, unless `max_connections` is lower. A client keeps its
/// place for a round trip, so other clients that connect meanwhile need places too.
const PLACES_MIN: usize = 64;

/// Returns how many of `max_connections` may be pending under one limit.
pub(crate) fn places_of(max_connections: usize) -> usize {
    (max_connections / PLACES_SHARE).max(PLACES_MIN).min(max_connections)
}

/// A limit of pending connections, and the connections under it.
#[derive(Debug, Default)]
pub(crate) struct PendingLimit {
    connections: Mutex<Connections>,
    /// Signalled when a pending connection falls silent or leaves.
    changed: Arc<Notify>,
    /// True if the connections owe a token. The silence of such a connection counts from the first
    /// moment at which it was silent. So a peer that sends something other than a token does not
    /// stay longer. In a handshake, the silence begins again after each message.
    is_for_tokens: bool,
}

#[derive(Debug, Default)]
struct Connections {
    /// The silent connections, in the order in which their silences began.
    silent: BTreeMap<u64, Silent>,
    /// The number that the next silence gets in that order.
    next: u64,
    occupancy: Occupancy,
}

/// A silent connection.
#[derive(Debug)]
struct Silent {
    since: Instant,
    /// Signalled when the connection is evicted.
    end: Arc<Notify>,
}

/// Says whether there is room for a newcomer. The variants are ordered: the sooner there is room,
/// the smaller the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    /// There is a place for the newcomer.
    Made,
    /// The pending connection that has been silent for longest may be evicted from this instant on.
    At(Instant),
    /// No pending connection is silent, so none can be evicted.
    Full,
}

impl Connections {
    /// Evicts the connection that has been silent for longest, if its silence has lasted for
    /// [`SILENT_FOR`].
    fn evict(&mut self, now: Instant) -> Room {
        let Some(first) = self.silent.first_entry() else { return Room::Full };
        let at = first.get().since + SILENT_FOR;
        if now < at {
            return Room::At(at);
        }
        first.remove().end.notify_one();
        self.occupancy.inside -= 1;
        self.occupancy.leaving += 1;
        self.occupancy.evicted += 1;
        Room::Made
    }
}

/// Completes when there may be room for a newcomer.
pub(crate) async fn wait_for(room: Room, changed: Notified<'_>) {
    match room {
        Room::Made => {}
        Room::At(at) => {
            let _ = timeout_at(at, changed).await;
        }
        Room::Full => changed.await,
    }
}

/// The numbers of pending connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occupancy {
    /// The pending connections that have a place.
    pub(crate) inside: usize,
    /// The connections that were evicted and are not closed yet.
    pub(crate) leaving: usize,
    /// The connections that were evicted since the daemon's start.
    pub(crate) evicted: u64,
}

impl PendingLimit {
    /// Gives a newcomer a place. If all `places` are taken, evicts the connection that has been
    /// silent for longest. If no connection has been silent for [`SILENT_FOR`], waits until a
    /// connection has been silent for so long, or leaves. The newcomer is not silent at first.
    pub(crate) async fn enter(self: &Arc<Self>, places: usize) -> Pending {
        loop {
            let changed = self.changed.notified();
            match self.try_enter(places, Instant::now()) {
                Ok(pending) => return pending,
                Err(room) => wait_for(room, changed).await,
            }
        }
    }

    /// Gives a newcomer a place if a place is free, or if a connection can be evicted now.
    fn try_enter(self: &Arc<Self>, places: usize, now: Instant) -> Result<Pending, Room> {
        let mut connections = self.lock();
        let is_full = connections.occupancy.inside >= places;
        let room = if is_full { connections.evict(now) } else { Room::Made };
        if room != Room::Made {
            return Err(room);
        }
        connections.occupancy.inside += 1;
        Ok(Pending { limit: Arc::clone(self), end: Arc::default(), stage: Stage::Heard, silence: None })
    }

    pub(crate) fn occupancy(&self) -> Occupancy {
        self.lock().occupancy
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The limits of pending connections for the clients' listeners.
#[derive(Debug)]
pub(crate) struct PendingLimits {
    /// Connections that shake hands over TLS.
    pub(crate) handshakes: Arc<PendingLimit>,
    /// Connections that owe a token.
    pub(crate) tokens: Arc<PendingLimit>,
}

impl Default for PendingLimits {
    fn default() -> Self {
        let changed: Arc<Notify> = Arc::default();
        let handshakes = PendingLimit { changed: Arc::clone(&changed), ..PendingLimit::default() };
        let tokens = PendingLimit { changed, is_for_tokens: true, ..PendingLimit::default() };
        PendingLimits { handshakes: handshakes.into(), tokens: tokens.into() }
    }
}

impl PendingLimits {
    /// Returns a future that completes when a pending connection of either limit falls silent or
    /// leaves after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.tokens.changed.notified()
    }

    /// Evicts a silent connection, because all connections of the daemon are in use. Connections
    /// that owe a token are evicted before connections in a handshake.
    pub(crate) fn evict(&self, now: Instant) -> Room {
        let room = self.tokens.lock().evict(now);
        if room == Room::Made { room } else { room.min(self.handshakes.lock().evict(now)) }
    }

    /// Returns the sums of the numbers of both limits.
    pub(crate) fn occupancy(&self) -> Occupancy {
        let one = self.tokens.occupancy();
        let other = self.handshakes.occupancy();
        Occupancy {
            inside: one.inside + other.inside,
            leaving: one.leaving + other.leaving,
            evicted: one.evicted + other.evicted,
        }
    }
}

/// The state of a pending connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Bytes of the connection wait for the daemon, or the connection is new.
    Heard,
    /// The daemon waits for bytes. The value is the connection's number in the order of silence.
    Silent(u64),
    /// The connection was evicted.
    Leaving,
}

/// A pending connection. Its place is free again when this value is dropped.
#[derive(Debug)]
pub(crate) struct Pending {
    limit: Arc<PendingLimit>,
    /// Signalled when the connection is evicted.
    end: Arc<Notify>,
    stage: Stage,
    /// The connection's last silence: its number in the order of silence, and its start.
    silence: Option<(u64, Instant)>,
}

impl Pending {
    /// Records that the peer has sent bytes.
    pub(crate) fn record_heard(&mut self) {
        if let Stage::Silent(number) = self.stage {
            let is_inside = self.limit.lock().silent.remove(&number).is_some();
            self.stage = if is_inside { Stage::Heard } else { Stage::Leaving };
        }
    }

    /// Records that the daemon waits for bytes from the peer.
    pub(crate) fn record_silent(&mut self) {
        if self.stage == Stage::Heard {
            let mut connections = self.limit.lock();
            let earlier = self.silence.filter(|_| self.limit.is_for_tokens);
            let (number, since) = earlier.unwrap_or((connections.next, Instant::now()));
            connections.next = connections.next.max(number + 1);
            connections.silent.insert(number, Silent { since, end: Arc::clone(&self.end) });
            drop(connections);
            self.silence = Some((number, since));
            self.stage = Stage::Silent(number);
            self.limit.changed.notify_waiters();
        }
    }

    /// Returns a future that completes when the connection is evicted.
    pub(crate) fn evicted(&self) -> impl Future<Output = ()> + use<> {
        let end = Arc::clone(&self.end);
        async move { end.notified().await }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // This sets `Stage::Leaving` if the connection was evicted.
        self.record_heard();
        let mut connections = self.limit.lock();
        match self.stage {
            Stage::Leaving => connections.occupancy.leaving -= 1,
            Stage::Heard | Stage::Silent(_) => connections.occupancy.inside -= 1,
        }
        drop(connections);
        self.limit.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn enter(limit: &Arc<PendingLimit>, places: usize, now: Instant) -> Pending {
        limit.try_enter(places, now).expect("a place")
    }

    fn must_go(pending: &Pending) -> bool {
        pin!(pending.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn an_eighth_of_the_connections_may_be_pending_and_64_at_least() {
        assert_eq!([4, 64, 100, 512, 10_000].map(places_of), [4, 64, 64, 64, 1_250]);
    }

    #[test]
    fn the_connection_silent_for_longest_is_evicted() {
        let limit = Arc::new(PendingLimit::default());
        let start = Instant::now();
        let mut connections: Vec<Pending> = (0..3).map(|_| enter(&limit, 3, start)).collect();
        for index in [1, 0, 2] {
            connections[index].record_silent();
        }
        // The daemon hears from this connection again, so its silence becomes the shortest.
        connections[1].record_heard();
        connections[1].record_silent();
        let later = Instant::now() + SILENT_FOR;
        let newcomer = enter(&limit, 3, later);
        assert_eq!(connections.iter().map(must_go).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(limit.occupancy(), Occupancy { inside: 3, leaving: 1, evicted: 1 });
        // This connection was evicted. Bytes that arrive now do not give it its place back.
        connections[0].record_heard();
        connections[0].record_silent();
        assert!(!must_go(&enter(&limit, 3, later)));
        drop((connections, newcomer));
        assert_eq!(limit.occupancy(), Occupancy { inside: 0, leaving: 0, evicted: 2 });
    }

    #[test]
    fn sending_without_a_token_does_not_end_the_silence() {
        let limit = Arc::clone(&PendingLimits::default().tokens);
        let start = Instant::now();
        let mut connections: Vec<Pending> = (0..2).map(|_| enter(&limit, 2, start)).collect();
        connections.iter_mut().for_each(Pending::record_silent);
        connections[0].record_heard();
        connections[0].record_silent();
        let later = Instant::now() + SILENT_FOR;
        let _newcomer = enter(&limit, 2, later);
        assert_eq!(connections.iter().map(must_go).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_connection_that_waits_for_the_daemon_is_not_evicted() {
        let limit = Arc::new(PendingLimit::default());
        let start = Instant::now();
        let mut connections: Vec<Pending> = (0..2).map(|_| enter(&limit, 2, start)).collect();
        let later = start + 100 * SILENT_FOR;
        assert_eq!(limit.try_enter(2, later).expect_err("both connections wait for the daemon"), Room::Full);
        connections[0].record_silent();
        let Err(Room::At(at)) = limit.try_enter(2, start) else { panic!("the peer may be about to send") };
        assert!(at >= start + SILENT_FOR);
        assert!(limit.try_enter(2, at).is_ok() && must_go(&connections[0]) && !must_go(&connections[1]));
    }

    #[test]
    fn a_silent_handshake_is_evicted_if_all_connections_are_in_use() {
        let pending = PendingLimits::default();
        let start = Instant::now();
        assert_eq!(pending.evict(start), Room::Full);
        let mut handshake = enter(&pending.handshakes, 9, start);
        let _token = enter(&pending.tokens, 9, start);
        assert_eq!(pending.evict(start), Room::Full);
        handshake.record_silent();
        assert!(matches!(pending.evict(start), Room::At(_)));
        assert_eq!(pending.evict(Instant::now() + SILENT_FOR), Room::Made);
        assert!(must_go(&handshake));
    }
}
