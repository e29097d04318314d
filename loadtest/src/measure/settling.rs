//! Slow requests, kept until the stalls that touched them are known.

use std::collections::VecDeque;

use super::TimeHistogram;
use crate::machine::stalls::Stalls;

/// The times of a request that was answered slowly, in nanoseconds from the start of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slow {
    pub(crate) sent_ns: u64,
    pub(crate) received_ns: u64,
    /// The length of the target's part of the response time.
    pub(crate) target_ns: u64,
}

/// The times of the target that no stall of the machine explains.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    /// Requests that a stall may have touched, in the order of their receipt on each thread.
    pub(crate) slow: VecDeque<Slow>,
    /// The target's part of each settled request, less the stalls that excuse it.
    pub(crate) certain: TimeHistogram,
}

impl Settling {
    /// Settles the requests that were answered before an instant. All stalls that touched them must
    /// already be recorded.
    pub(crate) fn settle(&mut self, before_ns: u64, stalls: &Stalls) {
        while let Some(&slow) = self.slow.front().filter(|slow| slow.received_ns < before_ns) {
            self.slow.pop_front();
            let excuse_ns = stalls.excuse_ns(slow.sent_ns, slow.received_ns);
            self.certain.saturating_record(slow.target_ns.saturating_sub(excuse_ns));
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.slow.extend(other.slow);
        self.certain.merge(&other.certain);
    }
}
