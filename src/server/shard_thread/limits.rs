//! The limits of a client: which sources its requests may draw from, and how fast. Requests of clients without limits never
//! come here.

use std::sync::atomic::Ordering;

use crate::access::{Permit, Session};
use crate::clock::{self, BootMicros};
use crate::frontends::{Ask, Reason};
use crate::server::shared::live_config::LiveConfig;

/// The permit of a request. Dropped before its IDs are drawn, it gives them back to the client's rates.
#[derive(Debug)]
pub(super) struct Held(Option<Permit>);

impl Held {
    /// The permit of a client without limits.
    pub(super) const UNLIMITED: Held = Held(None);

    /// Notes that this many IDs were drawn, and gives back the others.
    pub(super) fn note_drawn(mut self, count: u64) {
        if let Some(mut permit) = self.0.take().filter(|permit| count < permit.count) {
            permit.settle(count, clock::os::boot());
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(permit) = &mut self.0 {
            permit.settle(0, clock::os::boot());
        }
    }
}

/// Permits a request that was read at `now` and is due by `due`. Returns the permit, the request with the number of IDs
/// that it may draw, and the time from which it may draw them.
///
/// # Errors
/// The reason why it gets none.
#[cold]
pub(super) fn permit(
    live_config: &LiveConfig,
    session: &Session,
    ask: &Ask,
    now: BootMicros,
    due: BootMicros,
) -> Result<(Held, Ask, BootMicros), Reason> {
    if let Some(identity) = session.identity() {
        identity.usage.asked.fetch_add(1, Ordering::Relaxed);
    }
    if !session.may_draw(ask.source) {
        log_denied(live_config, session, ask.source);
        return Err(Reason::Denied);
    }
    match session.reserve(now, due, ask.count, ask.partial) {
        Ok(permit) => {
            if permit.slowed_to.is_some() {
                log_slowed(session);
            }
            let (ask, at) = (Ask { count: permit.count, ..*ask }, permit.at);
            Ok((Held(Some(permit)), ask, at))
        }
        Err(too_fast) => {
            log_slowed(session);
            Err(Reason::TooFast(too_fast))
        }
    }
}

fn log_denied(live_config: &LiveConfig, session: &Session, source: usize) {
    let Some(identity) = session.identity() else { return };
    if let Some(count) = identity.usage.denied.note(clock::os::boot()) {
        tracing::warn!(
            identity = identity.name,
            source = live_config.source(source).name(),
            count,
            "an identity asked for IDs of a source that it may not draw from; see its sources in [[identities]]"
        );
    }
}

fn log_slowed(session: &Session) {
    let Some(identity) = session.identity() else { return };
    if let Some(count) = identity.usage.slowed.note(clock::os::boot()) {
        tracing::warn!(
            identity = identity.name,
            rate = identity.per_second(),
            count,
            "requests wait or are refused: their identity has used up its rate"
        );
    }
}
