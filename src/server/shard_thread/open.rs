//! Opens an accepted connection on this thread: registers its socket, shakes hands over TLS, and
//! spawns its task.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::ready;

use tokio::net::TcpStream;

use super::connection::Connection;
use super::membership::Membership;
use super::scheduler::{Account, HANDSHAKE_COST};
use super::thread_state::ThreadState;
use crate::access::Session;
use crate::frontends::{FrontEnd, WithFrontEnd};
use crate::server::acceptor::{Admitted, OpenConnection};
use crate::server::health::metrics::CloseReason;
use crate::server::net::ends::Ends;
use crate::server::net::pending::Pending;
use crate::server::net::socket_stream::{self, SocketStream};
use crate::tls::{Acceptor, HandshakeFailure};

/// Spawns the task of a connection, which first shakes hands if the listener speaks TLS.
pub(super) fn open(thread: &Rc<ThreadState>, admitted: Admitted) {
    let Admitted { socket, info, pending, open } = admitted;
    // Registering fails only if the system cannot watch one more socket.
    let Ok(stream) = SocketStream::register(socket) else { return };
    let mut member = Membership::new(Rc::clone(thread));
    match (stream, &info.tls, pending) {
        (SocketStream::Tcp(socket), Some(acceptor), Some(pending)) => {
            let acceptor = acceptor.clone();
            // The handshake has a task of its own, so that the handshake's memory is freed before
            // the connection is served.
            tokio::task::spawn_local(async move {
                if let Some(stream) = shake_hands(&mut member, socket, &acceptor, pending).await {
                    info.protocol.with(Accepted { stream, pending: None, member, open });
                }
            });
        }
        (stream, _, pending) => info.protocol.with(Accepted { stream, pending, member, open }),
    }
}

/// A connection that is ready to be served.
struct Accepted {
    stream: SocketStream,
    pending: Option<Pending>,
    member: Membership,
    open: OpenConnection,
}

impl WithFrontEnd for Accepted {
    /// Spawns the task that serves the connection. Each front end has a task type of its own, so an
    /// idle connection takes only the memory that its protocol needs.
    fn call<F: FrontEnd + 'static>(self) {
        let Accepted { stream, pending, member, open } = self;
        let live_config = Arc::clone(&member.thread.live_config.borrow());
        let rules = &live_config.facts.access;
        let has_tokens = F::PROTOCOL.has_tokens();
        let session = Session::new(rules, live_config.version, stream.shown(), has_tokens);
        let front = if stream.is_at_loopback() { F::default().at_loopback() } else { F::default() };
        let mut connection = Connection::new(stream, front, member, session, pending);
        // This is an async block, because an async function would keep its arguments in memory
        // twice.
        tokio::task::spawn_local(async move {
            connection.serve().await;
            // The connection counts as open until its socket is closed.
            drop(connection);
            drop(open);
        });
    }
}

/// Shakes hands. Each step of the handshake needs a permit. A stop does not wait for the handshake.
/// Returns `None` if the handshake failed, or the connection was evicted.
async fn shake_hands(
    member: &mut Membership,
    socket: TcpStream,
    acceptor: &Acceptor,
    mut pending: Pending,
) -> Option<SocketStream> {
    let thread = Rc::clone(&member.thread);
    let ends = Ends::of_handshake(&socket);
    let mut account = Account::for_handshake();
    let evicted = pending.evicted();
    let mut shake = pin!(socket_stream::shake(socket, acceptor, &thread.common.rejections));
    let shaken = poll_fn(|cx| {
        member.remember(cx.waker());
        // No request of this connection has arrived, so a stop need not wait for it.
        if thread.draining.get() {
            member.record_drained();
        }
        pending.record_heard();
        ready!(thread.scheduler.poll_permit(&mut account, cx));
        let polled = shake.as_mut().poll(cx);
        thread.scheduler.end_turn(&mut account, HANDSHAKE_COST);
        if polled.is_pending() {
            pending.record_silent();
        }
        polled
    });
    tokio::select! {
        biased;
        () = evicted => {
            let text = "it did not finish its handshake, and a newcomer needed its place";
            thread.common.rejections.close(CloseReason::Unauthorized, &ends, text);
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
