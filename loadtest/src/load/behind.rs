//! Estimates how far the target may lag because requests left late.
//!
//! A server that answers requests in turn finishes each one late by at most the largest slip up to it. That
//! holds while the server is never idle, so the estimate returns to 0 when nothing is in flight. And no
//! request waits for earlier ones longer than the whole queue takes, which the next answer shows. So the
//! estimate is an upper bound of the generator's part. What is left is a lower bound of the target's.

/// Lateness that requests still to be sent may suffer from, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// The largest slip before `mark_ns`.
    old_ns: u64,
    /// The largest slip since `mark_ns`.
    fresh_ns: u64,
    /// The instant of the last such answer: one to a request that was sent after the previous `mark_ns`.
    mark_ns: u64,
    in_flight: usize,
}

impl Behind {
    /// Records a request that leaves this late. Returns the further delay that earlier requests may cause.
    pub(super) fn sent(&mut self, slip_ns: u64) -> u64 {
        self.in_flight += 1;
        self.fresh_ns = self.fresh_ns.max(slip_ns);
        self.old_ns.max(self.fresh_ns) - slip_ns
    }

    /// Records that a request is no longer awaited.
    pub(super) fn left(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 {
            (self.old_ns, self.fresh_ns) = (0, 0);
        }
    }

    /// Records an answer.
    pub(super) fn answered(&mut self, sent_ns: u64, now_ns: u64) {
        if sent_ns >= self.mark_ns {
            // Earlier requests delayed it, and those after it, by at most this.
            self.old_ns = self.old_ns.min(now_ns.saturating_sub(sent_ns)).max(self.fresh_ns);
            (self.fresh_ns, self.mark_ns) = (0, now_ns);
        }
        self.left();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Requests every 100 us to a server that takes `work_us` for each and stands still at the instants
    /// given, from a generator that does, too; returns the target's longest time.
    fn most_blamed_us(work_us: u64, server_stalls: &[(u64, u64)], generator_stalls: &[(u64, u64)]) -> u64 {
        let after = |at, stalls: &[(u64, u64)]| {
            stalls.iter().find(|(from, to)| (*from..*to).contains(&at)).map_or(at, |&(_, to)| to)
        };
        let (mut behind, mut most, mut free_at) = (Behind::default(), 0, 0);
        let mut in_flight: VecDeque<(u64, u64, u64)> = VecDeque::new();
        for intended in (0..200_000).step_by(100) {
            let sent = after(intended, generator_stalls);
            while let Some(&(sent_before, done, excess)) =
                in_flight.front().filter(|(_, done, _)| *done <= sent)
            {
                in_flight.pop_front();
                behind.answered(sent_before, done);
                most = most.max((done - sent_before).saturating_sub(excess));
            }
            free_at = after(sent.max(free_at), server_stalls) + work_us;
            in_flight.push_back((sent, free_at, behind.sent(sent - intended)));
        }
        most
    }

    #[test]
    fn a_busy_target_is_not_blamed_for_the_queue_behind_a_late_bunch() {
        for work_us in [10, 50, 80, 95] {
            assert!(most_blamed_us(work_us, &[], &[(30_000, 35_000)]) <= work_us, "{work_us} us each");
            assert!(most_blamed_us(work_us, &[], &[(30_000, 35_000), (36_000, 39_000)]) <= work_us);
        }
    }

    #[test]
    fn a_target_that_stalls_is_blamed_beside_a_late_generator() {
        for work_us in [10, 50, 80] {
            let blamed_us = most_blamed_us(work_us, &[(100_000, 120_000)], &[(30_000, 35_000)]);
            assert!((15_000..=20_100).contains(&blamed_us), "{blamed_us} of 20,000 us at {work_us} us each");
        }
    }
}
