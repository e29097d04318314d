//! One connection, from bytes read to bytes written.
//!
//! A connection works in *turns*. A turn reads the bytes that have arrived, takes all requests in them one after the other,
//! and writes their replies at once. It borrows its thread's buffers and returns them before it sleeps, so that an idle
//! connection owns none. The connection keeps the rest of a turn: half a request, or replies that the client does not take
//! yet.
//!
//! Requests of one connection are served strictly in order. While one waits for IDs, later ones are not decoded.
//!
//! - `access`: the session of a connection follows reloads.
//! - `authorize`: the time until the client has sent its token, in the lobby.
//! - `queue`: the bytes that a connection keeps between turns, and its share of the budget for them.
//! - `take`: takes the requests of a turn and encodes their replies, some after a wait.
//! - `write`: writes replies, and ends the connection of a slow reader.

mod access;
mod authorize;
mod queue;
mod take;
mod write;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};

pub(super) use self::authorize::SHORT_READ_BYTES_MAX;
use self::queue::Share;
use super::backlog::Backlog;
use super::budget::KEPT_FREELY;
use super::draw::{Paced, Waiting};
use super::member::Member;
use super::thread_state::ThreadState;
use super::turn_state::TurnState;
use super::turnstile::{Place, TURN_COST, tls_cost};
use crate::access::Session;
use crate::clock::{self, BootMicros};
use crate::front::Front;
use crate::server::net::lobby::Guest;
use crate::server::net::socket_stream::SocketStream;
use crate::server::shared::live_config::LiveConfig;

/// The time of the last read of a connection that has not sent a byte yet.
const NEVER_READ: BootMicros = BootMicros(0);

/// A connection of a protocol that is a [`Front`].
pub(super) struct Connection<F: Front> {
    stream: SocketStream,
    front: F,
    member: Member,
    session: Session,
    /// Bytes read and not yet decoded: half a request, or requests behind one that waits.
    unread: Vec<u8>,
    /// Bytes of replies that the socket did not take.
    unwritten: Vec<u8>,
    /// When `unread` was read; if it is half a request, when its first byte was read. Waits and `stall_timeout` count from
    /// there.
    read_at: BootMicros,
    /// The rest of a reply longer than a frame. Boxed, because hardly any connection ever has one.
    backlog: Option<Box<Backlog<F::Form>>>,
    /// Requests in a row, up to the last, that asked for no IDs and were answered with an error.
    errors_in_row: u16,
    place: Place,
    /// Its place in the lobby until the client has sent its token.
    guest: Option<Box<Guest>>,
    /// Its share of the budget for kept bytes, as of its last turn.
    share: Share,
    /// The cost of its turn so far, without that of TLS.
    turn_cost: usize,
}

/// The outcome of a turn.
enum Turn<F: Front> {
    /// All requests that were read are answered. More may have arrived.
    Done,
    /// There is more to do as soon as the replies so far are written.
    Again,
    /// A request waits for IDs.
    Waits(Box<Waiting>, F::Form),
    /// A request waits for its client's rate.
    Paced(Box<Paced>, F::Form),
    /// The last reply is encoded.
    Close,
    /// The last reply is encoded, and leaves after a delay: the client's token is wrong, or missing.
    Unauthorized,
    /// The connection is over: nothing more is read, and no reply is added. Replies that are queued are still written.
    End,
}

impl<F: Front> Connection<F> {
    /// Makes a connection, perhaps with a place in the lobby. If the client owes a token and there is no place yet, `serve` waits
    /// for one.
    pub(super) fn new(
        stream: SocketStream,
        front: F,
        member: Member,
        session: Session,
        guest: Option<Guest>,
    ) -> Self {
        let guest = guest.filter(|_| !session.is_authorized()).map(Box::new);
        Connection {
            stream,
            front,
            member,
            session,
            unread: Vec::new(),
            unwritten: Vec::new(),
            read_at: NEVER_READ,
            backlog: None,
            errors_in_row: 0,
            place: Place::default(),
            guest,
            share: Share::WHOLE,
            turn_cost: TURN_COST,
        }
    }

    /// Serves the connection to its end.
    pub(super) async fn serve(&mut self) {
        self.log_newcomer();
        // Boxed, so that its timer is freed once the client is authorized.
        let authorized = match self.session.is_authorized() {
            true => Ok(Turn::Done),
            false => Box::pin(self.authorize()).await,
        };
        // The peer or its network caused an error. The connection is gone, so the peer cannot be notified, and a log line for
        // each would help no operator.
        if let Ok(turn) = authorized {
            let _ = self.run(turn).await;
        }
    }

    /// Serves the connection after a turn with this outcome. Returns after the turn in which it leaves the lobby, or at
    /// its end.
    async fn run(&mut self, mut turn: Turn<F>) -> io::Result<Turn<F>> {
        loop {
            // Replies that fit the socket's buffer are sent before anything is awaited.
            if !self.unwritten.is_empty() || self.stream.has_unsent() {
                self.note_silent();
                self.note_kept();
                Box::pin(self.flush()).await?;
            }
            self.note_kept();
            // After a wait, the requests that were read before come first.
            let read = match turn {
                Turn::Done => true,
                // Other connections of this shard have their turn before a client that receives a long reply.
                Turn::Again => {
                    poll_fn(|cx| self.poll_pass(cx)).await;
                    false
                }
                Turn::Close | Turn::Unauthorized => {
                    // A guest that will not be served makes room for others.
                    self.note_silent();
                    let Connection { stream, member, .. } = self;
                    Box::pin(stream.linger(|| member.note_drained())).await;
                    return Ok(Turn::End);
                }
                Turn::End => return Ok(Turn::End),
                late @ (Turn::Waits(..) | Turn::Paced(..)) => {
                    Box::pin(self.answer_late(late)).await?;
                    false
                }
            };
            if read && self.keeps_much() {
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
            if self.guest.is_some() && Box::pin(self.leaves_lobby(&mut turn)).await {
                return Ok(turn);
            }
        }
    }

    /// Waits for a request's IDs and encodes its reply. Then waits for a pass if more requests were read behind it than a short
    /// turn takes.
    ///
    /// When a source has IDs again, all connections that waited for them come at the same time.
    async fn answer_late(&mut self, turn: Turn<F>) -> io::Result<()> {
        let mut waits = match turn {
            Turn::Waits(waiting, form) => Some((waiting, form)),
            Turn::Paced(paced, form) => {
                Box::pin(self.pace(paced, form)).await?.map(|waiting| (waiting, form))
            }
            _ => None,
        };
        while let Some((waiting, form)) = waits {
            waits = self.wait(waiting, form).await?.map(|waiting| (waiting, form));
        }
        if self.unread.len() > SHORT_READ_BYTES_MAX {
            self.flush().await?;
            poll_fn(|cx| self.poll_pass(cx)).await;
        }
        Ok(())
    }

    /// Waits this long for bytes, and takes a turn with them.
    async fn turn_within(&mut self, version: u64, deadline: Duration) -> io::Result<Turn<F>> {
        match tokio::time::timeout(deadline, poll_fn(|cx| self.poll_turn(cx, version))).await {
            Ok(turn) => turn,
            // Bytes may have arrived while it waited for its turn.
            Err(_) if self.place.is_queued() => self.last_turn(version).await,
            Err(_) => Ok(Turn::End),
        }
    }

    /// Takes a turn once the turnstile lets it pass. Ends the connection if no bytes have arrived by then.
    async fn last_turn(&mut self, version: u64) -> io::Result<Turn<F>> {
        poll_fn(|cx| match self.poll_turn(cx, version) {
            Poll::Pending if !self.place.is_queued() => Poll::Ready(Ok(Turn::End)),
            polled => polled,
        })
        .await
    }

    /// Returns true while the reply to an earlier message is not whole.
    fn is_amid_reply(&self) -> bool {
        self.backlog.is_some() || self.front.has_kept_requests()
    }

    /// Returns how long to wait for bytes, and the version of the configuration with that timeout.
    fn deadline(&self) -> (u64, Option<Duration>) {
        let live_config = self.member.thread.live_config.borrow();
        let limits = &live_config.limits;
        // A long transaction that has begun is a request that has half arrived.
        let deadline = if self.unread.is_empty() && self.front.kept_bytes() <= KEPT_FREELY {
            limits.idle_timeout
        } else {
            let late = clock::os::boot().since(self.read_at);
            Some(limits.stall_timeout.saturating_sub(late))
        };
        (live_config.version, deadline)
    }

    /// Reads, and takes a turn with the bytes. If none have arrived and the configuration is no longer of `version`, the
    /// turn is done at once, so that the next one has the new deadline.
    fn poll_turn(&mut self, cx: &mut Context<'_>, version: u64) -> Poll<io::Result<Turn<F>>> {
        let thread = Rc::clone(&self.member.thread);
        let state = &mut *thread.turn.borrow_mut();
        state.wakers.remember(self.member.slot(), cx.waker());
        // One without bytes waits for them, and not for a pass.
        if self.place.is_busy() && (self.place.is_queued() || self.stream.is_readable(cx)) {
            ready!(self.poll_pass(cx));
        }
        let mut input = std::mem::take(&mut state.input);
        let live_config = &thread.live_config.borrow();
        let polled = self.poll_turn_with(&thread, live_config, state, &mut input, cx);
        state.input = input;
        if polled.is_pending() {
            self.note_silent();
            let of_tls = tls_cost(self.stream.take_tls_read());
            if self.place.has_pass() || of_tls > 0 {
                // A part of a TLS record was read, or records without bytes for the reader.
                thread.turnstile.end_turn(&mut self.place, TURN_COST + of_tls);
            }
        }
        match polled {
            Poll::Pending if live_config.version != version => Poll::Ready(Ok(Turn::Done)),
            polled => polled,
        }
    }

    /// Completes when the connection has a pass for its next turn.
    fn poll_pass(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.member.thread.turnstile.poll_pass(&mut self.place, cx)
    }

    fn poll_turn_with(
        &mut self,
        thread: &Rc<ThreadState>,
        live_config: &LiveConfig,
        state: &mut TurnState,
        input: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Turn<F>>> {
        self.turn_cost = TURN_COST;
        if !self.session.is_of(live_config.version)
            && let Some(last) = self.renew(thread, live_config, state)
        {
            return Poll::Ready(Ok(self.end_turn(thread, state, last, Some(cx))));
        }
        let kept = self.unread.len();
        let end = ready!(self.poll_input(thread, input, cx))?;
        if end == kept {
            return Poll::Ready(Ok(Turn::End));
        }
        thread.counters.received_bytes.add((end - kept) as u64);
        if let Some(guest) = &mut self.guest {
            guest.note_heard();
        }
        let now = thread.now();
        let half_began = std::mem::replace(&mut self.read_at, now.boot);
        state.shard.wake(now);
        let turn = self.take(thread, live_config, state, (&input[..end], now.wall));
        if kept > 0 && self.unread.len() == end {
            // This is still the same half request. A half request behind whole ones began with this read.
            self.read_at = half_began;
        }
        let ended = self.end_turn(thread, state, turn, Some(cx));
        let requests = &thread.counters.protocols[F::PROTOCOL as usize].requests;
        state.timing.end_turn(&thread.counters.latency, requests, now.boot);
        Poll::Ready(Ok(ended))
    }

    /// Reads behind the bytes that the last turn kept. Returns the number of bytes in `input`, the kept ones included.
    #[inline]
    fn poll_input(
        &mut self,
        thread: &ThreadState,
        input: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let kept = self.unread.len();
        input[..kept].copy_from_slice(&self.unread);
        let read_bytes_max =
            if self.place.has_pass() { self.share.read_bytes_max() } else { SHORT_READ_BYTES_MAX };
        let read_to = input.len().min(kept + read_bytes_max);
        let mut buffer = ReadBuf::new(&mut input[..read_to]);
        buffer.advance(kept);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        if polled.is_pending() {
            let awaits_first = self.read_at == NEVER_READ && thread.awaits_newcomers.get();
            // A request that has half arrived is answered once its rest has.
            let awaits_rest = !self.unread.is_empty() && self.member.is_undrained();
            if thread.draining.get() && !awaits_first && !awaits_rest {
                self.member.note_drained();
            }
        }
        polled.map_ok(|()| buffer.filled().len())
    }

    /// Takes a turn with bytes that were read before.
    fn turn_of_unread(&mut self) -> Turn<F> {
        let thread = Rc::clone(&self.member.thread);
        let state = &mut *thread.turn.borrow_mut();
        let unread = std::mem::take(&mut self.unread);
        self.turn_cost = TURN_COST;
        let now = thread.now();
        state.shard.wake(now);
        let live_config = &thread.live_config.borrow();
        let is_outdated = !self.session.is_of(live_config.version);
        let last = if is_outdated { self.renew(&thread, live_config, state) } else { None };
        let turn = last.unwrap_or_else(|| self.take(&thread, live_config, state, (&unread, now.wall)));
        let requests = &thread.counters.protocols[F::PROTOCOL as usize].requests;
        state.timing.end_late_turn(&thread.counters.latency, requests, self.read_at, now.boot);
        if matches!(turn, Turn::Done) {
            // The rest is half a request. Its time to arrive starts now, because nothing more was read until here.
            self.read_at = now.boot;
        }
        self.end_turn(&thread, state, turn, None)
    }
}
