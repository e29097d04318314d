//! Opens an accepted connection on this thread: registers its socket, shakes hands over TLS, spawns its task.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::ready;

use tokio::net::TcpStream;

use super::member::Member;
use super::thread_state::ThreadState;
use super::turnstile::Place;
use super::{authorization, connection, http};
use crate::config::Protocol;
use crate::front::{Front, Memcached, Native, Noeqd, Resp};
use crate::server::net::accept::{Admitted, OpenConnection};
use crate::server::net::handshake;
use crate::server::net::lobby::{self, Guest};
use crate::server::net::rejections;
use crate::server::net::socket_stream::{SocketStream, network_of};
use crate::tls::Acceptor;

/// Spawns the task that serves a connection.
pub(super) fn open(thread: &Rc<ThreadState>, admitted: Admitted) {
    let Admitted { socket, door, guest, open } = admitted;
    // Fails when the peer is gone or no descriptor is free. Then there is no peer to notify.
    let Ok(stream) = SocketStream::register(socket) else {
        return;
    };
    let mut member = Member::new(Rc::clone(thread));
    tokio::task::spawn_local(async move {
        let (stream, guest) = match (stream, door.tls, guest) {
            (SocketStream::Tcp(socket), Some(acceptor), Some(guest)) => {
                // Boxed, so that the handshake's memory is freed before the connection is served.
                let Some(stream) = Box::pin(shake_hands(&mut member, socket, &acceptor, guest)).await else {
                    return;
                };
                (stream, None)
            }
            (stream, _, guest) => (stream, guest),
        };
        match door.protocol {
            Protocol::Native => serve::<Native>(stream, guest, member, open).await,
            Protocol::Resp => serve::<Resp>(stream, guest, member, open).await,
            Protocol::Memcached => serve::<Memcached>(stream, guest, member, open).await,
            Protocol::Noeqd => serve::<Noeqd>(stream, guest, member, open).await,
            // Boxed, because it needs more than the others.
            Protocol::Http => Box::pin(serve_http(stream, door.is_loopback, guest, member, open)).await,
        }
    });
}

/// Serves a connection of a protocol that is a [`Front`] to its end.
async fn serve<F: Front>(
    stream: SocketStream,
    guest: Option<Guest>,
    member: Member,
    mut open: OpenConnection,
) {
    let (front, session) = {
        let live_config = member.thread.live_config.borrow();
        let session = authorization::begin(&stream, &mut open, &live_config, F::HAS_TOKENS);
        (F::new(&live_config.facts), session)
    };
    let guest = place_in_lobby(&member, guest, session.is_authorized()).await;
    connection::serve(stream, front, member, (session, guest)).await;
    drop(open);
}

/// Serves a connection of the HTTP door to its end.
async fn serve_http(
    stream: SocketStream,
    is_loopback: bool,
    guest: Option<Guest>,
    member: Member,
    mut open: OpenConnection,
) {
    let session = authorization::begin(&stream, &mut open, &member.thread.live_config.borrow(), true);
    let guest = place_in_lobby(&member, guest, session.is_authorized()).await;
    http::serve(stream, is_loopback, member, (session, guest)).await;
    drop(open);
}

/// Returns the place of a connection in the lobby, until its client has sent the token that is due. `None` if none is.
async fn place_in_lobby(member: &Member, guest: Option<Guest>, is_authorized: bool) -> Option<Guest> {
    match guest {
        _ if is_authorized => None,
        Some(guest) => Some(guest),
        None => {
            let lobby = Arc::clone(&member.thread.common.lobbies.tokens);
            let places = lobby::places_of(member.thread.live_config.borrow().limits.max_connections);
            // Boxed, so that connections which need no place have no room for the wait.
            Some(Box::pin(lobby.enter(places)).await)
        }
    }
}

/// Shakes hands, a step at a time in turn with others, and without delaying a stop. Returns `None` if the handshake failed,
/// or if the connection gave way to another.
async fn shake_hands(
    member: &mut Member,
    socket: TcpStream,
    acceptor: &Acceptor,
    mut guest: Guest,
) -> Option<SocketStream> {
    let thread = Rc::clone(&member.thread);
    let peer = socket.peer_addr();
    let mut place = Place::default();
    let shown_out = guest.shown_out();
    let mut shake = pin!(handshake::shake(socket, acceptor));
    let shaken = poll_fn(|cx| {
        member.remember(cx.waker());
        // No request of this connection has arrived.
        member.note_drained_if_draining();
        guest.note_heard();
        ready!(thread.handshakes.poll_pass(&mut place, cx));
        let polled = shake.as_mut().poll(cx);
        if polled.is_pending() {
            guest.note_silent();
        }
        polled
    });
    tokio::select! {
        biased;
        () = shown_out => {
            if let Ok(peer) = peer {
                let reason = "it did not finish its handshake, and a newcomer needed its place";
                rejections::log_unauthorized(peer, &network_of(peer.ip()), reason);
            }
            None
        }
        shaken = shaken => shaken,
    }
}
