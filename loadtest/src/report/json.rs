//! The JSON file of a run: the verdict, and the list of all figures. The terminal's report and the
//! page are made from the same list.

use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{ECHO, IDS, LATENCIES, LOAD, MACHINE, NOTE, PROCESSOR, QUANTILES, TARGET, headline};
use crate::failure::Failure;
use crate::figure::{Figures, UNKNOWN, Unit};
use crate::judge::{Latency, Objectives, Verdict, quantile_name};
use crate::load::Peer;
use crate::measure::{Counts, SecondFigures, TimeHistogram, count_of, micros};
use crate::outcome::Outcome;
use crate::scenario::{Drive, Scenario};
use crate::target::code_name;
use crate::units::lowercase;

/// The version of the file's format. It changes when a key is removed or changes its meaning.
/// loadtest/schema.json describes the format.
pub(crate) const FORMAT: u32 = 3;

/// The value of [`Run::kind`].
pub(crate) const RUN: &str = "run";

/// The number of points of a percentile curve for each halving of the distance to 100 %. With this
/// number, a curve is smooth, and has a few hundred points at most.
const CURVE_TICKS_PER_HALF: u32 = 5;

/// If fewer values than this lie beyond a quantile, chance decides the quantile.
const MIN_BEYOND_QUANTILE: f64 = 10.0;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// [`RUN`].
    pub(crate) kind: String,
    /// `pass`, `fail` or `no verdict`.
    pub(crate) verdict: String,
    /// The reasons why the verdict is not a pass.
    pub(crate) reasons: Vec<String>,
    /// The first line of the report.
    pub(crate) summary: String,
    pub(crate) objectives: Vec<Objective>,
    pub(crate) figures: Figures,
    /// The distributions that the page draws.
    pub(crate) curves: Vec<Curve>,
    pub(crate) seconds: Vec<SecondFigures>,
}

/// An objective of response time, and the value that the run reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Objective {
    /// `p50` to `p99.99`, or `max`.
    pub(crate) quantile: String,
    pub(crate) limit_us: f64,
    /// Null if nothing was measured.
    pub(crate) found_us: Option<f64>,
    /// The target's part of the response time at this quantile, without the machine's stalls. If
    /// this time is above the limit, the target missed the objective.
    pub(crate) certain_us: Option<f64>,
    pub(crate) met: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Curve {
    /// The row of [`Run::figures`] that has quantiles of the same distribution.
    pub(crate) row: String,
    /// Pairs of a quantile from 0 to 1 and its value in microseconds. The quantiles are closer
    /// together towards 1.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Run {
    /// Returns the figures of a run that was judged.
    pub(crate) fn of(
        scenario: &Scenario,
        objectives: &Objectives,
        outcome: &Outcome,
        verdict: &Verdict,
        origin: &Figures,
    ) -> Self {
        let counts = &outcome.counts;
        let found = objectives.latencies.iter().map(|latency| Objective::of(latency, counts));
        let mut run = Self {
            format: FORMAT,
            kind: RUN.to_owned(),
            verdict: verdict.word().to_owned(),
            reasons: verdict.reasons().to_vec(),
            summary: headline(verdict, objectives, outcome),
            objectives: found.collect(),
            figures: Figures::default(),
            curves: Vec::new(),
            seconds: outcome.seconds.clone(),
        };
        add_ids(&mut run.figures, outcome);
        add_processor(&mut run.figures, outcome);
        run.add_times(LATENCIES[0], &counts.response);
        run.add_times(LATENCIES[1], &counts.target);
        match &outcome.echo {
            Some(Ok(echo)) => run.add_times(ECHO, &echo.counts.response),
            Some(Err(failure)) => {
                let words = format!("could not be run: {}", failure.reason);
                run.figures.add(NOTE, ECHO, Unit::None, words);
            }
            None => {}
        }
        add_effects(&mut run.figures, scenario, outcome);
        run.figures.extend(&outcome.target);
        add_load(&mut run.figures, scenario, outcome);
        let errors = objectives.errors;
        run.figures.add_if(LOAD, "errors allowed", Unit::Share, (errors > 0.0).then_some(errors));
        run.figures.extend(origin);
        run
    }

    fn add_times(&mut self, row: &str, times: &TimeHistogram) {
        if times.is_empty() {
            return;
        }
        for quantile in QUANTILES {
            self.figures.add(row, &quantile_name(quantile), Unit::Us, micros(times.at(quantile)));
        }
        let mut points = Vec::new();
        for step in times.iter_quantiles(CURVE_TICKS_PER_HALF) {
            let value = Duration::from_nanos(step.value_iterated_to());
            points.push((step.quantile_iterated_to(), micros(value)));
        }
        self.curves.push(Curve { row: row.to_owned(), points });
    }

    /// Returns the whole seconds of the measurement. Its last second may be cut short, or have only
    /// late answers.
    pub(crate) fn whole_seconds(&self) -> Vec<&SecondFigures> {
        // A second that lacks only 50 ms counts as whole.
        let lasted_s = self.figures.number(MACHINE, "measured for").unwrap_or_default() + 0.05;
        self.seconds.iter().filter(|second| second.second as f64 + 1.0 <= lasted_s).collect()
    }
}

fn add_ids(figures: &mut Figures, outcome: &Outcome) {
    let counts = &outcome.counts;
    figures.add(IDS, "requests", Unit::None, counts.requests);
    figures.add(IDS, "answered", Unit::None, counts.answered);
    figures.add(IDS, "refused", Unit::None, count_of(&counts.refused));
    figures.add(IDS, "unanswered", Unit::None, counts.unanswered);
    figures.add(IDS, "IDs checked", Unit::None, counts.checked_ids);
    for (refused, when) in [(&counts.refused, ""), (&counts.warm_up_refused, " in the warm-up")] {
        for (&code, refusals) in refused {
            figures.add(IDS, &format!("{}{when}", code_name(code)), Unit::None, refusals.count);
        }
    }
    figures.add_if(IDS, "numbers left out", Unit::None, outcome.left_out);
    figures.add(IDS, "rate", Unit::IdsPerS, outcome.ids_per_s());
    let times = counts.response.len() as f64;
    let few: Vec<String> = QUANTILES
        .into_iter()
        .filter(|quantile| *quantile < 1.0 && (times * (1.0 - quantile)).round() < MIN_BEYOND_QUANTILE)
        .map(quantile_name)
        .collect();
    if !few.is_empty() && times > 0.0 {
        figures.add(NOTE, "too few requests for", Unit::None, few.join(", "));
    }
}

fn add_processor(figures: &mut Figures, outcome: &Outcome) {
    let cpu = outcome.target_cpu;
    let answered = outcome.counts.answered;
    let each_us = cpu.filter(|_| answered > 0).map(|cpu| cpu.as_secs_f64() * 1e6 / answered as f64);
    let mut memory = outcome.seconds.iter().filter_map(|second| second.target_memory_bytes);
    let first = memory.next();
    let most = memory.max();
    figures.add(PROCESSOR, "target's CPU", Unit::Share, cpu.map(|cpu| outcome.share(cpu)));
    figures.add(PROCESSOR, "target's CPU per request", Unit::Us, each_us);
    figures.add(PROCESSOR, "target's memory", Unit::Bytes, first);
    figures.add_if(PROCESSOR, "at most", Unit::Bytes, most.filter(|&most| Some(most) > first));
    figures.add(PROCESSOR, "generator's CPU", Unit::Share, outcome.share(outcome.counts.cpu));
}

/// Adds the stalls of the machine, the outage and the difference of the clocks.
fn add_effects(figures: &mut Figures, scenario: &Scenario, outcome: &Outcome) {
    let counts = &outcome.counts;
    let stalls = outcome.stalls;
    figures.add(MACHINE, "stood still", Unit::Us, micros(stalls.total));
    figures.add(MACHINE, "stalls", Unit::None, stalls.count);
    figures.add(MACHINE, "longest stall", Unit::Us, micros(stalls.longest));
    figures.add(MACHINE, "measured for", Unit::S, outcome.elapsed.as_secs_f64());
    if let Some(outage) = scenario.outage {
        figures.add("outage", "cause", Unit::None, lowercase(outage.ending));
        figures.add("outage", "at", Unit::S, outage.at.as_secs_f64());
        let back = (!counts.outage.is_zero()).then(|| micros(counts.outage));
        figures.add("outage", "until all was back", Unit::Us, back);
        figures.add("outage", "requests lost", Unit::None, counts.lost);
    }
    let apart_us = (counts.clock_offset_us != 0).then_some(counts.clock_offset_us as f64);
    figures.add_if("clocks", "furthest apart", Unit::Us, apart_us);
}

/// Returns the figures of a run's targets. All targets have the same ID space, so the first one's
/// layout stands for all.
pub(crate) fn targets(scenario: &Scenario, peers: &[Peer], is_own_daemon: bool) -> Figures {
    let mut figures = Figures::default();
    let promise = &peers[0].promise;
    let addresses: Vec<String> = peers.iter().map(|peer| peer.access.endpoint.to_string()).collect();
    let version = peers.iter().find_map(|peer| peer.version.as_deref());
    let per_second: Option<u64> = peers.iter().map(|peer| peer.promise.per_second).sum();
    figures.add(TARGET, "address", Unit::None, addresses.join(", "));
    figures.add(TARGET, "protocol", Unit::None, scenario.protocol.name);
    figures.add(TARGET, "version", Unit::None, version.unwrap_or("unknown"));
    figures.add_if(TARGET, "started for this run", Unit::None, is_own_daemon.then_some("yes"));
    figures.add(TARGET, "source", Unit::None, promise.source_name.as_str());
    let worker_ids = promise.layout().map(|(_, workers)| workers.len());
    let form = match (promise.layout(), promise.increment()) {
        (Some((layout, _)), _) => layout.to_string(),
        (None, Some(increment)) => format!("tickets, increment {increment}"),
        (None, None) => UNKNOWN.to_owned(),
    };
    if form == UNKNOWN {
        figures.add(NOTE, "not checked", Unit::None, "times and workers, because the layout is unknown");
    }
    figures.add(TARGET, "layout", Unit::None, form);
    figures.add_if(TARGET, "worker IDs", Unit::None, worker_ids);
    figures.add(TARGET, "IDs of a request at most", Unit::None, promise.max_count);
    figures.add_if(TARGET, "IDs per second at most", Unit::IdsPerS, per_second);
    figures
}

fn add_load(figures: &mut Figures, scenario: &Scenario, outcome: &Outcome) {
    figures.add(LOAD, "loop", Unit::None, scenario.loop_words());
    match scenario.drive {
        Drive::Open { rate, arrivals } => {
            figures.add(LOAD, "offered", Unit::IdsPerS, rate.per_s());
            figures.add(LOAD, "arrivals", Unit::None, lowercase(arrivals));
        }
        Drive::Closed { depth } => figures.add(LOAD, "requests in flight", Unit::None, depth),
    }
    figures.add(LOAD, "IDs per request", Unit::None, scenario.batch);
    figures.add(LOAD, "connections", Unit::None, scenario.connections);
    figures.add(LOAD, "threads", Unit::None, scenario.threads);
    figures.add(LOAD, "length", Unit::S, scenario.length.as_secs_f64());
    figures.add(LOAD, "runs", Unit::None, u64::from(outcome.rounds));
    figures.add(LOAD, "warm-up", Unit::S, scenario.warm_up.as_secs_f64());
}

impl Objective {
    fn of(latency: &Latency, counts: &Counts) -> Self {
        let Latency { quantile, limit } = *latency;
        let found = counts.response.known_at(quantile);
        Self {
            quantile: latency.name(),
            limit_us: micros(limit),
            found_us: found.map(micros),
            certain_us: counts.settling.certain.known_at(quantile).map(micros),
            met: found.is_some_and(|found| found <= limit),
        }
    }
}

/// Reads a file that `--json` wrote. The file's key `kind` must equal the argument `kind`.
///
/// # Errors
/// [`Failure`] if the file cannot be read, or if this version's `--json` does not write such files.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, kind: &str) -> Result<T, Failure> {
    let name = path.display();
    let bytes =
        std::fs::read(path).map_err(|reason| Failure::usage(format_args!("cannot read {name}: {reason}")))?;
    let file: Json = serde_json::from_slice(&bytes).map_err(|reason| misshapen(path, &reason))?;
    for (key, wanted) in [("format", Json::from(FORMAT)), ("kind", Json::from(kind))] {
        let found = file.get(key);
        if found != Some(&wanted) {
            let found = found.map_or_else(|| format!("no {key}"), |found| format!("{key} {found}"));
            return Err(Failure::usage(format_args!(
                "found {found} in {name}, allowed: a file with {key} {wanted}, written by this version of \
                 snowbank-loadtest"
            )));
        }
    }
    serde_json::from_value(file).map_err(|reason| misshapen(path, &reason))
}

fn misshapen(path: &Path, reason: &serde_json::Error) -> Failure {
    Failure::usage(format_args!("{} is not what snowbank-loadtest --json writes: {reason}", path.display()))
}
