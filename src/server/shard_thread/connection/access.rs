//! The session of a connection: follows reloads, and logs who came.

use super::super::thread_state::ThreadState;
use super::super::turn_state::TurnState;
use super::{Connection, Turn};
use crate::access::Session;
use crate::clock::{self, BootMicros};
use crate::front::{Front, Words};
use crate::server::net::accept::OpenConnection;
use crate::server::net::rejections;
use crate::server::net::socket_stream::SocketStream;
use crate::server::shared::live_config::LiveConfig;
use snowbank_client::protocol::ErrorCode;

/// Begins the session of a connection.
pub(in super::super) fn begin<F: Front>(
    stream: &SocketStream,
    open: &mut OpenConnection,
    live_config: &LiveConfig,
) -> Session {
    let rules = (&live_config.facts.access, live_config.version);
    let session = Session::new(rules, stream.shown(), open.take_seat(), clock::os::boot());
    if F::HAS_TOKENS { session } else { session.without_token(rules.0) }
}

impl<F: Front> Connection<F> {
    /// Follows a reload. Returns the last turn if the configuration takes away what the client has shown.
    #[cold]
    pub(super) fn renew(
        &mut self,
        thread: &ThreadState,
        live_config: &LiveConfig,
        state: &mut TurnState,
        now: BootMicros,
    ) -> Option<Turn<F>> {
        let rules = (&live_config.facts.access, live_config.version);
        let denial = self.session.renew(rules, self.stream.shown(), now).err()?;
        rejections::log(self.stream.peer(), &format!("after a reload: {denial}"));
        let words = Words { code: ErrorCode::Unauthorized, retry_after: None, message: denial.to_string() };
        self.front.farewell(&mut state.output, &words);
        thread.counters.note_error(F::PROTOCOL, words.code);
        Some(Turn::Close)
    }

    /// Logs an identity that was not seen before.
    pub(super) fn log_newcomer(&mut self) {
        if let Some(identity) = self.session.newcomer() {
            let peer = self.stream.peer();
            tracing::info!(
                identity = identity.name,
                peer,
                "an identity has connected, for the first time since the start"
            );
        }
    }
}
