//! The session of a connection: follows reloads, and logs who came and who was denied.

use super::super::thread_state::ThreadState;
use super::super::turn_state::TurnState;
use super::{Connection, Turn};
use crate::access::Session;
use crate::clock::{self, BootMicros};
use crate::front::Front;
use crate::server::net::accept::OpenConnection;
use crate::server::net::rejections;
use crate::server::net::socket_stream::SocketStream;
use crate::server::shared::live_config::LiveConfig;
use snowbank_client::protocol::ErrorCode;

/// Begins the session of a connection.
pub(super) fn begin(stream: &SocketStream, open: &mut OpenConnection, thread: &ThreadState) -> Session {
    let live_config = thread.live_config.borrow();
    let rules = (&live_config.facts.access, live_config.version);
    Session::new(rules, stream.shown(), open.take_seat(), clock::os::boot())
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
    ) -> Option<Turn> {
        let rules = (&live_config.facts.access, live_config.version);
        let denial = self.session.renew(rules, self.stream.shown(), now).err()?;
        rejections::log(self.stream.peer(), &format!("after a reload: {denial}"));
        self.front.revoke(&mut state.output, denial);
        thread.counters.errors.add(ErrorCode::Unauthorized);
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

    /// Logs an identity that was not seen before, and a source that was denied.
    #[cold]
    pub(super) fn log_access(&mut self, live_config: &LiveConfig) {
        self.log_newcomer();
        let Some(source) = self.session.denied() else { return };
        let Some(identity) = self.session.identity() else { return };
        if let Some(count) = identity.usage.denied.note(clock::os::boot()) {
            let (source, peer) = (live_config.source(source).name(), self.stream.peer());
            tracing::warn!(
                identity = identity.name,
                source,
                peer,
                count,
                "an identity asked for IDs of a source that it may not draw from; see its sources in [[identities]]"
            );
        }
    }
}
