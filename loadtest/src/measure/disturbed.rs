//! Requests that a stall of the machine touched, and the times of all requests as if there had been no stall.
//!
//! A stall is known only after it is over, so slow requests are kept until then. Quick ones are not: no stall
//! made them late.

use std::collections::VecDeque;
use std::time::Duration;

use super::episodes::Episodes;
use super::survival::Survival;
use super::{Counts, TimeHistogram};
use crate::machine::stalls::{Fate, MIN_STALL_NS, StallSum, Stalls};

/// The times of a request that was answered slowly, in nanoseconds from the start of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slow {
    pub(crate) intended_ns: u64,
    pub(crate) sent_ns: u64,
    pub(crate) received_ns: u64,
    /// The least that the target took for it.
    pub(crate) target_ns: u64,
}

/// Slow requests, and what their times say about the target.
#[derive(Debug, Default)]
pub(crate) struct Disturbed {
    /// In the order of their receipt, on each thread.
    slow: VecDeque<Slow>,
    response: Survival,
    target: Survival,
    slip: Survival,
    /// Those that a stall touched.
    touched: u64,
    episodes: Episodes,
    /// Pauses of the thread in order, each with its start and its end.
    pauses: VecDeque<(u64, u64)>,
    /// The longest of those settled, without the time lost in stalls.
    longest_pause_ns: u64,
}

/// The times of all requests as if the machine had not stalled.
#[derive(Debug, Default)]
pub(crate) struct Undisturbed {
    pub(crate) response: TimeHistogram,
    pub(crate) target: TimeHistogram,
    pub(crate) slip: TimeHistogram,
    /// The longest pause of a thread of the generator, without the time that it lost in stalls.
    pub(crate) longest_pause: Duration,
    /// The share of answered requests that a stall touched, from 0 to 1.
    pub(crate) disturbed_share: f64,
    /// The requests that began outside stalls and the queues after them.
    pub(crate) clean_requests: f64,
    /// When the target was slow; `None` if stalls of the machine could not be told from the generator's own.
    pub(crate) episodes: Option<Episodes>,
}

impl Disturbed {
    /// Keeps a request if it was slow.
    pub(crate) fn note(&mut self, request: Slow) {
        if request.received_ns.saturating_sub(request.intended_ns) >= MIN_STALL_NS {
            self.slow.push_back(request);
        }
    }

    /// Keeps a pause of the thread if it was long.
    pub(crate) fn note_pause(&mut self, from_ns: u64, until_ns: u64) {
        if until_ns - from_ns >= MIN_STALL_NS {
            self.pauses.push_back((from_ns, until_ns));
        }
    }

    /// Decides about the requests that were answered, and the pauses that ended, before an instant: later stalls
    /// cannot have touched them.
    pub(crate) fn settle(&mut self, before_ns: u64, stalls: &Stalls) {
        self.settle_pauses(before_ns, stalls);
        if self.slow.front().is_none_or(|first| first.received_ns >= before_ns) {
            return;
        }
        stalls.with_fate(|fate| {
            while let Some(&slow) = self.slow.front().filter(|slow| slow.received_ns < before_ns) {
                self.slow.pop_front();
                self.add(slow, fate(slow.intended_ns, slow.received_ns));
            }
        });
    }

    fn add(&mut self, slow: Slow, fate: Fate) {
        let response_ns = slow.received_ns - slow.intended_ns;
        let slip_ns = slow.sent_ns.saturating_sub(slow.intended_ns);
        self.touched += u64::from(fate != Fate::Clean);
        match fate {
            Fate::Clean => {
                self.response.end(response_ns);
                self.slip.end(slip_ns);
                // A target that gets its requests in a bunch may need longer for each.
                if slip_ns >= MIN_STALL_NS {
                    self.target.leave_out(slow.target_ns);
                } else {
                    self.target.end(slow.target_ns);
                    self.episodes.note(slow.intended_ns, slow.target_ns);
                }
            }
            Fate::CutAfter(after_ns) => {
                let target_ns = slow.target_ns.min(after_ns.saturating_sub(slip_ns));
                self.response.cut(after_ns, response_ns);
                self.target.cut(target_ns, slow.target_ns);
                match slip_ns <= after_ns {
                    true => self.slip.end(slip_ns),
                    false => self.slip.cut(after_ns, slip_ns),
                }
                self.episodes.note(slow.intended_ns, target_ns);
            }
            Fate::Excluded => {
                self.response.exclude(response_ns);
                self.target.exclude(slow.target_ns);
                self.slip.exclude(slip_ns);
            }
        }
    }

    fn settle_pauses(&mut self, before_ns: u64, stalls: &Stalls) {
        while let Some(&(from_ns, until_ns)) = self.pauses.front().filter(|pause| pause.1 < before_ns) {
            self.pauses.pop_front();
            let own_ns = until_ns - from_ns - stalls.lost(from_ns, until_ns);
            self.longest_pause_ns = self.longest_pause_ns.max(own_ns);
        }
    }

    /// Puts it after this many earlier rounds.
    pub(crate) fn follow(&mut self, earlier: u32) {
        self.episodes.follow(earlier);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.slow.extend(other.slow);
        self.pauses.extend(other.pauses);
        self.longest_pause_ns = self.longest_pause_ns.max(other.longest_pause_ns);
        self.response.merge(&other.response);
        self.target.merge(&other.target);
        self.slip.merge(&other.slip);
        self.touched += other.touched;
        self.episodes.merge(other.episodes);
    }
}

impl Undisturbed {
    /// Takes all counts, as if there had been no stall.
    pub(crate) fn with_all(counts: &Counts) -> Self {
        Self {
            response: counts.response.clone(),
            target: counts.target.clone(),
            slip: counts.slip.clone(),
            longest_pause: counts.longest_pause,
            disturbed_share: 0.0,
            clean_requests: counts.response.len() as f64,
            episodes: None,
        }
    }

    /// Takes the counts of all threads, with every slow request settled, of a run of that length.
    pub(crate) fn of(counts: &Counts, stalls: StallSum, elapsed: Duration) -> Self {
        let Disturbed { response, target, slip, touched, longest_pause_ns, episodes, .. } = &counts.disturbed;
        let excluded = stalls.excluded.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
        let clean_share = (1.0 - excluded).max(0.0);
        let requests = counts.response.len();
        Self {
            response: response.estimate(&counts.response, clean_share),
            target: target.estimate(&counts.target, clean_share),
            slip: slip.estimate(&counts.slip, clean_share),
            longest_pause: Duration::from_nanos(*longest_pause_ns),
            disturbed_share: *touched as f64 / requests.max(1) as f64,
            clean_requests: requests as f64 * clean_share,
            episodes: Some(episodes.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::stalls::Stall;

    #[test]
    fn a_request_that_a_stall_touched_counts_for_as_long_as_it_was_clean() {
        let (stalls, mut counts) = (Stalls::default(), Counts::default());
        stalls.add(Stall { from_ns: 10_000_000, until_ns: 20_000_000, lost_ns: 10_000_000 });
        // One that a stall cut off, one that began in it, one in the queue after it, and one that was only slow.
        let mut note = |intended_ns: u64, slip_ns: u64| {
            counts.response.saturating_record(9_000_000);
            counts.target.saturating_record(8_000_000);
            counts.slip.saturating_record(slip_ns);
            let (sent_ns, received_ns) = (intended_ns + slip_ns, intended_ns + 9_000_000);
            counts.disturbed.note(Slow { intended_ns, sent_ns, received_ns, target_ns: 8_000_000 });
        };
        for intended_ns in [5_000_000, 12_000_000, 29_000_000, 300_000_000] {
            note(intended_ns, 100_000);
        }
        // One that left late says nothing about the target.
        note(320_000_000, 1_000_000);
        counts.disturbed.settle(100_000_000, &stalls);
        assert_eq!(counts.disturbed.slow.len(), 2, "a stall may still touch the last");
        counts.disturbed.settle(u64::MAX, &stalls);
        let undisturbed = Undisturbed::of(&counts, stalls.sum(), Duration::from_millis(400));
        assert!((undisturbed.disturbed_share - 0.6).abs() < 1e-9);
        assert!((undisturbed.clean_requests - 4.75).abs() < 1e-9, "20 of 400 ms are excluded");
        let times = [&undisturbed.response, &undisturbed.target, &undisturbed.slip];
        assert_eq!(times.map(|times| times.max() / 1_000_000), [9, 8, 1]);
        let episodes = undisturbed.episodes.expect("they are known");
        let above = [3_000_000, 5_000_000, 9_000_000].map(|limit_ns| episodes.above(limit_ns, 2));
        assert_eq!(above, [[2], [1], [0]]);
    }

    #[test]
    fn only_the_part_of_a_pause_outside_stalls_is_the_generators() {
        let (stalls, mut counts) = (Stalls::default(), Counts::default());
        stalls.add(Stall { from_ns: 10_000_000, until_ns: 90_000_000, lost_ns: 80_000_000 });
        let longest_ms = |counts: &mut Counts, from_ms: u64, until_ms: u64| {
            counts.disturbed.note_pause(from_ms * 1_000_000, until_ms * 1_000_000);
            counts.disturbed.settle(u64::MAX, &stalls);
            counts.disturbed.longest_pause_ns / 1_000_000
        };
        let in_order = [(5, 95), (5, 110)];
        let longest = in_order.map(|(from_ms, until_ms)| longest_ms(&mut counts, from_ms, until_ms));
        assert_eq!(longest, [10, 25]);
    }
}
