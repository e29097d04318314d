//! Opens an accepted connection on this thread: registers its socket, shakes hands over TLS, spawns its task.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::ready;

use tokio::net::TcpStream;

use super::connection::Connection;
use super::member::Member;
use super::thread_state::ThreadState;
use super::turnstile::Place;
use super::{authorization, http};
use crate::config::Protocol;
use crate::front::{Front, Memcached, Native, Noeqd, Resp};
use crate::server::net::accept::{Admitted, Door, OpenConnection};
use crate::server::net::handshake;
use crate::server::net::lobby::Guest;
use crate::server::net::rejections;
use crate::server::net::socket_stream::{SocketStream, network_of};
use crate::tls::Acceptor;
use crate::tls::HandshakeFailure;

/// Spawns the task that shakes hands on a connection, or the one that serves it.
pub(super) fn open(thread: &Rc<ThreadState>, admitted: Admitted) {
    let Admitted { socket, door, guest, open } = admitted;
    // Fails when the peer is gone or no descriptor is free. Then there is no peer to notify.
    let Ok(stream) = SocketStream::register(socket) else {
        return;
    };
    let mut member = Member::new(Rc::clone(thread));
    match (stream, &door.tls, guest) {
        (SocketStream::Tcp(socket), Some(acceptor), Some(guest)) => {
            let acceptor = acceptor.clone();
            // A task of its own, so that the handshake's memory is freed before the connection is served.
            tokio::task::spawn_local(async move {
                if let Some(stream) = shake_hands(&mut member, socket, &acceptor, guest).await {
                    serve(stream, &door, None, member, open);
                }
            });
        }
        (stream, _, guest) => serve(stream, &door, guest, member, open),
    }
}

/// Spawns the task that serves a connection. Each protocol has a task type of its own, so an idle connection takes only what its
/// protocol needs.
fn serve(stream: SocketStream, door: &Door, guest: Option<Guest>, member: Member, open: OpenConnection) {
    match door.protocol {
        Protocol::Native => serve_front::<Native>(stream, guest, member, open),
        Protocol::Resp => serve_front::<Resp>(stream, guest, member, open),
        Protocol::Memcached => serve_front::<Memcached>(stream, guest, member, open),
        Protocol::Noeqd => serve_front::<Noeqd>(stream, guest, member, open),
        Protocol::Http => {
            tokio::task::spawn_local(serve_http(stream, door.is_loopback, guest, member, open));
        }
    }
}

/// Spawns the task that serves a connection of a protocol that is a [`Front`].
fn serve_front<F: Front + 'static>(
    stream: SocketStream,
    guest: Option<Guest>,
    member: Member,
    open: OpenConnection,
) {
    let (front, session) = {
        let live_config = member.thread.live_config.borrow();
        let session = authorization::begin(&stream, &live_config, F::HAS_TOKENS);
        (F::new(&live_config.facts), session)
    };
    let mut connection = Connection::new(stream, front, member, session, guest);
    // A block, because an async function keeps its arguments twice.
    tokio::task::spawn_local(async move {
        connection.serve().await;
        // Its place is free once its socket is closed.
        drop(connection);
        drop(open);
    });
}

/// Serves a connection of the HTTP door to its end.
async fn serve_http(
    stream: SocketStream,
    is_loopback: bool,
    guest: Option<Guest>,
    member: Member,
    open: OpenConnection,
) {
    let session = authorization::begin(&stream, &member.thread.live_config.borrow(), true);
    let guest = match guest {
        _ if session.is_authorized() => None,
        Some(guest) => Some(guest),
        None => Some(Box::pin(authorization::enter_lobby(&member.thread)).await),
    };
    http::serve(stream, is_loopback, member, (session, guest)).await;
    drop(open);
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
        shaken = shaken => {
            if matches!(&shaken, Err(failure) if *failure != HandshakeFailure::Left) {
                thread.counters.unauthorized_refusals.add(1);
            }
            shaken.ok()
        }
    }
}
