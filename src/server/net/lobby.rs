//! The lobby: connections that have not proved yet that they are clients. They shake hands over TLS, or have not sent their
//! token. Connections of the admin listener are guests of a lobby to their end.
//!
//! A lobby has a limited number of places. When these run out, the guest whose peer has been silent for longest gives way
//! to a newcomer. A guest whose bytes wait for the daemon is not silent, and one that has just connected may be about to
//! send: newcomers wait for these. The silence of a guest that owes a token counts from its first beginning.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, timeout_at};

/// The time within which a client must send its token. That takes a round trip, so five seconds outlast a few lost packets.
/// PING does not extend it.
pub(crate) const AUTHORIZED_WITHIN: Duration = Duration::from_secs(5);

/// The time that a silent guest has before it gives way. Clients send their first bytes right after they have connected,
/// unless their machine is busy. With the fewest places, newcomers come in at 3,200 a second.
const SILENT_FOR: Duration = Duration::from_millis(20);

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
    /// True if the guests owe a token. Then the silence of each counts from its first beginning, whatever it sends in
    /// between, so that it holds its place no longer than a silent one. In a handshake, silence begins again after each
    /// message.
    is_for_tokens: bool,
}

#[derive(Debug, Default)]
struct Guests {
    /// The guests whose peers are silent, in the order of the silences that count.
    silent: BTreeMap<u64, Silent>,
    /// The next number in that order.
    next: u64,
    /// The guests that have a place.
    inside: usize,
    /// Those that gave way and are not closed yet.
    leaving: usize,
    /// Those that ever gave way.
    gave_way: u64,
}

/// A guest whose peer is silent.
#[derive(Debug)]
struct Silent {
    since: Instant,
    /// Signalled when it must give way.
    end: Arc<Notify>,
}

/// The room for a newcomer, if there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is a place.
    Made,
    /// The guest that has been silent for longest gives way then.
    At(Instant),
    /// No guest is silent.
    Full,
}

impl Guests {
    /// Makes the guest that has been silent for longest give way.
    fn show_out(&mut self, now: Instant) -> Room {
        let Some(first) = self.silent.first_entry() else { return Room::Full };
        let at = first.get().since + SILENT_FOR;
        if now < at {
            return Room::At(at);
        }
        first.remove().end.notify_one();
        self.inside -= 1;
        self.leaving += 1;
        self.gave_way += 1;
        Room::Made
    }
}

/// Completes when it is worthwhile to look for room again.
pub(crate) async fn wait_for(room: Room, changed: Notified<'_>) {
    match room {
        Room::Made => {}
        Room::At(at) => {
            let _ = timeout_at(at, changed).await;
        }
        Room::Full => changed.await,
    }
}

/// The numbers of guests in a lobby.
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
    /// Takes in a newcomer, which counts as heard. If all `places` are taken, the guest that has been silent for longest
    /// gives way. If none has been silent for [`SILENT_FOR`], waits until one has, or until one leaves.
    pub(crate) async fn enter(self: &Arc<Self>, places: usize) -> Guest {
        loop {
            let changed = self.changed.notified();
            match self.try_enter(places, Instant::now()) {
                Ok(guest) => return guest,
                Err(room) => wait_for(room, changed).await,
            }
        }
    }

    /// Takes a newcomer in, if a place is free or can be made free.
    fn try_enter(self: &Arc<Self>, places: usize, now: Instant) -> Result<Guest, Room> {
        let mut guests = self.lock();
        let room = if guests.inside < places { Room::Made } else { guests.show_out(now) };
        if room != Room::Made {
            return Err(room);
        }
        guests.inside += 1;
        Ok(Guest { lobby: Arc::clone(self), end: Arc::default(), stage: Stage::Heard, silence: None })
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
        let lobby = |is_for_tokens| {
            Arc::new(Lobby { changed: Arc::clone(&changed), is_for_tokens, ..Lobby::default() })
        };
        Lobbies { handshakes: lobby(false), tokens: lobby(true) }
    }
}

impl Lobbies {
    /// Completes when a guest of either has fallen silent or left since this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.tokens.changed.notified()
    }

    /// Makes a silent guest give way to a newcomer that finds all connections of the daemon in use.
    pub(crate) fn show_out(&self, now: Instant) -> Room {
        let room = self.tokens.lock().show_out(now);
        if room == Room::Made {
            return room;
        }
        match (room, self.handshakes.lock().show_out(now)) {
            (Room::At(one), Room::At(other)) => Room::At(one.min(other)),
            (at @ Room::At(_), Room::Full) => at,
            (_, room) => room,
        }
    }

    /// Returns the numbers of both together.
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
    /// Its silence that counts: its number in the order of silence, and its start.
    silence: Option<(u64, Instant)>,
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
            let earlier = self.silence.filter(|_| self.lobby.is_for_tokens);
            let (number, since) = earlier.unwrap_or((guests.next, Instant::now()));
            guests.next = guests.next.max(number + 1);
            guests.silent.insert(number, Silent { since, end: Arc::clone(&self.end) });
            drop(guests);
            self.silence = Some((number, since));
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
    use std::task::{Context, Waker};

    use super::*;

    fn enter(lobby: &Arc<Lobby>, places: usize, now: Instant) -> Guest {
        lobby.try_enter(places, now).expect("a place")
    }

    fn must_go(guest: &Guest) -> bool {
        pin!(guest.shown_out()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_longest_silent_gives_way() {
        let (lobby, start) = (Arc::new(Lobby::default()), Instant::now());
        let mut guests: Vec<Guest> = (0..3).map(|_| enter(&lobby, 3, start)).collect();
        for index in [1, 0, 2] {
            guests[index].note_silent();
        }
        // Heard again, so that it is silent for a shorter time than the others.
        guests[1].note_heard();
        guests[1].note_silent();
        let later = Instant::now() + SILENT_FOR;
        let newcomer = enter(&lobby, 3, later);
        assert_eq!(guests.iter().map(must_go).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(lobby.occupancy(), Occupancy { inside: 3, leaving: 1, gave_way: 1 });
        // Nothing that arrives now gives it its place back.
        guests[0].note_heard();
        guests[0].note_silent();
        assert!(!must_go(&enter(&lobby, 3, later)));
        drop((guests, newcomer));
        assert_eq!(lobby.occupancy(), Occupancy { inside: 0, leaving: 0, gave_way: 2 });
    }

    #[test]
    fn a_guest_that_talks_without_a_token_gives_way_like_a_silent_one() {
        let (lobby, start) = (Arc::clone(&Lobbies::default().tokens), Instant::now());
        let mut guests: Vec<Guest> = (0..2).map(|_| enter(&lobby, 2, start)).collect();
        guests.iter_mut().for_each(Guest::note_silent);
        guests[0].note_heard();
        guests[0].note_silent();
        let later = Instant::now() + SILENT_FOR;
        let _newcomer = enter(&lobby, 2, later);
        assert_eq!(guests.iter().map(must_go).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn who_waits_for_the_daemon_or_has_just_come_gives_way_to_nobody() {
        let (lobby, start) = (Arc::new(Lobby::default()), Instant::now());
        let mut guests: Vec<Guest> = (0..2).map(|_| enter(&lobby, 2, start)).collect();
        let later = start + 100 * SILENT_FOR;
        assert_eq!(lobby.try_enter(2, later).expect_err("both wait for the daemon"), Room::Full);
        guests[0].note_silent();
        let Err(Room::At(at)) = lobby.try_enter(2, start) else { panic!("it may be about to speak") };
        assert!(at >= start + SILENT_FOR);
        assert!(lobby.try_enter(2, at).is_ok() && must_go(&guests[0]) && !must_go(&guests[1]));
    }

    #[test]
    fn a_silent_guest_of_either_lobby_gives_way_where_all_connections_are_in_use() {
        let (lobbies, start) = (Lobbies::default(), Instant::now());
        assert_eq!(lobbies.show_out(start), Room::Full);
        let mut handshake = enter(&lobbies.handshakes, 9, start);
        let _token = enter(&lobbies.tokens, 9, start);
        assert_eq!(lobbies.show_out(start), Room::Full);
        handshake.note_silent();
        assert!(matches!(lobbies.show_out(start), Room::At(_)));
        assert_eq!(lobbies.show_out(Instant::now() + SILENT_FOR), Room::Made);
        assert!(must_go(&handshake));
    }

    #[tokio::test]
    async fn a_newcomer_waits_until_a_place_is_free() {
        let lobby = Arc::new(Lobby::default());
        let mut guest = lobby.enter(1).await;
        let enter = || {
            let lobby = Arc::clone(&lobby);
            tokio::spawn(async move { lobby.enter(1).await })
        };
        let newcomer = enter();
        tokio::task::yield_now().await;
        assert!(!newcomer.is_finished());
        guest.note_silent();
        drop(newcomer.await.expect("the silent one gave way"));
        assert!(must_go(&guest));
    }

    #[test]
    fn a_lobby_has_an_eighth_of_the_places_and_few_daemons_have_fewer_than_64() {
        assert_eq!([1, 64, 100, 10_000].map(places_of), [1, 64, 64, 1_250]);
    }
}
