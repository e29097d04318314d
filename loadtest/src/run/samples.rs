//! The target's processor time, second by second.

use std::time::{Duration, Instant};

/// The shortest useful time between two samples.
const SHORTEST: Duration = Duration::from_millis(10);

/// The first sample, taken when the measurement begins, and the last sample so far.
#[derive(Debug, Default)]
pub(super) struct Samples {
    first: Option<Sample>,
    last: Option<Sample>,
}

/// The processor time that the target had used at an instant; `None` if the processor time cannot
/// be seen.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    cpu: Option<Duration>,
}

impl Samples {
    /// Adds a sample. Returns the processor time since the last sample, as a share of one core.
    pub(super) fn add(&mut self, at: Instant, cpu: Option<Duration>) -> Option<f64> {
        let now = Sample { at, cpu };
        self.first.get_or_insert(now);
        now.share_since(self.last.replace(now)?)
    }

    /// Returns the processor time of a measurement of this length: the share between the first and
    /// the last sample, times the length. `None` if that share is unknown.
    pub(super) fn cpu(&self, elapsed: Duration) -> Option<Duration> {
        Some(elapsed.mul_f64(self.last?.share_since(self.first?)?))
    }
}

impl Sample {
    fn share_since(self, before: Self) -> Option<f64> {
        let used = self.cpu?.checked_sub(before.cpu?)?;
        let length = self.at.saturating_duration_since(before.at);
        (length >= SHORTEST).then(|| used.as_secs_f64() / length.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_returns_the_share_since_the_last_one() {
        let begin = Instant::now();
        let mut samples = Samples::default();
        // One sample has no processor time, and one comes too soon after the sample before it.
        let looks =
            [(0, Some(100)), (1_000, Some(350)), (2_001, None), (3_000, Some(600)), (3_001, Some(600))];
        let shares = looks.map(|(at_ms, cpu_ms)| {
            samples.add(begin + Duration::from_millis(at_ms), cpu_ms.map(Duration::from_millis))
        });
        assert_eq!(shares, [None, Some(0.25), None, None, None]);
        let sum = samples.cpu(Duration::from_secs(6)).expect("seen at both ends");
        assert_eq!(sum.as_millis(), 999, "6 s at the rate of 500 ms in 3,001 ms");
    }
}
