//! All figures of a run, for programs. Times are in microseconds unless a name says otherwise.

mod effects;
mod times;

use std::time::Duration;

pub(crate) use effects::{ChurnFigures, ClientStallFigures, LostTarget, MachineFigures, OutageFigures};
use serde::{Deserialize, Serialize};
pub(crate) use times::Times;

use super::Report;
use super::lines::headline;
use crate::check::distinct::Gaps;
use crate::measure::{RefusalsByCode, SecondFigures, micros};
use crate::origin::Origin;
use crate::run::Outcome;
use crate::scenario::{Drive, Length, Scenario};
use crate::target::code_name;

/// The form of the file; it changes when a key changes its meaning or goes. loadtest/schema.json describes
/// it.
pub(crate) const FORMAT: u32 = 2;

/// The value of [`Run::kind`].
pub(crate) const RUN: &str = "run";

/// A run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// [`RUN`].
    pub(crate) kind: String,
    /// The command line, the machine and the time.
    pub(crate) origin: Origin,
    /// `pass`, `fail` or `no verdict`.
    pub(crate) verdict: String,
    /// The reasons why it is not a pass.
    pub(crate) reasons: Vec<String>,
    /// The first line of the report.
    pub(crate) summary: String,
    pub(crate) objectives: ObjectiveFigures,
    /// The generator's machine during the run.
    #[serde(default)]
    pub(crate) machine: Option<MachineFigures>,
    /// `open loop` or `closed loop`.
    pub(crate) loop_kind: String,
    /// The spacing of an open loop's requests: `even` or `poisson`.
    pub(crate) arrivals: Option<String>,
    /// `snowbank`, `resp`, `memcached`, `http` or `noeqd`.
    pub(crate) protocol: String,
    /// True if the target was a daemon started for this run.
    pub(crate) own_daemon: bool,
    pub(crate) address: String,
    /// The targets that went away, where some may.
    #[serde(default)]
    pub(crate) lost_targets: Vec<LostTarget>,
    /// The target's version.
    pub(crate) version: Option<String>,
    /// The source's name.
    pub(crate) source: String,
    /// Its layout in text form.
    pub(crate) layout: Option<String>,
    /// The distance between two IDs of a counter; `None` of IDs with a layout.
    #[serde(default)]
    pub(crate) increment: Option<u64>,
    /// The numbers of a counter that did not come.
    #[serde(default)]
    pub(crate) gaps: Option<Gaps>,
    /// An ID is dated at most this long before its request; `None` where IDs have no time.
    #[serde(default)]
    pub(crate) window_before_us: Option<i64>,
    /// An ID is dated at most this long after its reply.
    #[serde(default)]
    pub(crate) window_after_us: Option<i64>,
    /// The highest rate of the source by its own INFO.
    pub(crate) source_per_second: Option<u64>,
    /// The rate offered, of an open loop.
    pub(crate) wanted_ids_per_s: Option<f64>,
    /// IDs per request, as on the command line.
    pub(crate) batch: String,
    /// IDs per request in the long run.
    pub(crate) mean_batch: f64,
    /// Connections.
    pub(crate) connections: usize,
    /// Generator threads.
    pub(crate) threads: usize,
    /// Requests in flight on each connection, of a closed loop.
    pub(crate) depth: Option<usize>,
    /// The length of the warm-up in seconds.
    pub(crate) warm_up_s: f64,
    /// The planned length of the measurement in seconds, if a time ended it.
    pub(crate) for_s: Option<f64>,
    /// The length of the measurement.
    pub(crate) elapsed_s: f64,
    /// IDs per second of the measurement outside the announced outage.
    pub(crate) ids_per_s: f64,
    /// True if a closed loop shows only a lower bound: nothing shows that the target could not do more.
    #[serde(default)]
    pub(crate) at_least: bool,
    /// Requests sent.
    pub(crate) requests: u64,
    /// Those answered with IDs.
    pub(crate) answered: u64,
    /// Those without an answer.
    pub(crate) unanswered: u64,
    /// IDs checked, the warm-up's included.
    pub(crate) checked_ids: u64,
    /// Requests refused, by the error code's name.
    pub(crate) refused: std::collections::BTreeMap<String, u64>,
    /// Those of the warm-up.
    #[serde(default)]
    pub(crate) warm_up_refused: std::collections::BTreeMap<String, u64>,
    /// The announced outage; `None` without one.
    pub(crate) outage: Option<OutageFigures>,
    /// Connections that changed under load; `None` without.
    #[serde(default)]
    pub(crate) churn: Option<ChurnFigures>,
    /// The announced stall of a client; `None` without one.
    #[serde(default)]
    pub(crate) client_stall: Option<ClientStallFigures>,
    /// From the intended instant to the receipt.
    pub(crate) response_time: Times,
    /// The target's own part: from the sending until the answer could be read.
    pub(crate) target_time: Times,
    /// The generator's processor time as a share of one core.
    pub(crate) generator_cpu_share: f64,
    /// The target's processor time as a share of one core; `None` if it cannot be seen.
    pub(crate) target_cpu_share: Option<f64>,
    /// The distance between the two machines' clocks; `None` on one machine.
    pub(crate) clock_offset_us: Option<i64>,
    /// Second by second.
    pub(crate) seconds: Vec<SecondFigures>,
}

fn by_name(refused: &RefusalsByCode) -> std::collections::BTreeMap<String, u64> {
    refused.iter().map(|(&code, refusals)| (code_name(code), refusals.count)).collect()
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The objectives of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ObjectiveFigures {
    /// IDs per second.
    pub(crate) ids_per_s: Option<f64>,
    /// Response times.
    pub(crate) latencies: Vec<LatencyFigures>,
    /// The share of requests that may be refused, from 0 to 1.
    #[serde(default)]
    pub(crate) error_share: f64,
}

/// An objective of response time, and the value of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LatencyFigures {
    /// `p50` to `p99.99`, or `max`.
    pub(crate) quantile: String,
    pub(crate) limit_us: f64,
    pub(crate) found_us: f64,
    /// The target's own part at this quantile, less the machine's stalls. The target missed the objective if this
    /// is above the limit.
    pub(crate) certain_us: f64,
    /// True if the value is within the limit.
    pub(crate) met: bool,
}

impl ObjectiveFigures {
    fn of(report: &Report<'_>) -> Self {
        let counts = &report.outcome.collected.counts;
        let latencies = report.objectives.latencies.iter().map(|latency| {
            let found_ns = counts.response.value_at_quantile(latency.quantile);
            LatencyFigures {
                quantile: latency.name(),
                limit_us: us(latency.limit),
                found_us: micros(found_ns),
                certain_us: us(counts.settling.certain.at(latency.quantile)),
                met: u128::from(found_ns) <= latency.limit.as_nanos(),
            }
        });
        Self {
            ids_per_s: report.objectives.rate.map(|rate| rate.per_s()),
            latencies: latencies.collect(),
            error_share: report.objectives.errors,
        }
    }
}

impl Run {
    /// Returns the figures of a report.
    pub(crate) fn of(report: &Report<'_>, origin: &Origin) -> Self {
        let (scenario, outcome) = (report.scenario, report.outcome);
        let counts = &outcome.collected.counts;
        let mut run = Self {
            origin: origin.clone(),
            verdict: report.verdict.word().to_owned(),
            reasons: report.verdict.reasons().to_vec(),
            machine: Some(MachineFigures::of(report)),
            objectives: ObjectiveFigures::of(report),
            elapsed_s: outcome.elapsed.as_secs_f64(),
            ids_per_s: report.ids_per_s(),
            at_least: report.evidence().is_lower_bound(),
            requests: counts.requests,
            answered: counts.answered,
            unanswered: counts.unanswered,
            checked_ids: counts.checked_ids,
            refused: by_name(&counts.refused),
            warm_up_refused: by_name(&counts.warm_up_refused),
            outage: scenario.outage.map(|outage| OutageFigures::of(outage, counts)),
            churn: scenario.churn.map(|per_s| ChurnFigures::of(per_s, counts)),
            client_stall: scenario.client_stall.map(|stall| ClientStallFigures::of(stall, counts)),
            clock_offset_us: (!outcome.same_clock).then_some(counts.clock_offset_us),
            seconds: outcome.collected.seconds.clone(),
            ..Self::of_target(outcome).with_load(scenario).with_times(report)
        };
        run.summary = headline(&run);
        run
    }

    fn of_target(outcome: &Outcome) -> Self {
        Self {
            format: FORMAT,
            kind: RUN.to_owned(),
            own_daemon: outcome.own_daemon,
            address: outcome.address.clone(),
            lost_targets: outcome.lost_targets.iter().map(LostTarget::of).collect(),
            version: outcome.version.clone(),
            source: outcome.promise.source_name.clone(),
            layout: outcome.promise.layout(),
            increment: outcome.promise.increment(),
            gaps: outcome.collected.gaps,
            window_before_us: outcome.promise.window_us().map(|(before_us, _)| before_us),
            window_after_us: outcome.promise.window_us().map(|(_, after_us)| after_us),
            source_per_second: outcome.per_second,
            ..Self::default()
        }
    }

    fn with_load(self, scenario: &Scenario) -> Self {
        let (wanted_ids_per_s, arrivals, depth) = match scenario.drive {
            Drive::Open { rate, arrivals, .. } => {
                (Some(rate.per_s()), Some(format!("{arrivals:?}").to_lowercase()), None)
            }
            Drive::Closed { depth } => (None, None, Some(depth)),
        };
        let for_s = match scenario.length {
            Length::For(length) => Some(length.as_secs_f64()),
            Length::Ids(_) => None,
        };
        Self {
            loop_kind: scenario.loop_words().to_owned(),
            arrivals,
            protocol: scenario.protocol.name().to_owned(),
            wanted_ids_per_s,
            batch: scenario.batch.to_string(),
            mean_batch: scenario.batch.mean(),
            connections: scenario.connections,
            threads: scenario.threads,
            depth,
            warm_up_s: scenario.warm_up.as_secs_f64(),
            for_s,
            ..self
        }
    }

    fn with_times(self, report: &Report<'_>) -> Self {
        let (outcome, counts) = (report.outcome, &report.outcome.collected.counts);
        let share = |time: Duration| time.as_secs_f64() / outcome.elapsed.as_secs_f64().max(1e-9);
        Self {
            response_time: Times::of(&counts.response),
            target_time: Times::of(&counts.target),
            generator_cpu_share: share(counts.cpu),
            target_cpu_share: outcome.collected.target_cpu.map(share),
            ..self
        }
    }

    /// Returns the form of the IDs, in words.
    pub(crate) fn form(&self) -> String {
        match (&self.layout, self.increment) {
            (Some(layout), _) => layout.clone(),
            (None, Some(increment)) => format!("tickets, increment {increment}"),
            (None, None) => "unknown".to_owned(),
        }
    }

    /// Returns the whole seconds of the measurement, without late answers after the last.
    pub(crate) fn whole_seconds(&self) -> Vec<&SecondFigures> {
        // The measurement ends with the last receipt, a moment before or after the last second does.
        let lasted = |second: &&SecondFigures| second.second as f64 + 1.0 <= self.elapsed_s + 0.05;
        self.seconds.iter().filter(lasted).collect()
    }

    /// Returns true if a second of the measurement was part of an announced outage.
    pub(crate) fn is_outage(&self, second: u64) -> bool {
        let second = second as f64;
        let within = |outage: &OutageFigures| {
            outage.at_s < second + 1.0 && second <= outage.at_s + outage.excluded_us() / 1e6
        };
        self.outage.as_ref().is_some_and(within)
    }

    /// Returns the requests that were refused or have no answer.
    pub(crate) fn errors(&self) -> u64 {
        self.refused.values().chain(self.warm_up_refused.values()).sum::<u64>() + self.unanswered
    }

    /// Returns the processor time that the target took for each request it answered.
    pub(crate) fn target_us_per_request(&self) -> Option<f64> {
        (self.answered > 0).then_some(self.target_cpu_share? * self.elapsed_s * 1e6 / self.answered as f64)
    }
}
