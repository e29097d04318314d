//! Decides when a connection has a turn, and ends those that stall, owe a token, are locked out or have nothing more to
//! send. The library ends the others: after an error, or after the last answer if the daemon stops, or if the request or
//! the answer says that the connection ends.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, Sleep, sleep_until};

use super::body::Body;
use super::respond::Responder;
use super::watched::{Activity, Watched};
use crate::access::Denial;
use crate::server::net::lobby::{AUTHORIZED_WITHIN, Guest};
use crate::server::shard_thread::authorization::NoToken;
use crate::server::shard_thread::member::Member;
use crate::server::shard_thread::turnstile::Place;

/// The end of a connection.
pub(super) enum End {
    /// It was closed in order, or by an error of the peer.
    Closed,
    /// The peer did not finish a request or a read, or was silent for too long.
    Stalled,
    /// The peer sent bytes that are no request. The library has answered it with 400, a client of HTTP/2 with nothing.
    Stranger,
    /// The head of a request was too long. The library has answered it with 431.
    TooLong,
    /// The client sent no token.
    NoToken(NoToken),
    /// A reload removed the client's token or certificate.
    Revoked(Denial),
}

/// A connection, and the state that decides when it ends.
pub(super) struct Attendant<'a> {
    member: Member,
    activity: &'a Activity,
    responder: &'a Responder,
    /// Its place at the turnstile.
    place: Place,
    /// Its place in the lobby until the client has sent its token.
    guest: Option<Guest>,
    /// Completes when a newcomer needs that place.
    shown_out: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// When the token must have come.
    token_due: Instant,
    timer: Pin<Box<Sleep>>,
    is_stopping: bool,
}

impl<'a> Attendant<'a> {
    pub(super) fn new(
        member: Member,
        (activity, responder): (&'a Activity, &'a Responder),
        guest: Option<Guest>,
    ) -> Attendant<'a> {
        let shown_out: Option<Pin<Box<dyn Future<Output = ()>>>> = match &guest {
            Some(guest) => Some(Box::pin(guest.shown_out())),
            None => None,
        };
        let token_due = Instant::now() + AUTHORIZED_WITHIN;
        let timer = Box::pin(sleep_until(token_due));
        let place = Place::default();
        Attendant {
            member,
            activity,
            responder,
            place,
            guest,
            shown_out,
            token_due,
            timer,
            is_stopping: false,
        }
    }

    /// Lets the library serve the connection for a turn, once the turnstile lets it pass. Ready when the connection must be
    /// closed.
    pub(super) fn poll<S>(
        &mut self,
        connection: Pin<&mut http1::Connection<TokioIo<Watched>, S>>,
        cx: &mut Context<'_>,
    ) -> Poll<End>
    where
        S: HttpService<Incoming, ResBody = Body, Error = Infallible>,
    {
        self.member.remember(cx.waker());
        let thread = Rc::clone(&self.member.thread);
        if self.place.is_busy() {
            ready!(thread.turnstile.poll_pass(&mut self.place, cx));
        }
        self.activity.cost.begin(self.place.has_pass());
        let polled = self.poll_turn(connection, cx);
        thread.turnstile.end_turn(&mut self.place, self.activity.cost.spent());
        polled
    }

    fn poll_turn<S>(
        &mut self,
        mut connection: Pin<&mut http1::Connection<TokioIo<Watched>, S>>,
        cx: &mut Context<'_>,
    ) -> Poll<End>
    where
        S: HttpService<Incoming, ResBody = Body, Error = Infallible>,
    {
        if let Some(guest) = &mut self.guest {
            guest.note_heard();
        }
        let polled = connection.as_mut().poll(cx);
        self.member.note_kept(self.activity.kept_bytes());
        if let Poll::Ready(ended) = polled {
            return Poll::Ready(match ended {
                Err(error) if error.is_parse_too_large() => End::TooLong,
                Err(error) if error.is_parse() => End::Stranger,
                _ => End::Closed,
            });
        }
        if self.activity.is_over() {
            return Poll::Ready(End::Closed);
        }
        // An answer that has begun is written whole.
        if !self.activity.is_amid_answer()
            && let Err(denial) = self.responder.renew()
        {
            return Poll::Ready(End::Revoked(denial));
        }
        if self.must_stop() {
            self.is_stopping = true;
            connection.as_mut().graceful_shutdown();
            if connection.poll(cx).is_ready() {
                return Poll::Ready(End::Closed);
            }
        }
        if self.must_give_way(cx) {
            return Poll::Ready(End::NoToken(NoToken::GaveWay));
        }
        self.poll_deadline(cx)
    }

    /// Returns true once, when the daemon stops.
    fn must_stop(&self) -> bool {
        let thread = &self.member.thread;
        // A client that connected just before the stop may have sent its first request.
        let may_speak = !self.activity.has_spoken() && thread.awaits_newcomers.get();
        // A request that has half arrived is answered once its rest has.
        let awaits_rest = self.activity.awaits_rest() && self.member.is_undrained();
        thread.draining.get() && !self.is_stopping && !may_speak && !awaits_rest
    }

    /// Leaves the lobby once the client has sent its token. Returns true if a newcomer needs its place before.
    fn must_give_way(&mut self, cx: &mut Context<'_>) -> bool {
        if self.responder.is_authorized() {
            (self.guest, self.shown_out) = (None, None);
        }
        let (Some(guest), Some(shown_out)) = (&mut self.guest, &mut self.shown_out) else { return false };
        if self.activity.is_answering() && !self.responder.is_delaying() {
            return false;
        }
        guest.note_silent();
        shown_out.as_mut().poll(cx).is_ready()
    }

    /// Ready when the client's time to act is over.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let stalled = {
            let limits = &self.member.thread.live_config.borrow().limits;
            self.activity.deadline(limits.stall_timeout, limits.idle_timeout)
        };
        let owed = self.guest.as_ref().map(|_| self.token_due);
        let Some(deadline) = owed.into_iter().chain(stalled).min() else { return Poll::Pending };
        if self.timer.deadline() != deadline {
            self.timer.as_mut().reset(deadline);
        }
        let end = if owed == Some(deadline) { End::NoToken(NoToken::TimedOut) } else { End::Stalled };
        self.timer.as_mut().poll(cx).map(|()| end)
    }
}
