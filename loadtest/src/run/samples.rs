//! The target's processor time and memory, second by second, by a thread of its own.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::load::Shared;
use crate::machine::own::Used;
use crate::measure::SecondFigures;

/// The figures of a measurement, each with its instant, in order.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<(Duration, Used)>);

impl Samples {
    /// Reads the figures at the start of the measurement, each second, and at its end. A closed
    /// channel ends it early.
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
                samples.push((now - begin, shared.watched.target_used()));
            }
            // A slow read leaves seconds out.
            number = (begin.elapsed().as_secs() + 1).max(number + 1);
        }
        Self(samples)
    }

    /// Returns the processor time of a measurement of that length, if it was seen throughout.
    pub(super) fn cpu(&self, elapsed: Duration) -> Option<Duration> {
        let (began, first) = self.0.first()?;
        let (ended, last) = self.0.last()?;
        let used = last.cpu?.checked_sub(first.cpu?)?;
        let length = ended.saturating_sub(*began);
        (!length.is_zero()).then(|| used.mul_f64(elapsed.as_secs_f64() / length.as_secs_f64()))
    }

    /// Puts the figures into the seconds of the measurement: a second gets those between the two
    /// samples around its end.
    pub(super) fn put_into(&self, seconds: &mut [SecondFigures]) {
        for pair in self.0.windows(2) {
            let [(from, before), (until, after)] = pair else { continue };
            let length_s = until.saturating_sub(*from).as_secs_f64();
            let ran = after.cpu.zip(before.cpu).and_then(|(after, before)| after.checked_sub(before));
            let share = ran.filter(|_| length_s > 0.0).map(|ran| ran.as_secs_f64() / length_s);
            let first = seconds.partition_point(|second| second.second < from.as_secs());
            for second in &mut seconds[first..] {
                if second.second > until.as_secs() {
                    break;
                }
                (second.target_cpu_share, second.target_memory_bytes) = (share, after.memory);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Second;

    fn samples(all: &[(u64, Option<u64>)]) -> Samples {
        let samples = all.iter().map(|&(at_ms, cpu_ms)| {
            let cpu = cpu_ms.map(Duration::from_millis);
            (Duration::from_millis(at_ms), Used { cpu, memory: Some(at_ms) })
        });
        Samples(samples.collect())
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
