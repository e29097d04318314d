//! The outage of a daemon of our own: requests due in it do not count.

use std::time::Duration;

use super::Now;

/// The outage as one thread sees it, in nanoseconds from the start of the run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    /// `None` in a run without one.
    pub(super) from_ns: Option<u64>,
    /// The instant at which all connections were back.
    pub(super) back_ns: Option<u64>,
}

impl Window {
    /// Returns true if a request that is due then does not count.
    pub(super) fn holds(self, due_ns: u64) -> bool {
        self.from_ns.is_some_and(|from_ns| (from_ns..self.back_ns.unwrap_or(u64::MAX)).contains(&due_ns))
    }

    /// Returns the time since its start while it lasts.
    pub(super) fn lasting(self, now: Now) -> Option<Duration> {
        let from_ns = self.from_ns.filter(|_| self.holds(now.ns))?;
        Some(Duration::from_nanos(now.ns - from_ns))
    }
}
