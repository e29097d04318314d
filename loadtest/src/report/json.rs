//! All figures of a run, for programs. Times are in microseconds unless a name says otherwise.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{QUANTILES, Report};
use crate::daemon::Ending;
use crate::measure::{Counts, SecondFigures, micros};
use crate::origin::Origin;
use crate::run::{ClientStall, Drive, Length};
use crate::schedule::Arrivals;
use crate::target::code_name;
use crate::verdict::{last_line, quantile_name};

/// The form of the file; it changes when a key changes its meaning or goes. loadtest/schema.json describes it.
pub const FORMAT: u32 = 1;

/// What [`Run::kind`] says.
pub const RUN: &str = "run";

/// Steps in each half of the distance to 100 % on a percentile curve: smooth on a page, some hundred points at most.
const CURVE_TICKS_PER_HALF: u32 = 5;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`].
    pub format: u32,
    /// [`RUN`].
    pub kind: String,
    /// The command line, the machine and the time.
    pub origin: Origin,
    /// `pass`, `fail` or `no verdict`.
    pub verdict: String,
    /// Why it is not a pass.
    pub reasons: Vec<String>,
    /// The last line of the table.
    pub summary: String,
    /// What it was held to.
    pub objectives: ObjectiveFigures,
    /// `open loop` or `closed loop`.
    pub loop_kind: String,
    /// How requests of an open loop are spaced: `even` or `poisson`.
    pub arrivals: Option<String>,
    /// `snowbank` or `redis`.
    pub protocol: String,
    /// Whether the target was a daemon started for this run.
    pub own_daemon: bool,
    /// Where the target listens.
    pub address: String,
    /// Its version.
    pub version: Option<String>,
    /// The source's name.
    pub source: String,
    /// Its layout in text form.
    pub layout: Option<String>,
    /// What the source says that it can hand out per second.
    pub source_per_second: Option<u64>,
    /// The rate offered, of an open loop.
    pub wanted_ids_per_s: Option<f64>,
    /// IDs per request, as on the command line.
    pub batch: String,
    /// IDs per request in the long run.
    pub mean_batch: f64,
    /// Connections.
    pub connections: usize,
    /// Generator threads.
    pub threads: usize,
    /// Requests in flight on each connection, of a closed loop.
    pub depth: Option<usize>,
    /// How long the warm-up was, in seconds.
    pub warm_up_s: f64,
    /// How long the measurement was to be, in seconds, if a time ended it.
    pub for_s: Option<f64>,
    /// How long it was.
    pub elapsed_s: f64,
    /// IDs per second of the measurement outside the announced outage.
    pub ids_per_s: f64,
    /// Requests sent.
    pub requests: u64,
    /// Those answered with IDs.
    pub answered: u64,
    /// Those without an answer.
    pub unanswered: u64,
    /// IDs checked, the warm-up's included.
    pub checked_ids: u64,
    /// Requests refused, by the error code's name.
    pub refused: std::collections::BTreeMap<String, u64>,
    /// The announced outage; `None` without one.
    pub outage: Option<OutageFigures>,
    /// The announced stall of a client; `None` without one.
    #[serde(default)]
    pub client_stall: Option<ClientStallFigures>,
    /// From the intended instant to the receipt.
    pub response_time: Times,
    /// From the sending to the receipt.
    pub service_time: Times,
    /// The least that the target took: service time without the generator's own delays, as far as it knows them; `None` in a
    /// closed loop.
    #[serde(default)]
    pub target_time: Option<Times>,
    /// From the intended instant to the sending; `None` in a closed loop.
    pub schedule_slip: Option<Times>,
    /// The longest that the generator stood still.
    pub longest_pause_us: f64,
    /// The generator's processor time as a share of one core.
    pub generator_cpu_share: f64,
    /// That of its busiest thread.
    pub busiest_thread_share: f64,
    /// For how long its threads waited for a core that something else had.
    #[serde(default)]
    pub generator_waited_us: f64,
    /// The share of the time for which a processor quota held it back.
    #[serde(default)]
    pub generator_throttled_share: f64,
    /// Whether its threads ran before ordinary ones.
    #[serde(default)]
    pub generator_real_time: bool,
    /// Whether its threads stayed awake between requests.
    #[serde(default)]
    pub generator_awake: bool,
    /// The daemon's, where it was started for this run.
    pub daemon_cpu_share: Option<f64>,
    /// How far apart the two machines' clocks were seen to be; `None` on one machine.
    pub clock_offset_us: Option<i64>,
    /// Second by second.
    pub seconds: Vec<SecondFigures>,
}

/// What an announced outage did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutageFigures {
    /// How the daemon ended: `stop` or `kill`.
    pub ending: String,
    /// When it began, in seconds of the measurement.
    pub at_s: f64,
    /// Until every connection was back and one answered.
    pub length_us: f64,
    /// The longest time between two answers.
    pub longest_gap_us: f64,
    /// Requests that it took away.
    pub lost: u64,
}

/// What an announced stall of a client did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientStallFigures {
    /// When the connection was not read any more, in seconds of the measurement.
    pub at_s: f64,
    /// For how long.
    pub for_s: f64,
    /// `recovered`, `closed by the target`, or `not over` at the end of the run.
    pub ended: String,
    /// When the target was seen to have closed the connection, from the begin of the stall.
    pub closed_after_us: Option<f64>,
    /// From the end of the stall until all that had been due on the connection was answered.
    pub caught_up_after_us: Option<f64>,
    /// The longest time between two answers on the other connections.
    pub longest_gap_us: f64,
    /// Requests on the connection that do not count against objectives.
    pub excused: u64,
    /// Those in flight when it was closed.
    pub lost: u64,
}

impl ClientStallFigures {
    fn of(stall: ClientStall, counts: &Counts) -> Self {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let closed_after = counts.stall.and_then(|figures| figures.closed_after);
        let ended = match counts.stall {
            None => "not over",
            Some(_) if closed_after.is_some() => "closed by the target",
            Some(_) => "recovered",
        };
        Self {
            at_s: stall.at.as_secs_f64(),
            for_s: stall.length.as_secs_f64(),
            ended: ended.to_owned(),
            closed_after_us: closed_after.map(us),
            caught_up_after_us: counts.stall.map(|figures| us(figures.caught_up_after)),
            longest_gap_us: us(counts.longest_gap),
            excused: counts.excused,
            lost: counts.lost,
        }
    }
}

/// What a run was held to, and whether it kept to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveFigures {
    /// IDs per second.
    pub ids_per_s: Option<f64>,
    /// Response times.
    pub latencies: Vec<LatencyFigures>,
}

/// An objective of response time, and what was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyFigures {
    /// `p50` to `p99.99`, or `max`.
    pub quantile: String,
    /// What it may be at most.
    pub limit_us: f64,
    /// What it was.
    pub found_us: f64,
    /// Whether that is within the limit.
    pub met: bool,
}

/// A distribution in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How many values.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Quantile by name: `p50` to `p99.99`, and `max`.
    pub quantiles_us: std::collections::BTreeMap<String, f64>,
    /// The distribution, ever finer towards 100 %: pairs of a quantile from 0 to 1 and its value in microseconds.
    pub curve: Vec<(f64, f64)>,
}

impl Times {
    fn of(histogram: &hdrhistogram::Histogram<u64>) -> Self {
        let at = |quantile| (quantile_name(quantile), micros(histogram.value_at_quantile(quantile)));
        Self {
            count: histogram.len(),
            mean_us: histogram.mean() / 1e3,
            quantiles_us: QUANTILES.into_iter().map(at).collect(),
            curve: histogram
                .iter_quantiles(CURVE_TICKS_PER_HALF)
                .map(|step| (step.quantile_iterated_to(), micros(step.value_iterated_to())))
                .collect(),
        }
    }

    /// The value at a quantile by its name, in microseconds.
    #[must_use]
    pub fn at(&self, name: &str) -> Option<f64> {
        self.quantiles_us.get(name).copied()
    }
}

impl ObjectiveFigures {
    fn of(report: &Report<'_>) -> Self {
        let response = &report.outcome.counts.response;
        let latencies = report.objectives.latencies.iter().map(|latency| {
            let found_ns = response.value_at_quantile(latency.quantile);
            LatencyFigures {
                quantile: latency.name(),
                limit_us: latency.limit.as_secs_f64() * 1e6,
                found_us: micros(found_ns),
                met: u128::from(found_ns) <= latency.limit.as_nanos(),
            }
        });
        Self { ids_per_s: report.objectives.rate.map(|rate| rate.per_s()), latencies: latencies.collect() }
    }
}

impl Run {
    /// The figures of a report.
    #[must_use]
    pub fn of(report: &Report<'_>, origin: &Origin) -> Self {
        let (scenario, outcome) = (report.scenario, report.outcome);
        let counts = &outcome.counts;
        let (wanted_ids_per_s, arrivals, depth) = match scenario.drive {
            Drive::Open { rate, arrivals, .. } => (Some(rate.per_s()), Some(arrivals_word(arrivals)), None),
            Drive::Closed { depth } => (None, None, Some(depth)),
        };
        let for_s = match scenario.length {
            Length::For(length) => Some(length.as_secs_f64()),
            Length::Ids(_) => None,
        };
        Self {
            format: FORMAT,
            kind: RUN.to_owned(),
            origin: origin.clone(),
            verdict: report.verdict.word().to_owned(),
            reasons: report.verdict.reasons().to_vec(),
            summary: last_line(&report.verdict, &report.evidence(), report.objectives),
            objectives: ObjectiveFigures::of(report),
            loop_kind: report.loop_words().to_owned(),
            arrivals,
            protocol: if scenario.resp { "redis" } else { "snowbank" }.to_owned(),
            own_daemon: outcome.own_daemon,
            address: outcome.address.clone(),
            version: outcome.version.clone(),
            source: outcome.promise.source_name.clone(),
            layout: outcome.promise.layout(),
            source_per_second: outcome.promise.per_second,
            wanted_ids_per_s,
            batch: scenario.batch.to_string(),
            mean_batch: scenario.batch.mean(),
            connections: scenario.connections,
            threads: scenario.threads,
            depth,
            warm_up_s: scenario.warm_up.as_secs_f64(),
            for_s,
            elapsed_s: outcome.elapsed.as_secs_f64(),
            ids_per_s: report.ids_per_s(),
            requests: counts.requests,
            answered: counts.answered,
            unanswered: counts.unanswered,
            checked_ids: counts.checked_ids,
            refused: counts
                .refused
                .iter()
                .map(|(&code, refusals)| (code_name(code), refusals.count))
                .collect(),
            outage: scenario.outage.map(|outage| OutageFigures {
                ending: ending_word(outage.ending),
                at_s: outage.at.as_secs_f64(),
                length_us: counts.outage.as_secs_f64() * 1e6,
                longest_gap_us: counts.longest_gap.as_secs_f64() * 1e6,
                lost: counts.lost,
            }),
            client_stall: scenario.client_stall.map(|stall| ClientStallFigures::of(stall, counts)),
            response_time: Times::of(&counts.response),
            service_time: Times::of(&counts.service),
            target_time: depth.is_none().then(|| Times::of(&counts.target)),
            schedule_slip: depth.is_none().then(|| Times::of(&counts.slip)),
            longest_pause_us: counts.longest_pause.as_secs_f64() * 1e6,
            generator_cpu_share: report.own_cpu_share(),
            busiest_thread_share: counts.busiest_thread,
            generator_waited_us: counts.waited.as_secs_f64() * 1e6,
            generator_throttled_share: counts.throttled_share,
            generator_real_time: counts.real_time_threads > 0,
            generator_awake: counts.awake_threads > 0,
            daemon_cpu_share: report.target_cpu_share(),
            clock_offset_us: (!outcome.same_clock).then_some(counts.clock_offset_us),
            seconds: outcome.seconds.clone(),
        }
    }

    /// The seconds that the measurement lasted to their end; what trickles in after the last is left out.
    #[must_use]
    pub fn whole_seconds(&self) -> Vec<&SecondFigures> {
        // What is measured ends with the last receipt, a moment before or after the last second does.
        let lasted = |second: &&SecondFigures| second.second as f64 + 1.0 <= self.elapsed_s + 0.05;
        self.seconds.iter().filter(lasted).collect()
    }

    /// Whether a second of the measurement was part of an announced outage.
    #[must_use]
    pub fn is_outage(&self, second: u64) -> bool {
        let second = second as f64;
        let within = |outage: &OutageFigures| {
            outage.at_s < second + 1.0 && second <= outage.at_s + outage.length_us / 1e6
        };
        self.outage.as_ref().is_some_and(within)
    }

    /// The processor time that a daemon of our own took for each request it answered.
    #[must_use]
    pub fn daemon_us_per_request(&self) -> Option<f64> {
        (self.answered > 0).then_some(self.daemon_cpu_share? * self.elapsed_s * 1e6 / self.answered as f64)
    }

    /// The file's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers, strings and lists: there is nothing that could not be written.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

fn arrivals_word(arrivals: Arrivals) -> String {
    match arrivals {
        Arrivals::Even => "even",
        Arrivals::Poisson => "poisson",
    }
    .to_owned()
}

fn ending_word(ending: Ending) -> String {
    match ending {
        Ending::Stop => "stop",
        Ending::Kill => "kill",
    }
    .to_owned()
}
