//! The time until a client has sent its token. Its connection is a guest of the lobby until then.

use std::io;

use tokio::time::{sleep, timeout};

use super::super::authorization::{NoToken, UNAUTHORIZED_DELAY, enter_lobby, note_no_token};
use super::{Connection, TurnEnd};
use crate::front::Front;
use crate::server::net::lobby::AUTHORIZED_WITHIN;
use snowbank_client::protocol::MAX_REQUEST_SIZE;

/// The bytes that a short turn reads at most: one request of Snowbank's own protocol of any size, or 64 common ones. Turns
/// of guests and turns without a pass of the turnstile are short.
pub(in super::super) const SHORT_READ_BYTES_MAX: usize = MAX_REQUEST_SIZE;

impl<F: Front> Connection<F> {
    /// Serves the connection until the client has sent its token. Returns the end of that turn, or
    /// [`TurnEnd::End`].
    pub(super) async fn authorize(&mut self) -> io::Result<TurnEnd<F>> {
        let guest = match self.guest.take() {
            Some(guest) => guest,
            None => Box::new(enter_lobby(&self.member.thread).await),
        };
        let guest = self.guest.insert(guest);
        let shown_out = guest.shown_out();
        let why = tokio::select! {
            biased;
            () = shown_out => NoToken::GaveWay,
            turn = timeout(AUTHORIZED_WITHIN, self.run(TurnEnd::Done)) => match turn {
                Ok(turn) => return turn,
                Err(_) => NoToken::TimedOut,
            },
        };
        note_no_token(&self.member.thread, (&self.stream.peer(), &self.stream.origin()), why);
        Ok(TurnEnd::End)
    }

    /// Leaves the lobby if the client has sent its token. Delays a client whose token is wrong.
    pub(super) async fn leaves_lobby(&mut self, turn: &mut TurnEnd<F>) -> bool {
        if self.session.is_authorized() {
            self.guest = None;
            return true;
        }
        match turn {
            TurnEnd::Unauthorized => {
                // A stop does not wait for it.
                self.member.note_drained();
                self.note_silent();
                sleep(UNAUTHORIZED_DELAY).await;
            }
            // No token is that long.
            TurnEnd::Done if self.exchange.unread.len() > SHORT_READ_BYTES_MAX => *turn = TurnEnd::End,
            _ => {}
        }
        false
    }

    /// Notes in the lobby that the client must act next.
    pub(super) fn note_silent(&mut self) {
        if let Some(guest) = &mut self.guest {
            guest.note_silent();
        }
    }
}
