//! One request in flight.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::exchange::Exchange;
use snowbank_wire::collect::{BadReply, Progress};
use snowbank_wire::reply::Reply as Frame;

/// One request that was sent and has no full reply yet.
pub(super) struct InFlight {
    pub(super) tag: u16,
    pub(super) exchange: Exchange,
    /// The same as in [`Call`](crate::client::call::Call).
    pub(super) moves_on_by: Option<Instant>,
    pub(super) sent_at: Instant,
    /// The time from which `wait` counts: the time at which this request was sent, or the time at
    /// which the request before it was answered, if that is later. Until then, the daemon may not
    /// have read this request.
    pub(super) read_by: Instant,
    /// The time that the daemon may hold the request after the daemon has read it.
    pub(super) wait: Duration,
    /// The time of the reply's latest frame, or else of the request. Frames that arrive after the
    /// caller abandoned its call do not count.
    pub(super) progress_at: Instant,
    pub(super) begun: bool,
}

impl InFlight {
    pub(super) fn add(&mut self, frame: &Frame<'_>) -> Result<Progress, BadReply> {
        self.begun = true;
        if !self.exchange.is_abandoned() {
            self.progress_at = Instant::now();
        }
        self.exchange.add(frame)
    }

    /// Returns the time at which the daemon counts as stalled. Each frame of the reply can move
    /// this time while the caller waits.
    pub(super) fn stalls_at(&self, limit: Duration) -> Instant {
        self.progress_at.max(self.read_by + self.wait) + limit
    }
}
