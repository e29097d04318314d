//! The lobby: connections that have not proved yet that they are clients. They shake hands over TLS, or owe a token, or
//! owe the head of a request to the operator.
//!
//! A lobby has a limited number of places. When these run out, the guest whose peer has been silent for longest gives way to
//! a newcomer. A guest whose bytes wait for the daemon is not silent: newcomers wait until it is served.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The time within which a client must send its token. That takes a round trip, so five seconds outlast a few lost packets.
/// PING does not extend it.
pub(crate) const AUTHORIZED_WITHIN: Duration = Duration::from_secs(5);

/// The part of all places, as a divisor, that each lobby has.
const PLACES_SHARE: usize = 8;
/// The fewest places of a lobby, if the daemon has as many. Each place is a client that may take a round trip to authorize
/// itself while others come.
const PLACES_MIN: usize = 64;

/// Returns the number of places in a lobby of a daemon that allows this many connections.
pub(crate) fn places_of(max_connections: usize) -> usize {
    (max_connections / PLACES_SHARE).max(PLACES_MIN).min(max_connections)
}

/// Connections that have not proved yet that they are clients.
#[derive(Debug, Default)]
pub(crate) struct Lobby {
    guests: Mutex<Guests>,
    /// Signalled when a guest falls silent or leaves.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Guests {
    /// The guests whose peers are silent, in the order in which they fell silent.
    silent: BTreeMap<u64, Arc<Notify>>,
    /// The next number in that order.
    next: u64,
    /// The guests that have a place.
    inside: usize,
    /// Those that gave way and are not closed yet.
    leaving: usize,
    /// Those that ever gave way.
    gave_way: u64,
}

impl Guests {
    /// Has the guest that has been silent for longest give way. Returns false if none is silent.
    fn show_out(&mut self) -> bool {
        let Some((_, end)) = self.silent.pop_first() else { return false };
        end.notify_one();
        self.inside -= 1;
        self.leaving += 1;
        self.gave_way += 1;
        true
    }
}

/// The figures of a lobby.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occupancy {
    /// The guests that have a place.
    pub(crate) inside: usize,
    /// Those that gave way and are not closed yet.
    pub(crate) leaving: usize,
    /// Those that ever gave way.
    pub(crate) gave_way: u64,
}

impl Lobby {
    /// Takes in a newcomer, which counts as heard. If all `places` are taken, the guest that has been silent for longest gives
    /// way. If none is silent, waits until one is or leaves.
    pub(crate) async fn enter(self: &Arc<Self>, places: usize) -> Guest {
        loop {
            let changed = self.changed.notified();
            {
                let mut guests = self.lock();
                if guests.inside < places || guests.show_out() {
                    guests.inside += 1;
                    break;
                }
            }
            changed.await;
        }
        Guest { lobby: Arc::clone(self), end: Arc::default(), stage: Stage::Heard }
    }

    /// Has the guest that has been silent for longest give way. Returns false if none is silent.
    pub(crate) fn show_out(&self) -> bool {
        self.lock().show_out()
    }

    pub(crate) fn occupancy(&self) -> Occupancy {
        let guests = self.lock();
        Occupancy { inside: guests.inside, leaving: guests.leaving, gave_way: guests.gave_way }
    }

    fn lock(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lobbies of the clients' listeners.
#[derive(Debug)]
pub(crate) struct Lobbies {
    /// Connections that shake hands over TLS.
    pub(crate) handshakes: Arc<Lobby>,
    /// Connections that owe a token.
    pub(crate) tokens: Arc<Lobby>,
}

impl Default for Lobbies {
    fn default() -> Self {
        let changed: Arc<Notify> = Arc::default();
        let lobby = || Arc::new(Lobby { changed: Arc::clone(&changed), ..Lobby::default() });
        Lobbies { handshakes: lobby(), tokens: lobby() }
    }
}

impl Lobbies {
    /// Completes when a guest of either has fallen silent or left since this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.tokens.changed.notified()
    }

    /// Has a silent guest give way to a newcomer who finds all connections of the daemon in use. Returns false if none is
    /// silent.
    pub(crate) fn show_out(&self) -> bool {
        self.tokens.show_out() || self.handshakes.show_out()
    }

    /// Returns the figures of both together.
    pub(crate) fn occupancy(&self) -> Occupancy {
        let (one, other) = (self.tokens.occupancy(), self.handshakes.occupancy());
        Occupancy {
            inside: one.inside + other.inside,
            leaving: one.leaving + other.leaving,
            gave_way: one.gave_way + other.gave_way,
        }
    }
}

/// The state of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its bytes wait for the daemon, or it has just come.
    Heard,
    /// The daemon waits for its bytes. Holds its number in the order of silence.
    Silent(u64),
    /// It gave way.
    Leaving,
}

/// A connection's place in a lobby. Free again when dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    lobby: Arc<Lobby>,
    /// Signalled when it must give way.
    end: Arc<Notify>,
    stage: Stage,
}

impl Guest {
    /// Notes that its peer has sent something, which the daemon has not dealt with yet.
    pub(crate) fn note_heard(&mut self) {
        if let Stage::Silent(number) = self.stage {
            let is_inside = self.lobby.lock().silent.remove(&number).is_some();
            self.stage = if is_inside { Stage::Heard } else { Stage::Leaving };
        }
    }

    /// Notes that the daemon now waits for its peer.
    pub(crate) fn note_silent(&mut self) {
        if self.stage == Stage::Heard {
            let mut guests = self.lobby.lock();
            let number = guests.next;
            guests.next += 1;
            guests.silent.insert(number, Arc::clone(&self.end));
            drop(guests);
            self.stage = Stage::Silent(number);
            self.lobby.changed.notify_waiters();
        }
    }

    /// Returns a future that completes when the guest must give way.
    pub(crate) fn shown_out(&self) -> impl Future<Output = ()> + use<> {
        let end = Arc::clone(&self.end);
        async move { end.notified().await }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Finds out whether it gave way meanwhile.
        self.note_heard();
        let mut guests = self.lobby.lock();
        match self.stage {
            Stage::Leaving => guests.leaving -= 1,
            Stage::Heard | Stage::Silent(_) => guests.inside -= 1,
        }
        drop(guests);
        self.lobby.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Enters if that needs no wait.
    fn enter(lobby: &Arc<Lobby>, places: usize) -> Option<Guest> {
        match pin!(lobby.enter(places)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(guest) => Some(guest),
            Poll::Pending => None,
        }
    }

    fn must_go(guest: &Guest) -> bool {
        pin!(guest.shown_out()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_longest_silent_gives_way() {
        let lobby = Arc::new(Lobby::default());
        let mut guests: Vec<Guest> = (0..3).map(|_| enter(&lobby, 3).expect("a place")).collect();
        for index in [1, 0, 2] {
            guests[index].note_silent();
        }
        // Heard again, so that it is silent for a shorter time than the others.
        guests[1].note_heard();
        guests[1].note_silent();
        let newcomer = enter(&lobby, 3).expect("the place of another");
        assert_eq!(guests.iter().map(must_go).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(lobby.occupancy(), Occupancy { inside: 3, leaving: 1, gave_way: 1 });
        // Nothing that arrives now gives it its place back.
        guests[0].note_heard();
        guests[0].note_silent();
        assert!(enter(&lobby, 3).is_some_and(|guest| !must_go(&guest)));
        drop((guests, newcomer));
        assert_eq!(lobby.occupancy(), Occupancy { inside: 0, leaving: 0, gave_way: 2 });
    }

    #[test]
    fn who_waits_for_the_daemon_gives_way_to_nobody() {
        let lobby = Arc::new(Lobby::default());
        let mut guests: Vec<Guest> = (0..2).map(|_| enter(&lobby, 2).expect("a place")).collect();
        assert!(enter(&lobby, 2).is_none() && !lobby.show_out(), "both have just come");
        guests[0].note_silent();
        assert!(enter(&lobby, 2).is_some());
        assert!(!must_go(&guests[1]));
    }

    #[tokio::test]
    async fn a_newcomer_waits_until_a_place_is_free() {
        let lobby = Arc::new(Lobby::default());
        let guest = lobby.enter(1).await;
        let newcomer = tokio::spawn({
            let lobby = Arc::clone(&lobby);
            async move { lobby.enter(1).await }
        });
        tokio::task::yield_now().await;
        assert!(!newcomer.is_finished());
        drop(guest);
        newcomer.await.expect("it has entered");
    }

    #[test]
    fn a_lobby_has_an_eighth_of_the_places_and_few_daemons_have_fewer_than_64() {
        assert_eq!([1, 64, 100, 10_000].map(places_of), [1, 64, 64, 1_250]);
    }
}
