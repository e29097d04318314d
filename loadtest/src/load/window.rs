//! The outage of a daemon of our own: requests due in it do not count.

use std::time::Duration;

use super::Now;

/// The outage as one thread sees it, in nanoseconds from the start of the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    from_ns: u64,
    /// The instant at which all connections were back.
    back_ns: Option<u64>,
}

impl Window {
    pub(super) fn new(from: Duration) -> Self {
        Self { from_ns: from.as_nanos() as u64, back_ns: None }
    }

    /// Returns true if a request that is due then does not count.
    pub(super) fn holds(&self, due_ns: u64) -> bool {
        (self.from_ns..self.back_ns.unwrap_or(u64::MAX)).contains(&due_ns)
    }

    /// Returns the time since its start while it lasts.
    pub(super) fn lasting(&self, now: Now) -> Option<Duration> {
        self.holds(now.ns).then(|| Duration::from_nanos(now.ns - self.from_ns))
    }

    /// Returns its start once that is past.
    pub(super) fn begun(&self, now: Now) -> Option<u64> {
        (now.ns >= self.from_ns).then_some(self.from_ns)
    }

    /// Ends it.
    pub(super) fn end(&mut self, now: Now) {
        self.back_ns = Some(now.ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn at(ns: u64) -> Now {
        Now { ns, wall_us: 0 }
    }

    #[test]
    fn an_outage_lasts_until_all_is_back() {
        let mut window = Window::new(Duration::from_secs(1));
        assert_eq!(window.lasting(at(S - 1)), None);
        assert_eq!(window.lasting(at(3 * S)), Some(Duration::from_secs(2)));
        assert!(window.holds(9 * S));
        window.end(at(3 * S));
        assert_eq!(window.lasting(at(3 * S)), None);
        assert!(!window.holds(3 * S) && window.holds(3 * S - 1));
    }
}
