//! The authorization of a client, whatever its protocol: begins its session, and waits for its
//! place.

use std::time::Duration;

use super::thread_state::ThreadState;
use crate::access::Session;
use crate::server::net::pending::{self, Pending};
use crate::server::net::socket_stream::SocketStream;
use crate::server::shared::live_config::LiveConfig;

/// The delay before a client learns that its token is wrong or missing. The client holds one of few
/// places meanwhile, so guesses are slow. A second does not matter to a client with a mistake in
/// its configuration.
pub(super) const UNAUTHORIZED_DELAY: Duration = Duration::from_secs(1);

/// Begins the session of a connection. `has_tokens`: its protocol has a place for a token.
pub(super) fn begin(stream: &SocketStream, live_config: &LiveConfig, has_tokens: bool) -> Session {
    let rules = &live_config.facts.access;
    let session = Session::new(rules, live_config.version, stream.shown());
    if has_tokens { session } else { session.without_token(rules) }
}

/// Waits for a place among the pending connections, for a connection whose client owes a token.
pub(super) async fn enter_pending(thread: &ThreadState) -> Pending {
    let places = pending::places_of(thread.live_config.borrow().limits.max_connections);
    thread.common.pending.tokens.enter(places).await
}
