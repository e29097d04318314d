//! The time until a client has sent its token. Its connection is pending until then.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Connection, TurnEnd};
use crate::frontends::FrontEnd;
use crate::server::net::pending::{AUTHORIZED_WITHIN, places_of};
use crate::server::net::rejections;
use snowbank_client::protocol::MAX_REQUEST_SIZE;

/// The delay before a client learns that its token is wrong or missing. The client holds one of few
/// places meanwhile, so guesses are slow. A second does not matter to a client with a mistake in
/// its configuration.
const UNAUTHORIZED_DELAY: Duration = Duration::from_secs(1);

/// The bytes that a short turn reads at most: one request of Snowbank's own protocol of any size,
/// or 64 common ones. Turns of pending connections and turns without a permit are short.
pub(super) const SHORT_READ_BYTES_MAX: usize = MAX_REQUEST_SIZE;

impl<F: FrontEnd> Connection<F> {
    /// Serves the connection until the client has sent its token. Returns how that turn ended, or
    /// [`TurnEnd::End`].
    pub(super) async fn authorize(&mut self) -> io::Result<TurnEnd<F>> {
        let thread = Rc::clone(&self.member.thread);
        let pending = match self.pending.take() {
            Some(pending) => pending,
            // The TLS handshake has given up its own place.
            None => {
                let places = places_of(thread.live_config.borrow().limits.max_connections);
                Box::new(thread.common.pending.tokens.enter(places).await)
            }
        };
        let pending = self.pending.insert(pending);
        let evicted = pending.evicted();
        let reason = tokio::select! {
            biased;
            () = evicted => "it sent no token, and a newcomer needed its place",
            turn = timeout(AUTHORIZED_WITHIN, self.run(TurnEnd::Done)) => match turn {
                Ok(turn) => return turn,
                Err(_) => {
                    thread.counters.unauthorized_timeouts.add(1);
                    "it sent no token within five seconds"
                }
            },
        };
        rejections::log_unauthorized(self.stream.peer(), &self.stream.origin(), reason);
        Ok(TurnEnd::End)
    }

    /// If the client has sent its token, gives up the place among the pending connections and
    /// returns true. Delays a client whose token is wrong.
    pub(super) async fn leaves_pending(&mut self, turn: &mut TurnEnd<F>) -> bool {
        if self.session.is_authorized() {
            self.pending = None;
            return true;
        }
        match turn {
            TurnEnd::Unauthorized => {
                // A stop does not wait for this client.
                self.member.note_drained();
                self.note_silent();
                sleep(UNAUTHORIZED_DELAY).await;
            }
            // No message with a token is that long.
            TurnEnd::Done if self.exchange.unread.len() > F::TOKEN_MESSAGE_BYTES_MAX => *turn = TurnEnd::End,
            _ => {}
        }
        false
    }

    /// Notes among the pending connections that the client must act next.
    pub(super) fn note_silent(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.note_silent();
        }
    }
}
