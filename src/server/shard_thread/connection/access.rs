//! The session of a connection follows reloads.

use super::super::authorization;
use super::super::thread_state::ThreadState;
use super::super::turn_state::TurnState;
use super::{Connection, Turn};
use crate::front::{Front, Words};
use crate::server::shared::live_config::LiveConfig;
use snowbank_client::protocol::ErrorCode;

impl<F: Front> Connection<F> {
    /// Follows a reload. Returns the last turn if the configuration no longer accepts the client's token or certificate.
    #[cold]
    pub(super) fn renew(
        &mut self,
        thread: &ThreadState,
        live_config: &LiveConfig,
        state: &mut TurnState,
    ) -> Option<Turn<F>> {
        let rules = (&live_config.facts.access, live_config.version);
        self.session.renew(rules, self.stream.shown()).err()?;
        // A reply that has begun is ended first. If it answers several requests, those that have not drawn yet are
        // refused in it.
        if self.is_amid_reply() { None } else { self.close_revoked(thread, state) }
    }

    /// Ends a connection whose client a reload no longer accepts. Returns the last turn, or `None` for any other.
    #[cold]
    pub(super) fn close_revoked(&mut self, thread: &ThreadState, state: &mut TurnState) -> Option<Turn<F>> {
        let denial = self.session.revoked()?;
        authorization::log_revoked(&self.stream.peer(), denial);
        let words = Words { code: ErrorCode::Unauthorized, retry_after: None, message: denial.to_string() };
        self.front.farewell(&mut state.output, &words);
        thread.counters.note_error(F::PROTOCOL, words.code);
        Some(Turn::Close)
    }

    /// Logs an identity that was not seen before.
    pub(super) fn log_newcomer(&mut self) {
        authorization::log_newcomer(&mut self.session, || self.stream.peer());
    }
}
