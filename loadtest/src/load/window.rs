//! The time of an announced outage: requests due in it do not count.

use std::time::Duration;

use super::Now;

/// The outage as one thread sees it, in nanoseconds from the start of the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    from_ns: u64,
    /// The announced end. `None` of an outage that lasts until all is back.
    announced_ns: Option<u64>,
    /// The first time at which a connection was down.
    down_ns: Option<u64>,
    /// The last time at which all were back.
    back_ns: Option<u64>,
}

impl Window {
    /// Takes the start, and the length if it was announced.
    pub(super) fn new(from: Duration, within: Option<Duration>) -> Self {
        let ns = |time: Duration| time.as_nanos() as u64;
        Self {
            from_ns: ns(from),
            announced_ns: within.map(|within| ns(from + within)),
            down_ns: None,
            back_ns: None,
        }
    }

    /// Returns true if a request that is due then does not count.
    pub(super) fn holds(&self, due_ns: u64) -> bool {
        let until_ns = self.announced_ns.or(self.back_ns).unwrap_or(u64::MAX);
        (self.from_ns..until_ns).contains(&due_ns)
    }

    /// Returns true while connections may go.
    pub(super) fn is_open(&self, now: Now) -> bool {
        now.ns >= self.from_ns
            && match self.announced_ns {
                Some(until_ns) => now.ns < until_ns,
                None => self.back_ns.is_none(),
            }
    }

    /// Returns its start once that is past.
    pub(super) fn begun(&self, now: Now) -> Option<u64> {
        (now.ns >= self.from_ns).then_some(self.from_ns)
    }

    /// Returns true if its end was announced.
    pub(super) fn is_announced(&self) -> bool {
        self.announced_ns.is_some()
    }

    /// Returns the time since its start.
    pub(super) fn lasted(&self, now: Now) -> Duration {
        Duration::from_nanos(now.ns.saturating_sub(self.from_ns))
    }

    /// Returns the longest time that connections may be down: the announced one, or else this.
    pub(super) fn longest(&self, otherwise: Duration) -> Duration {
        self.announced_ns.map_or(otherwise, |until_ns| Duration::from_nanos(until_ns - self.from_ns))
    }

    /// Notes that a connection is down.
    pub(super) fn down(&mut self, now: Now) {
        self.down_ns.get_or_insert(now.ns);
        self.back_ns = None;
    }

    /// Notes that all connections are back. Returns the length of the outage, from its start, or from the first
    /// connection that went.
    pub(super) fn back(&mut self, now: Now) -> Duration {
        self.back_ns = Some(now.ns);
        let since_ns = if self.is_announced() { self.down_ns.unwrap_or(now.ns) } else { self.from_ns };
        Duration::from_nanos(now.ns.saturating_sub(since_ns))
    }

    /// Returns true if a connection went and not all are back.
    pub(super) fn is_down(&self) -> bool {
        self.down_ns.is_some() && self.back_ns.is_none()
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
    fn an_outage_of_our_own_lasts_until_all_is_back() {
        let mut window = Window::new(Duration::from_secs(1), None);
        assert!(!window.is_open(at(S - 1)) && window.is_open(at(S)) && window.holds(9 * S));
        window.down(at(S + 5));
        assert_eq!(window.back(at(3 * S)), Duration::from_secs(2));
        assert!(!window.is_open(at(3 * S)) && !window.holds(3 * S) && window.holds(3 * S - 1));
    }

    #[test]
    fn an_announced_one_has_its_window_and_the_length_that_was_seen() {
        let mut window = Window::new(Duration::from_secs(1), Some(Duration::from_secs(5)));
        assert!(window.holds(S) && window.holds(6 * S - 1) && !window.holds(6 * S));
        window.down(at(2 * S));
        assert!(window.is_down());
        assert_eq!(window.back(at(3 * S)), Duration::from_secs(1));
        // The service is restarted twice.
        window.down(at(4 * S));
        assert!(window.is_down() && window.is_open(at(5 * S)));
        assert_eq!(window.back(at(5 * S)), Duration::from_secs(3));
        assert_eq!(
            (window.lasted(at(7 * S)), window.longest(Duration::MAX)),
            (Duration::from_secs(6), Duration::from_secs(5))
        );
    }
}
