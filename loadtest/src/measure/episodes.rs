//! The times at which a target was late: one cause makes many requests late at once.
//!
//! Late requests come in bunches, so the bunches are counted: only their number says something about chance. Each
//! window of due times has its worst time.

use std::collections::BTreeMap;

/// As long as a usual stall of a host: what was due in one window may have one cause.
const WINDOW_NS: u64 = 20_000_000;

/// The most windows of a round that are kept, some MB. A long run against a slow target has more.
const WINDOWS_MAX: usize = 100_000;

/// The worst time of each window, where any request of it was slow, for each round of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Episodes(Vec<Round>);

#[derive(Debug, Clone, Default)]
struct Round {
    worst_ns: BTreeMap<u64, u64>,
    /// Only windows with a worse time than this are kept. It is above 0 once there were too many: it is then at least
    /// the median of their times.
    floor_ns: u64,
}

impl Round {
    fn note(&mut self, window: u64, time_ns: u64) {
        if time_ns <= self.floor_ns {
            return;
        }
        let worst_ns = self.worst_ns.entry(window).or_default();
        *worst_ns = time_ns.max(*worst_ns);
        if self.worst_ns.len() > WINDOWS_MAX {
            let mut times: Vec<u64> = self.worst_ns.values().copied().collect();
            let (_, &mut median_ns, _) = times.select_nth_unstable(WINDOWS_MAX / 2);
            self.keep_above(median_ns);
        }
    }

    fn keep_above(&mut self, floor_ns: u64) {
        self.floor_ns = floor_ns.max(self.floor_ns);
        let floor_ns = self.floor_ns;
        self.worst_ns.retain(|_, worst_ns| *worst_ns > floor_ns);
    }
}

impl Episodes {
    /// Notes a request's time in the first round, in the window in which the request was due.
    pub(super) fn note(&mut self, due_ns: u64, time_ns: u64) {
        self.round(0).note(due_ns / WINDOW_NS, time_ns);
    }

    fn round(&mut self, round: usize) -> &mut Round {
        if self.0.len() <= round {
            self.0.resize_with(round + 1, Round::default);
        }
        &mut self.0[round]
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (index, Round { worst_ns, floor_ns }) in other.0.into_iter().enumerate() {
            let round = self.round(index);
            round.keep_above(floor_ns);
            worst_ns.into_iter().for_each(|(window, worst_ns)| round.note(window, worst_ns));
        }
    }

    /// Makes its first round the one after `earlier` rounds.
    pub(crate) fn follow(&mut self, earlier: u32) {
        let before = std::iter::repeat_with(Round::default).take(earlier as usize);
        self.0.splice(0..0, before);
    }

    /// Returns the number of bunches with a time above the limit, of each round. Up to `longest` late windows in a
    /// row are one.
    pub(crate) fn above(&self, limit_ns: u64, longest: u64) -> Vec<u64> {
        let of_round = |round: &Round| {
            runs(&round.worst_ns, limit_ns).iter().map(|length| length.div_ceil(longest)).sum()
        };
        self.0.iter().map(of_round).collect()
    }

    /// Returns the most windows in a row with a time above the limit; at least two, because a bunch may cross the
    /// end of one.
    pub(crate) fn longest_above(&self, limit_ns: u64) -> u64 {
        let all = self.0.iter().flat_map(|round| runs(&round.worst_ns, limit_ns));
        all.max().unwrap_or_default().max(2)
    }

    /// Returns the worst time of all.
    pub(crate) fn worst_ns(&self) -> u64 {
        self.0.iter().flat_map(|round| round.worst_ns.values()).copied().max().unwrap_or_default()
    }
}

/// Returns the lengths of all rows of windows with a time above the limit.
fn runs(windows: &BTreeMap<u64, u64>, limit_ns: u64) -> Vec<u64> {
    let late = windows.iter().filter(|&(_, &worst_ns)| worst_ns > limit_ns).map(|(&window, _)| window);
    let (mut lengths, mut last): (Vec<u64>, Option<u64>) = (Vec::new(), None);
    for window in late {
        match lengths.last_mut().filter(|_| last.is_some_and(|last| last + 1 == window)) {
            Some(length) => *length += 1,
            None => lengths.push(1),
        }
        last = Some(window);
    }
    lengths
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
        // 0 to 40 ms, 100 to 180, and 400.
        let above = |limit_ns, longest| episodes.above(limit_ns, longest);
        assert_eq!([above(2_999_999, 2), above(2_999_999, 4), above(3_000_000, 2)], [[4], [3], [1]]);
        assert_eq!([2_999_999, 3_000_000].map(|limit_ns| episodes.longest_above(limit_ns)), [4, 2]);
        assert_eq!(episodes.worst_ns(), 7_000_000);
        let mut next = episodes.clone();
        next.follow(1);
        episodes.merge(next);
        assert_eq!(episodes.above(3_000_000, 2), [1, 1]);
    }

    #[test]
    fn a_long_run_keeps_the_worst_windows() {
        let mut episodes = Episodes::default();
        let windows = 3 * WINDOWS_MAX as u64;
        for window in 0..windows {
            let is_late = window % 1_000 == 0;
            episodes.note(window * WINDOW_NS, if is_late { 9_000_000 } else { 600_000 + window % 1_000 });
        }
        assert!(episodes.0[0].worst_ns.len() <= WINDOWS_MAX);
        assert_eq!(episodes.above(2_000_000, 1), [windows / 1_000]);
        let mut twice = Episodes::default();
        twice.merge(episodes);
        assert_eq!(twice.above(2_000_000, 1), [windows / 1_000]);
    }
}
