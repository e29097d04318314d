//! The target's processor time and memory, second by second, by a thread of its own.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::machine::owner::Owners;
use crate::machine::{own, processor};
use crate::measure::SecondFigures;
use crate::target::{Metrics, Used};

/// The place where the figures come from.
#[derive(Debug)]
pub(super) enum Of {
    /// Processes of this machine.
    Processes(Owners),
    /// Metrics of daemons elsewhere.
    Metrics(Vec<Metrics>),
}

/// The figures at one instant of the measurement.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    used: Used,
    /// The number of times that a target had got another process until then.
    restarts: u64,
}

/// The figures of a measurement, in order.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<Sample>);

/// The thread that reads them.
#[derive(Debug)]
pub(super) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// Reads them at the start of the measurement, each second, and at its end.
    pub(super) fn begin(of: Of, begin: Instant, length: Option<Duration>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (mut samples, mut number, mut is_last) = (Vec::new(), 0, false);
            while !is_last {
                let due = Duration::from_secs(number).min(length.unwrap_or(Duration::MAX));
                let wait = (begin + due).saturating_duration_since(Instant::now());
                is_last = stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) || Some(due) == length;
                let now = Instant::now();
                if now >= begin {
                    let (used, restarts) = of.used();
                    samples.push(Sample { at: now - begin, used, restarts });
                }
                // A slow read leaves seconds out.
                number = (begin.elapsed().as_secs() + 1).max(number + 1);
            }
            samples
        });
        Self { stop, thread }
    }

    /// Ends it.
    pub(super) fn end(self) -> Samples {
        drop(self.stop);
        // One that panicked has no figures.
        Samples(self.thread.join().unwrap_or_default())
    }
}

impl Of {
    /// Returns the figures of this instant, and the number of restarts until then.
    fn used(&self) -> (Used, u64) {
        match self {
            Self::Processes(owners) => {
                let owners = owners.now();
                let of = |process: Option<u32>| Used {
                    cpu: process.and_then(own::used_by).map(Duration::from_nanos),
                    memory: process.and_then(processor::memory_of_process),
                };
                (sum(owners.all.iter().map(|owner| of(owner.process()))), owners.changes)
            }
            Self::Metrics(all) => (sum(all.iter().map(|one| one.read().unwrap_or_default())), 0),
        }
    }
}

/// Adds up the targets; a figure that one of them lacks is missing.
fn sum(all: impl Iterator<Item = Used>) -> Used {
    let add = |a: Used, b: Used| Used {
        cpu: a.cpu.zip(b.cpu).map(|(a, b)| a + b),
        memory: a.memory.zip(b.memory).map(|(a, b)| a + b),
    };
    all.reduce(add).unwrap_or_default()
}

impl Samples {
    /// Returns the processor time of a measurement of that length, if it was seen from begin to end and no process
    /// was started meanwhile.
    pub(super) fn cpu(&self, elapsed: Duration) -> Option<Duration> {
        let (first, last) = (self.0.first()?, self.0.last()?);
        let seen: Vec<Duration> = self.0.iter().filter_map(|sample| sample.used.cpu).collect();
        let is_one_process =
            first.restarts == last.restarts && seen.windows(2).all(|pair| pair[0] <= pair[1]);
        let (used, length) = (last.used.cpu?.checked_sub(first.used.cpu?)?, last.at.saturating_sub(first.at));
        (is_one_process && !length.is_zero())
            .then(|| used.mul_f64(elapsed.as_secs_f64() / length.as_secs_f64()))
    }

    /// Puts the figures into the seconds of the measurement.
    pub(super) fn put_into(&self, seconds: &mut [SecondFigures]) {
        for second in seconds {
            let end = self.0.iter().position(|sample| sample.at.as_secs() > second.second);
            let end = end.unwrap_or(self.0.len().saturating_sub(1));
            let (Some(before), Some(after)) =
                (end.checked_sub(1).map(|index| self.0[index]), self.0.get(end))
            else {
                continue;
            };
            let length_s = after.at.saturating_sub(before.at).as_secs_f64();
            let ran =
                after.used.cpu.zip(before.used.cpu).and_then(|(after, before)| after.checked_sub(before));
            let is_one_process = before.restarts == after.restarts;
            second.target_cpu_share =
                ran.filter(|_| length_s > 0.0 && is_one_process).map(|ran| ran.as_secs_f64() / length_s);
            second.target_memory_bytes = after.used.memory;
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
            restarts: 0,
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
    fn a_process_that_began_again_has_no_sum() {
        assert_eq!(
            samples(&[(0, Some(900)), (1_000, Some(5)), (2_000, Some(950))]).cpu(Duration::from_secs(2)),
            None
        );
        assert_eq!(samples(&[(0, Some(900)), (1_000, None)]).cpu(Duration::from_secs(1)), None);
        assert_eq!(samples(&[]).cpu(Duration::from_secs(1)), None);
        let mut restarted = samples(&[(0, Some(100)), (1_000, Some(200)), (2_000, Some(300))]);
        restarted.0[1..].iter_mut().for_each(|sample| sample.restarts = 1);
        assert_eq!(restarted.cpu(Duration::from_secs(2)), None, "the other process began at 0");
        let mut seconds: Vec<_> =
            (0..2).map(|number| SecondFigures::of(number, &Second::default())).collect();
        restarted.put_into(&mut seconds);
        let shares: Vec<_> = seconds.iter().map(|second| second.target_cpu_share).collect();
        assert_eq!(shares, [None, Some(0.1)]);
    }
}
