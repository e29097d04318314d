//! The target's processor time and memory, second by second, by a thread of its own.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::load::Shared;
use crate::machine::own::Used;
use crate::measure::SecondFigures;

/// The figures at one instant of the measurement.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    used: Used,
}

/// The figures of a measurement, in order.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<Sample>);

impl Samples {
    /// Reads the figures at the start of the measurement, each second, and at its end. The channel
    /// ends then.
    pub(super) fn take(shared: &Shared<'_>, stopped: &Receiver<()>) -> Self {
        let begin = shared.watched.origin + shared.scenario.warm_up;
        let length = shared.scenario.length;
        let mut samples = Vec::new();
        let mut number = 0;
        let mut is_last = false;
        while !is_last {
            let due = Duration::from_secs(number).min(length);
            let wait = (begin + due).saturating_duration_since(Instant::now());
            is_last = stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) || due == length;
            let now = Instant::now();
            if now >= begin {
                samples.push(Sample { at: now - begin, used: shared.watched.target_used() });
            }
            // A slow read leaves seconds out.
            number = (begin.elapsed().as_secs() + 1).max(number + 1);
        }
        Self(samples)
    }

    /// Returns the processor time of a measurement of that length, if it was seen throughout.
    pub(super) fn cpu(&self, elapsed: Duration) -> Option<Duration> {
        let first = self.0.first()?;
        let last = self.0.last()?;
        let used = last.used.cpu?.checked_sub(first.used.cpu?)?;
        let length = last.at.saturating_sub(first.at);
        (!length.is_zero()).then(|| used.mul_f64(elapsed.as_secs_f64() / length.as_secs_f64()))
    }

    /// Puts the figures into the seconds of the measurement: those between the two samples around a
    /// second's end.
    pub(super) fn put_into(&self, seconds: &mut [SecondFigures]) {
        for (before, after) in self.0.iter().zip(self.0.iter().skip(1)) {
            let length_s = after.at.saturating_sub(before.at).as_secs_f64();
            let ran =
                after.used.cpu.zip(before.used.cpu).and_then(|(after, before)| after.checked_sub(before));
            let share = ran.filter(|_| length_s > 0.0).map(|ran| ran.as_secs_f64() / length_s);
            let first = seconds.partition_point(|second| second.second < before.at.as_secs());
            for second in &mut seconds[first..] {
                if second.second > after.at.as_secs() {
                    break;
                }
                (second.target_cpu_share, second.target_memory_bytes) = (share, after.used.memory);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Second;

    fn samples(all: &[(u64, Option<u64>)]) -> Samples {
        let sample = |&(at_ms, cpu_ms): &(u64, Option<u64>)| Sample {
            at: Duration::from_millis(at_ms),
            used: Used { cpu: cpu_ms.map(Duration::from_millis), memory: Some(at_ms) },
        };
        Samples(all.iter().map(sample).collect())
    }

    #[test]
    fn each_second_has_what_was_used_in_it() {
        let samples = samples(&[(0, Some(100)), (1_000, Some(350)), (2_001, None), (3_000, Some(600))]);
        let mut seconds: Vec<_> =
            (0..4).map(|number| SecondFigures::of(number, &Second::default())).collect();
        samples.put_into(&mut seconds);
        let shares: Vec<_> = seconds.iter().map(|second| second.target_cpu_share).collect();
        assert_eq!(shares, [Some(0.25), None, None, None], "one sample is missing");
        let memory: Vec<_> = seconds.iter().map(|second| second.target_memory_bytes).collect();
        assert_eq!(memory, [Some(1_000), Some(2_001), Some(3_000), Some(3_000)]);
        assert_eq!(samples.cpu(Duration::from_secs(6)), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_process_that_is_not_seen_has_no_sum() {
        assert_eq!(samples(&[(0, Some(900)), (1_000, None)]).cpu(Duration::from_secs(1)), None);
        assert_eq!(samples(&[]).cpu(Duration::from_secs(1)), None);
    }
}
