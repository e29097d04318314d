//! What a run found, before anybody judges it.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::figure::Figures;
use crate::machine::stalls::StallSum;
use crate::measure::{Counts, Fault, SecondFigures};
use crate::promise::Promise;
use crate::scenario::Scenario;

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) target: Figures,
    /// The guarantees of the first target.
    pub(crate) promise: Promise,
    /// The time in which an open loop had to send its requests; `None` for a closed loop.
    pub(crate) planned: Option<Duration>,
    /// The time from the start of the measurement to its end, or to the last answer if the answer
    /// came later.
    pub(crate) elapsed: Duration,
    /// The part of `elapsed` outside the outage.
    pub(crate) undisturbed: Duration,
    /// The number of runs of equal length that this outcome joins.
    pub(crate) rounds: u32,
    /// The machine's stalls during the measurement.
    pub(crate) stalls: StallSum,
    /// The time for which a CPU quota held up the load test itself.
    pub(crate) held_up: Duration,
    pub(crate) counts: Counts,
    pub(crate) faults: Vec<Fault>,
    pub(crate) seconds: Vec<SecondFigures>,
    /// The seconds' histograms in HdrHistogram's interval log format, if the scenario keeps them.
    pub(crate) interval_log: Vec<u8>,
    /// The target's processor time during the measurement, if its processes can be seen.
    pub(crate) target_cpu: Option<Duration>,
    /// True if the user ended the run early.
    pub(crate) interrupted: bool,
    /// True if the positions were too scattered to keep all of them. Then duplicates may have gone
    /// unseen.
    pub(crate) too_scattered: bool,
    /// How many numbers the counters left out between the first and the last received. `None` for
    /// IDs with a layout, which have gaps whenever no request comes.
    pub(crate) left_out: Option<u64>,
    /// The outcome of a bare echo under the same load, or the reason why there is no such outcome.
    pub(crate) echo: Option<Result<Box<Outcome>, Failure>>,
}

impl Outcome {
    /// Returns true if the run may have ended before its planned end.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.interrupted || self.too_scattered || !self.faults.is_empty()
    }

    /// Returns the length of the measurement: the scenario's length, or less if the run was cut
    /// short. If the last answer came later, the measurement lasts until then.
    pub(crate) fn measured_for(&self, scenario: &Scenario, origin: Instant) -> Duration {
        let ran = Instant::now().saturating_duration_since(origin + scenario.warm_up);
        let length = if self.is_cut_short() { ran.min(scenario.length) } else { scenario.length };
        length.max(self.counts.last_receipt)
    }

    /// Returns `time` as a share of the measurement.
    pub(crate) fn share(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns the rate outside the outage: neither the IDs nor the time of the outage count.
    pub(crate) fn ids_per_s(&self) -> f64 {
        self.counts.ids as f64 / self.undisturbed.as_secs_f64().max(1e-9)
    }
}
