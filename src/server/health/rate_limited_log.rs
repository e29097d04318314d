//! Limits how often an event that repeats is logged. A flood of equal lines would hide all other
//! lines, and fill the disk.

use std::time::Duration;

use tokio::time::Instant;

/// The time between two log lines about one kind of event. The lines of an hour fit on a page.
const PERIOD: Duration = Duration::from_secs(60);

/// Events of one kind. The first event is logged at once. Later events are logged at most once in
/// each [`PERIOD`], as one line with their number.
#[derive(Debug, Default)]
pub(crate) struct RateLimited {
    logged_at: Option<Instant>,
    unlogged: u64,
}

impl RateLimited {
    /// Returns true if the last log line is less than [`PERIOD`] old.
    pub(crate) fn is_recent(&self, now: Instant) -> bool {
        self.logged_at.is_some_and(|logged_at| now.duration_since(logged_at) < PERIOD)
    }

    /// Counts an event. If the event must be logged, returns the number of events since the last
    /// log line, this event included.
    pub(crate) fn count(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        if self.is_recent(now) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}
