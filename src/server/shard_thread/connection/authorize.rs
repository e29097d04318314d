//! Waits for the client's token. Until the token arrives, the connection is pending.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Connection, TurnEnd};
use crate::frontends::FrontEnd;
use crate::server::health::metrics::CloseReason;
use crate::server::net::pending::{AUTHORIZED_WITHIN, places_of};
use snowbank_wire::MAX_REQUEST_SIZE;

/// The delay before a client learns that its token is wrong or missing. During the delay, the
/// connection occupies one of few places, so guessing tokens is slow. The delay does not harm an
/// honest client that has a wrong configuration. A client waits for a second for the answer.
const UNAUTHORIZED_DELAY: Duration = Duration::from_millis(800);

/// The silence after which a connection closes whose token was refused, or whose requests were too
/// many errors. Until then, the client gets answers to what it has sent already, and to what it sends
/// next. For example, go-redis tries AUTH after a refused HELLO. Without an answer, clients report a
/// broken connection instead of their mistake. No second token is looked at, so guessing tokens is
/// not quicker.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// The most bytes that a short turn reads. One request of any size in Snowbank's own protocol fits,
/// or 64 common requests. Turns without a permit are short.
pub(super) const SHORT_READ_BYTES_MAX: usize = MAX_REQUEST_SIZE;

impl<F: FrontEnd> Connection<F> {
    /// Serves the connection until the client has sent its token. Returns how the turn with the
    /// token ended, or [`TurnEnd::End`] if the connection is over.
    pub(super) async fn authorize(&mut self) -> io::Result<TurnEnd<F>> {
        let thread = Rc::clone(&self.member.thread);
        let pending = match self.pending.take() {
            Some(pending) => pending,
            // The connection has no place yet. If it had a place for its TLS handshake, that place
            // was under another limit, and is free again.
            None => {
                let places = places_of(thread.live_config.borrow().limits.max_connections);
                Box::new(thread.common.pending.tokens.enter(places).await)
            }
        };
        let pending = self.pending.insert(pending);
        let evicted = pending.evicted();
        let is_late = tokio::select! {
            biased;
            () = evicted => false,
            turn = timeout(AUTHORIZED_WITHIN, self.run(TurnEnd::Done)) => match turn {
                Ok(turn) => return turn,
                Err(_) => true,
            },
        };
        if self.exchange.is_ending {
            // That was counted and logged when the end began.
        } else if is_late {
            thread.counters.unauthorized_timeouts.add(1);
            self.record_unauthorized("it sent no token within five seconds");
        } else {
            self.record_unauthorized("it sent no token, and a newcomer needed its place");
        }
        Ok(TurnEnd::End)
    }

    /// Counts and logs that the daemon closes the connection, because the client sent no token.
    fn record_unauthorized(&self, reason: &str) {
        let thread = &self.member.thread;
        thread.common.rejections.close(CloseReason::Unauthorized, &self.stream.ends(), reason);
    }

    /// Follows a turn of a client that has sent no token. If the token was refused, sleeps for
    /// [`UNAUTHORIZED_DELAY`]. If the client has sent more bytes than a message with a token has,
    /// encodes a last message, and closes the connection.
    pub(super) async fn stay_pending(&mut self, turn: TurnEnd<F>) -> TurnEnd<F> {
        match turn {
            TurnEnd::Unauthorized => {
                // A stop does not wait for the delay that follows.
                self.member.record_drained();
                self.record_silent();
                sleep(UNAUTHORIZED_DELAY).await;
                turn
            }
            TurnEnd::Done if self.exchange.unread.len() > F::TOKEN_MESSAGE_BYTES_MAX => {
                self.record_unauthorized("it sent more bytes than a message with a token has");
                self.exchange.say_too_long();
                TurnEnd::Close
            }
            turn => turn,
        }
    }

    /// Answers requests for another moment before the connection ends, so that a client that has
    /// sent several reads a reply to each. After a refused token none of them is granted.
    ///
    /// # Errors
    /// The connection failed.
    pub(super) async fn answer_before_end(&mut self) -> io::Result<()> {
        let mut turn = self.turn_of_unread();
        loop {
            self.record_silent();
            self.flush().await?;
            turn = match turn {
                TurnEnd::Done if self.exchange.unread.len() > F::TOKEN_MESSAGE_BYTES_MAX => return Ok(()),
                TurnEnd::Done => {
                    let version = self.member.thread.live_config.borrow().version;
                    match timeout(SILENT_FOR, poll_fn(|cx| self.poll_turn(cx, version))).await {
                        Ok(turn) => turn?,
                        Err(_) => return Ok(()),
                    }
                }
                TurnEnd::Again => {
                    poll_fn(|cx| self.poll_permit(cx)).await;
                    self.turn_of_unread()
                }
                TurnEnd::Parked(parked) => {
                    Box::pin(self.answer_late(parked)).await?;
                    self.turn_of_unread()
                }
                _ => return Ok(()),
            };
        }
    }

    /// Records that the daemon waits for the client, if the connection is pending.
    pub(super) fn record_silent(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.record_silent();
        }
    }
}
