//! Holds a client to its limits: the sources that it may draw from, and its rate. Only requests of
//! clients that have limits are checked here.

use crate::os_clock;

use crate::access::{Permit, Session};
use crate::frontends::{Ask, Reason};
use snowbank_core::clock::BootMicros;

/// The permit of a request, if its client has limits. If the permit is dropped before IDs are
/// drawn, its IDs no longer count towards the client's rate.
#[derive(Debug)]
pub(super) struct Held(pub(super) Option<Permit>);

impl Held {
    /// The permit of a client without limits.
    pub(super) const UNLIMITED: Held = Held(None);

    /// Records that `count` IDs were drawn. The rest of the permitted IDs no longer count towards
    /// the client's rate.
    pub(super) fn record_drawn(mut self, count: u64) {
        if let Some(mut permit) = self.0.take().filter(|permit| count < permit.count) {
            permit.settle(count, os_clock::boot());
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(permit) = &mut self.0 {
            permit.settle(0, os_clock::boot());
        }
    }
}

/// Permits a request that was read at `now` and must be answered by `due`.
///
/// # Errors
/// Returns the reason why the request gets no permit.
#[cold]
pub(super) fn permit(
    session: &Session,
    ask: &Ask,
    now: BootMicros,
    due: BootMicros,
) -> Result<Permit, Reason> {
    let Some(usage) = session.identity().map(|identity| &identity.usage) else {
        // A reload has revoked the session's client.
        return Err(Reason::Denied);
    };
    usage.asked.add_shared();
    if !session.may_draw(ask.source) {
        usage.denied.add_shared();
        return Err(Reason::Denied);
    }
    let permitted = session.reserve(now, due, ask.count, ask.partial);
    if !permitted.as_ref().is_ok_and(|permit| permit.at == now) {
        usage.slowed.add_shared();
    }
    permitted.map_err(Reason::TooFast)
}
