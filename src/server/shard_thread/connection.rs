//! One connection, from bytes read to bytes written.
//!
//! A connection works in *turns*. A turn reads the bytes that have arrived, serves the requests in
//! them one after the other, and writes all replies at once. A turn borrows the thread's buffers
//! until it ends, so that an idle connection owns no buffer. Between turns, a connection keeps only
//! requests that are incomplete or not served yet, and replies that the client has not read.
//!
//! Requests of one connection are served strictly in order. While one request waits for IDs, later
//! requests are not decoded.
//!
//! - `read`: reads bytes, and takes a turn with them.
//! - `exchange`: serves the requests of a turn, some after a wait, and encodes their replies.
//! - `authorize`: waits for the client's token.
//! - `budget`: the bytes that a connection keeps between turns, and the connection's share of the
//!   budget for such bytes.
//! - `write`: writes replies, and ends the connection of a slow reader.

mod authorize;
mod budget;
mod exchange;
mod read;
mod write;

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::time::timeout;

use self::authorize::SHORT_READ_BYTES_MAX;
use self::budget::KEPT_FREELY;
use self::exchange::Exchange;
use super::allocate::Parked;
use super::membership::Membership;
use super::scheduler::Account;
use super::turn::Turn;
use crate::access::Session;
use crate::frontends::FrontEnd;
use crate::server::health::metrics::CloseReason;
use crate::server::net::pending::{AUTHORIZED_WITHIN, Pending};
use crate::server::net::socket_stream::SocketStream;
use snowbank_core::clock::BootMicros;

/// The value of `read_at` before the first read.
const NEVER_READ: BootMicros = BootMicros(0);

/// A connection of a protocol that is a [`FrontEnd`].
pub(super) struct Connection<F: FrontEnd> {
    stream: SocketStream,
    member: Membership,
    session: Session,
    exchange: Exchange<F>,
    account: Account,
    /// The connection's place among the pending connections, until the client has sent its token.
    pending: Option<Box<Pending>>,
}

/// The end of a turn, which decides what the connection does next.
enum TurnEnd<F: FrontEnd> {
    /// All complete requests that were read are answered. More bytes may have arrived.
    Done,
    /// More requests can be served, or more IDs encoded, once the replies so far are written.
    Again,
    /// A request waits for its IDs.
    Parked(Parked<F::Form>),
    /// The last reply is encoded. After that, the connection closes.
    Close,
    /// The last reply is encoded, and must be sent after a delay, because the client's token is
    /// wrong or missing.
    Unauthorized,
    /// Nothing more is read or encoded. Replies that are already queued are still written.
    End,
}

impl<F: FrontEnd> Connection<F> {
    /// Makes a connection. If the client owes a token and `pending` is `None`, `serve` first waits
    /// for a place among the pending connections.
    pub(super) fn new(
        stream: SocketStream,
        front: F,
        member: Membership,
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
            // Boxed, so that the timer of the wait is freed once the client is authorized.
            Box::pin(self.authorize()).await
        };
        // Operators do not need a log line for each connection that fails.
        if let Ok(turn) = authorized {
            let _ = self.run(turn).await;
        }
    }

    /// Continues the connection after `turn`. Returns when the connection ends, or after the turn
    /// in which it ceases to be pending.
    async fn run(&mut self, mut turn: TurnEnd<F>) -> io::Result<TurnEnd<F>> {
        loop {
            // Replies are sent before anything else is awaited but more requests, or the IDs of one.
            if self.has_unwritten() {
                self.record_silent();
                self.record_kept();
                if matches!(turn, TurnEnd::Done | TurnEnd::Again) && self.may_queue_more() {
                    turn = Box::pin(self.flush_or_serve(turn)).await?;
                    continue;
                }
                match turn {
                    TurnEnd::Parked(_) => Box::pin(self.write_some()).await?,
                    _ => Box::pin(self.flush()).await?,
                }
            }
            self.record_kept();
            // False if requests that were read in an earlier turn must be served first.
            let read = match turn {
                TurnEnd::Done => true,
                // Other connections have their turns between two parts of a long reply.
                TurnEnd::Again => {
                    poll_fn(|cx| self.poll_permit(cx)).await;
                    false
                }
                TurnEnd::Close | TurnEnd::Unauthorized => {
                    if self.exchange.is_ending {
                        let _ = timeout(AUTHORIZED_WITHIN, Box::pin(self.answer_before_end())).await;
                    }
                    // From here on, a pending connection may be evicted while it is being closed.
                    self.record_silent();
                    let Connection { stream, member, .. } = self;
                    Box::pin(stream.linger(|| member.record_drained())).await;
                    return Ok(TurnEnd::End);
                }
                TurnEnd::End => return Ok(TurnEnd::End),
                TurnEnd::Parked(parked) => {
                    Box::pin(self.answer_late(parked)).await?;
                    false
                }
            };
            // A long request or transaction of which only a part has arrived needs a share of the
            // budget.
            if read && self.kept_requests() > KEPT_FREELY {
                Box::pin(self.await_share()).await?;
            }
            turn = if read {
                match self.deadline() {
                    (version, None) => poll_fn(|cx| self.poll_turn(cx, version)).await?,
                    // Boxed, so that connections without a deadline need no memory for a timer.
                    (version, Some(deadline)) => Box::pin(self.turn_within(version, deadline)).await?,
                }
            } else {
                self.turn_of_unread()
            };
            if self.pending.is_some() {
                if self.session.is_authorized() {
                    // The client has sent its token. This frees the place among those without.
                    self.pending = None;
                    return Ok(turn);
                }
                turn = Box::pin(self.stay_pending(turn)).await;
            }
        }
    }

    /// Waits for the IDs of a request, and encodes its reply. Meanwhile, writes earlier replies as
    /// the client reads them. If more bytes were read behind the request than a short turn serves,
    /// also waits for a permit. All connections that wait for a source continue at the same time
    /// once the source has IDs again.
    ///
    /// # Errors
    /// The connection was reset, or writing its replies failed. A request that was waiting has left
    /// the wait queue.
    async fn answer_late(&mut self, parked: Parked<F::Form>) -> io::Result<()> {
        let thread = Rc::clone(&self.member.thread);
        let mut waiting = Some(parked);
        while let Some(mut parked) = waiting {
            tokio::select! {
                biased;
                () = parked.ready(&thread) => {}
                error = self.write_while_waiting() => return Err(error),
            }
            if thread.draining.get() && !self.has_more_requests().await {
                self.exchange.front.end_with_next_reply();
            }
            let exchange = &mut self.exchange;
            waiting = Turn::take(&thread, &mut self.session, |turn| exchange.resume(turn, parked));
        }
        if self.exchange.unread.len() > SHORT_READ_BYTES_MAX {
            self.write_some().await?;
            poll_fn(|cx| self.poll_permit(cx)).await;
        }
        Ok(())
    }

    /// Counts that the daemon closes the connection by itself, and logs why.
    #[cold]
    fn record_closed(&self, reason: CloseReason) {
        let thread = &self.member.thread;
        let limits = &thread.live_config.borrow().limits;
        let stall_timeout = limits.stall_timeout;
        let text = match reason {
            CloseReason::UnreadReplies => format!(
                "it read no reply for {stall_timeout:?} (limits.stall_timeout), and has its share of \
                 limits.max_queued_bytes queued; read replies while sending, or send fewer requests at once"
            ),
            CloseReason::HalfRequest => {
                format!("the rest of a request did not arrive for {stall_timeout:?} (limits.stall_timeout)")
            }
            CloseReason::Queue => format!(
                "for {stall_timeout:?}, limits.max_queued_bytes had no room for its long request; see who reads no \
                 replies, or raise the limit"
            ),
            CloseReason::Idle => {
                let idle_timeout = limits.idle_timeout.unwrap_or_default();
                format!("it sent nothing for {idle_timeout:?} (limits.idle_timeout)")
            }
            // Those are logged where they are found.
            CloseReason::BadRequest | CloseReason::Errors | CloseReason::Unauthorized => return,
        };
        thread.common.rejections.close(reason, &self.stream.ends(), &text);
    }

    /// Returns whether requests have arrived behind the one that is served.
    async fn has_more_requests(&self) -> bool {
        !self.exchange.unread.is_empty() || poll_fn(|cx| Poll::Ready(self.stream.is_readable(cx))).await
    }

    fn poll_permit(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.member.thread.scheduler.poll_permit(&mut self.account, cx)
    }
}
