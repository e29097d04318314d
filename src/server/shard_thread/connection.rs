//! One connection, from bytes read to bytes written.
//!
//! A connection works in *turns*. A turn reads the bytes that have arrived, serves all requests in
//! them one after the other, and writes their replies at once. It borrows its thread's buffers and
//! returns them before it sleeps, so that an idle connection owns none. The connection keeps the
//! rest of a turn: half a request, or replies that the client does not take yet.
//!
//! Requests of one connection are served strictly in order. While one waits for IDs, later ones are
//! not decoded.
//!
//! - `read`: reads, and takes a turn with the bytes.
//! - `exchange`: serves the requests of a turn, some after a wait, and encodes their replies.
//! - `pending`: the time until the client has sent its token.
//! - `queue`: the bytes that a connection keeps between turns, and its
//!   share of the budget for them.
//! - `write`: writes replies, and ends the connection of a slow reader.

mod exchange;
mod pending;
mod queue;
mod read;
mod write;

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use self::exchange::Exchange;
use self::pending::SHORT_READ_BYTES_MAX;
use self::queue::KEPT_FREELY;
use super::allocate::Parked;
use super::member::Member;
use super::scheduler::Account;
use crate::access::Session;
use crate::clock::BootMicros;
use crate::frontends::FrontEnd;
use crate::server::net::pending::Pending;
use crate::server::net::socket_stream::SocketStream;

/// The time of the last read of a connection that has not sent a byte yet.
const NEVER_READ: BootMicros = BootMicros(0);

/// A connection of a protocol that is a [`FrontEnd`].
pub(super) struct Connection<F: FrontEnd> {
    stream: SocketStream,
    member: Member,
    session: Session,
    exchange: Exchange<F>,
    account: Account,
    /// Its place among the pending connections until the client has sent its token.
    pending: Option<Box<Pending>>,
}

/// The end of a turn: what comes next.
enum TurnEnd<F: FrontEnd> {
    /// All requests that were read are answered. More may have arrived.
    Done,
    /// There is more to do as soon as the replies so far are written.
    Again,
    /// A request waits.
    Parked(Parked<F::Form>),
    /// The last reply is encoded.
    Close,
    /// The last reply is encoded, and leaves after a delay: the client's token is wrong, or
    /// missing.
    Unauthorized,
    /// The connection is over: nothing more is read, and no reply is added. Replies that are queued
    /// are still written.
    End,
}

impl<F: FrontEnd> Connection<F> {
    /// Makes a connection, perhaps with a place among the pending connections. If the client owes a
    /// token and there is no place yet, `serve` waits for one.
    pub(super) fn new(
        stream: SocketStream,
        front: F,
        member: Member,
        session: Session,
        pending: Option<Pending>,
    ) -> Self {
        let pending = pending.filter(|_| !session.is_authorized()).map(Box::new);
        Connection {
            stream,
            member,
            session,
            exchange: Exchange::new(front),
            account: Account::default(),
            pending,
        }
    }

    /// Serves the connection to its end.
    pub(super) async fn serve(&mut self) {
        let authorized = if self.session.is_authorized() {
            Ok(TurnEnd::Done)
        } else {
            // Boxed, so that its timer is freed once the client is authorized.
            Box::pin(self.authorize()).await
        };
        // If `run` fails, the peer or its network caused the error. The connection is gone, so the
        // peer cannot be notified, and a log line for each would help no operator.
        if let Ok(turn) = authorized {
            let _ = self.run(turn).await;
        }
    }

    /// Goes on with the connection after `turn`. Returns after the turn in which it ceases to be a
    /// pending connection, or at its end.
    async fn run(&mut self, mut turn: TurnEnd<F>) -> io::Result<TurnEnd<F>> {
        loop {
            // Replies that fit the socket's buffer are sent before anything is awaited.
            if !self.exchange.unwritten.is_empty() || self.stream.has_unsent() {
                self.note_silent();
                self.note_kept();
                Box::pin(self.flush()).await?;
            }
            self.note_kept();
            // After a wait, the requests that were read before come first.
            let read = match turn {
                TurnEnd::Done => true,
                // Other connections of this shard have their turn before a client that receives a
                // long reply.
                TurnEnd::Again => {
                    poll_fn(|cx| self.poll_permit(cx)).await;
                    false
                }
                TurnEnd::Close | TurnEnd::Unauthorized => {
                    // A pending connection that will not be served makes room for others.
                    self.note_silent();
                    let Connection { stream, member, .. } = self;
                    Box::pin(stream.linger(|| member.note_drained())).await;
                    return Ok(TurnEnd::End);
                }
                TurnEnd::End => return Ok(TurnEnd::End),
                TurnEnd::Parked(parked) => {
                    Box::pin(self.answer_late(parked)).await?;
                    false
                }
            };
            // The rest of a request may be so long that it needs a share of the budget.
            if read && self.exchange.unread.len() > KEPT_FREELY {
                Box::pin(self.await_share()).await?;
            }
            turn = if read {
                match self.deadline() {
                    (version, None) => poll_fn(|cx| self.poll_turn(cx, version)).await?,
                    // Boxed, so that connections without a deadline have no room for a timer.
                    (version, Some(deadline)) => Box::pin(self.turn_within(version, deadline)).await?,
                }
            } else {
                self.turn_of_unread()
            };
            if self.pending.is_some() && Box::pin(self.leaves_pending(&mut turn)).await {
                return Ok(turn);
            }
        }
    }

    /// Waits for the IDs of a request and encodes its reply. Then waits for a permit if more
    /// requests were read behind it than a short turn takes.
    ///
    /// The permit is needed because all connections that wait for a source come at the same time
    /// once the source has IDs again.
    ///
    /// # Errors
    /// The connection was reset meanwhile. The request has then left the wait queue, and given back
    /// its IDs to its client's rate.
    async fn answer_late(&mut self, parked: Parked<F::Form>) -> io::Result<()> {
        let thread = Rc::clone(&self.member.thread);
        let mut waiting = Some(parked);
        while let Some(mut parked) = waiting {
            tokio::select! {
                biased;
                () = parked.ready(&thread) => {}
                reset = self.stream.reset() => return Err(reset),
            }
            let exchange = &mut self.exchange;
            waiting = thread.take_turn(&mut self.session, |turn| exchange.resume(turn, parked));
        }
        if self.exchange.unread.len() > SHORT_READ_BYTES_MAX {
            self.flush().await?;
            poll_fn(|cx| self.poll_permit(cx)).await;
        }
        Ok(())
    }

    fn poll_permit(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.member.thread.scheduler.poll_permit(&mut self.account, cx)
    }
}
