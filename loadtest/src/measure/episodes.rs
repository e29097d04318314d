//! The times at which a target was late: one cause makes many requests late at once.
//!
//! Late requests come in bunches, so their number says little about chance. Bunches do: they are counted by
//! windows of the time in which requests were due, each with its worst.

use std::collections::BTreeMap;

/// As long as the stall of a host that is usual: what was due in one window may have one cause.
const WINDOW_NS: u64 = 20_000_000;

/// The worst time of each window, where any request of it was slow.
#[derive(Debug, Clone, Default)]
pub(crate) struct Episodes(BTreeMap<u64, u64>);

impl Episodes {
    /// Notes the time of a request by when it was due.
    pub(super) fn note(&mut self, due_ns: u64, time_ns: u64) {
        let worst_ns = self.0.entry(due_ns / WINDOW_NS).or_default();
        *worst_ns = time_ns.max(*worst_ns);
    }

    pub(super) fn merge(&mut self, other: Self) {
        other.0.into_iter().for_each(|(window, worst_ns)| self.note(window * WINDOW_NS, worst_ns));
    }

    /// Puts them after those of an earlier run.
    pub(crate) fn follow(&mut self, earlier: &Self) {
        let begin = earlier.0.last_key_value().map_or(0, |(&window, _)| window + 2);
        self.0 =
            std::mem::take(&mut self.0).into_iter().map(|(at, worst_ns)| (at + begin, worst_ns)).collect();
    }

    /// Returns the number of bunches with a time above the limit. Two windows next to each other are one.
    pub(crate) fn above(&self, limit_ns: u64) -> u64 {
        let late = self.0.iter().filter(|&(_, &worst_ns)| worst_ns > limit_ns);
        let (mut bunches, mut last) = (0, None);
        for (&window, _) in late {
            let is_second = last == window.checked_sub(1) && last.is_some();
            (bunches, last) = if is_second { (bunches, None) } else { (bunches + 1, Some(window)) };
        }
        bunches
    }

    /// Returns the worst time of all.
    pub(crate) fn worst_ns(&self) -> u64 {
        self.0.values().copied().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_requests_of_one_cause_are_one_bunch() {
        let mut episodes = Episodes::default();
        for due_ms in [0, 5, 19, 25, 100, 135, 141, 165] {
            episodes.note(due_ms * 1_000_000, 3_000_000);
        }
        episodes.note(400_000_000, 7_000_000);
        // 0 to 40 ms, 100 to 140, 140 to 180, and 400.
        assert_eq!([2_999_999, 3_000_000, 7_000_000].map(|limit_ns| episodes.above(limit_ns)), [4, 1, 0]);
        assert_eq!(episodes.worst_ns(), 7_000_000);
        let mut next = episodes.clone();
        next.follow(&episodes);
        episodes.merge(next);
        assert_eq!(episodes.above(3_000_000), 2);
    }
}
