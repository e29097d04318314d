//! Opens an accepted connection on this thread: registers its socket, shakes hands over TLS, spawns its task.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;

use tokio::net::TcpStream;

use super::connection;
use super::member::Member;
use super::thread_state::ThreadState;
use crate::config::Protocol;
use crate::front::{Front, Native, Resp};
use crate::server::net::accept::{Admitted, Door, OpenConnection};
use crate::server::net::handshake;
use crate::server::net::socket_stream::SocketStream;
use crate::tls::Acceptor;

/// Spawns the task that serves a connection.
pub(super) fn open(thread: &Rc<ThreadState>, admitted: Admitted) {
    let Admitted { socket, door, open } = admitted;
    // Fails when the peer is gone or no descriptor is free. Nobody can be notified then.
    let Ok(stream) = SocketStream::register(socket) else {
        return;
    };
    match door.protocol {
        Protocol::Native => open_bytes::<Native>(thread, stream, door, open),
        Protocol::Resp => open_bytes::<Resp>(thread, stream, door, open),
    }
}

/// Spawns the task that serves a connection of a protocol that is a [`Front`].
fn open_bytes<F: Front + 'static>(
    thread: &Rc<ThreadState>,
    stream: SocketStream,
    door: Door,
    open: OpenConnection,
) {
    let front = F::new(&thread.live_config.borrow().facts);
    let mut member = Member::new(Rc::clone(thread));
    match (stream, door.tls) {
        (SocketStream::Tcp(socket), Some(acceptor)) => tokio::task::spawn_local(async move {
            // Boxed, so that the handshake's memory is freed before the connection is served.
            if let Some(stream) = Box::pin(shake_hands(&mut member, socket, &acceptor)).await {
                connection::serve(stream, front, member, open).await;
            }
        }),
        (stream, _) => tokio::task::spawn_local(async move {
            connection::serve(stream, front, member, open).await;
        }),
    };
}

/// Shakes hands without delaying a stop. Returns `None` if the handshake failed.
async fn shake_hands(member: &mut Member, socket: TcpStream, acceptor: &Acceptor) -> Option<SocketStream> {
    let mut shake = pin!(handshake::shake(socket, acceptor));
    let shaken = poll_fn(|cx| {
        member.remember(cx.waker());
        let polled = shake.as_mut().poll(cx);
        if polled.is_pending() {
            // No request of this connection has arrived.
            member.note_drained_if_draining();
        }
        polled
    });
    shaken.await
}
