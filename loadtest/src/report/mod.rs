//! The results of a run, for people and for programs.
//!
//! - [`json`]: all figures of a run; [`read`] reads them from a file. Every other report is made from them.
//! - [`table`]: the final table. [`html`]: a page with charts. [`hdr`]: files for HdrHistogram's viewers.
//!   [`csv`]: seconds for spreadsheets.
//! - [`progress`]: the progress bar.

pub(crate) mod csv;
pub(crate) mod hdr;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod progress;
pub(crate) mod read;
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod testing;

use std::io::{self, Write};

use crate::measure::TimeHistogram;
use crate::measure::disturbed::Undisturbed;
use crate::run::Outcome;
use crate::scenario::{Cause, Drive, Outage, Scenario};
use crate::units::ms;
use crate::verdict::{
    Assessment, Bunches, Evidence, MAX_THROTTLED_SHARE, Objectives, Verdict, judge, last_line,
};

/// The quantiles that every report shows; 1 is the maximum.
pub(crate) const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// A run with its verdict.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) objectives: &'a Objectives,
    pub(crate) outcome: &'a Outcome,
    pub(crate) verdict: Verdict,
    /// The times without the stalls of the machine.
    pub(crate) undisturbed: Undisturbed,
    /// A bare echo under the same load, if it was run.
    pub(crate) echo: Option<Echo<'a>>,
    /// The number of tries, this last one included.
    pub(crate) tries: u32,
    /// True if fewer generator threads are faster.
    pub(crate) has_too_many_threads: bool,
}

/// The times of a bare echo.
#[derive(Debug)]
pub(crate) struct Echo<'a> {
    pub(crate) response: &'a TimeHistogram,
    undisturbed: Undisturbed,
}

impl<'a> Report<'a> {
    /// Judges a run, with one of a bare echo if there is one.
    pub(crate) fn new(
        scenario: &'a Scenario,
        objectives: &'a Objectives,
        outcome: &'a Outcome,
        echo: Option<&'a Outcome>,
    ) -> Self {
        let echo = echo
            .map(|echo| Echo { response: &echo.collected.counts.response, undisturbed: undisturbed(echo) });
        let (verdict, undisturbed) = (Verdict::Pass, undisturbed(outcome));
        let mut report = Self {
            scenario,
            objectives,
            outcome,
            verdict,
            undisturbed,
            echo,
            tries: 1,
            has_too_many_threads: false,
        };
        report.verdict = judge(&report.evidence(), objectives);
        report
    }

    /// Judges it again if fewer generator threads are faster.
    pub(crate) fn with_threads(mut self, has_too_many_threads: bool) -> Self {
        self.has_too_many_threads = has_too_many_threads;
        self.verdict = judge(&self.evidence(), self.objectives);
        self
    }

    /// Returns the figures that the verdict depends on.
    pub(crate) fn evidence(&self) -> Evidence<'_> {
        let collected = &self.outcome.collected;
        Evidence {
            counts: &collected.counts,
            faults: &collected.faults,
            undisturbed: &self.undisturbed,
            echo: self.echo.as_ref().map(|echo| &echo.undisturbed),
            rounds: self.outcome.rounds,
            is_single: self.is_single(),
            has_too_many_threads: self.has_too_many_threads,
            stalls: self.outcome.stalls,
            own_waits: self.outcome.own_waits,
            is_owner_known: self.outcome.is_owner_known,
            target_busiest: self.outcome.target_busiest,
            per_second: self.outcome.per_second,
            elapsed: self.outcome.elapsed,
            promise: &self.outcome.promise,
            open_loop: matches!(self.scenario.drive, Drive::Open { .. }),
            ids_per_s: self.ids_per_s(),
            interrupted: collected.interrupted,
            too_scattered: collected.too_scattered,
        }
    }

    /// Returns true if an open loop that was not cut short missed a response time, by the target's fault or the
    /// machine's.
    pub(crate) fn asks_about_machine(&self) -> bool {
        let missed = |latency| Assessment::of(latency, &self.evidence()) != Assessment::Met;
        let is_open_loop = matches!(self.scenario.drive, Drive::Open { .. });
        let is_cut_short = self.outcome.collected.is_cut_short();
        is_open_loop && !is_cut_short && self.objectives.latencies.iter().any(missed)
    }

    /// Returns true if a longer run may have another verdict.
    pub(crate) fn asks_for_more(&self) -> bool {
        let is_judged_by_times = self.verdict == Verdict::Pass || self.may_be_noise();
        self.asks_about_machine()
            && is_judged_by_times
            && !self.is_single()
            && !self.evidence().is_sure(self.objectives)
    }

    /// Returns true if what happened on purpose cannot be repeated in another round.
    fn is_single(&self) -> bool {
        let is_announced = self.scenario.outage.is_some() || self.scenario.client_stall.is_some();
        is_announced || !self.outcome.lost_targets.is_empty()
    }

    /// Returns true if another try may pass: this one did not, but had no fault and not too many errors.
    pub(crate) fn may_be_noise(&self) -> bool {
        let counts = &self.outcome.collected.counts;
        self.verdict != Verdict::Pass
            && !self.outcome.collected.is_cut_short()
            && counts.requests > 0
            && counts.error_share() <= self.objectives.errors
    }

    /// Returns true if the machine holds the objectives, with the target or without one; `None` if that was
    /// not measured.
    pub(crate) fn machine_holds(&self) -> Option<bool> {
        let latencies = &self.objectives.latencies;
        let within = |times: &TimeHistogram| {
            latencies.iter().all(|latency| times.at(latency.quantile) <= latency.limit)
        };
        let (counts, has_any) = (&self.outcome.collected.counts, !latencies.is_empty());
        let holds = has_any && counts.requests > 0 && within(&counts.response);
        if holds {
            Some(true)
        } else {
            self.echo.as_ref().filter(|_| has_any).map(|echo| within(echo.response))
        }
    }

    /// Returns the late bunches of target and echo, by the first objective.
    pub(crate) fn bunches(&self) -> Option<Bunches> {
        let limit = self.objectives.latencies.first()?.limit;
        let echo = self.echo.as_ref().map(|echo| &echo.undisturbed);
        Bunches::above(limit.as_nanos() as u64, &self.undisturbed, echo)
    }

    /// Returns the last line of every output.
    pub(crate) fn summary(&self) -> String {
        let target = last_line(&self.verdict, &self.evidence(), self.objectives);
        let Some((echo, holds)) = self.echo.as_ref().zip(self.machine_holds()) else {
            return target;
        };
        let found = self
            .objectives
            .latencies
            .iter()
            .map(|it| format!("{} {}", it.name(), ms(echo.response.at(it.quantile))));
        let (found, holds) =
            (found.collect::<Vec<_>>().join(", "), if holds { "holds" } else { "does not hold" });
        format!("{target}; this machine without a target {holds} the objective: a bare echo has {found}")
    }

    /// Returns the rate outside the announced outage; neither its IDs nor its time count.
    pub(crate) fn ids_per_s(&self) -> f64 {
        let (elapsed, counts) = (self.outcome.elapsed, &self.outcome.collected.counts);
        let length = |outage: Outage| match outage.cause {
            // One that began shortly before the end lasted on after it.
            Cause::Own(_) => counts.outage.min(elapsed.saturating_sub(outage.at)),
            Cause::Others { within } => within,
        };
        let judged = elapsed.saturating_sub(self.scenario.outage.map(length).unwrap_or_default());
        counts.ids as f64 / judged.as_secs_f64().max(1e-9)
    }
}

fn undisturbed(outcome: &Outcome) -> Undisturbed {
    let counts = &outcome.collected.counts;
    // A quota looks like a stall of the machine, but stops this process alone.
    match counts.throttled_share > MAX_THROTTLED_SHARE {
        true => Undisturbed::with_all(counts),
        false => Undisturbed::of(counts, outcome.stalls, outcome.elapsed),
    }
}

/// Prints to standard error, where standard output is for programs.
pub(crate) fn print_aside(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut out = io::stderr().lock();
    let _ = write(&mut out).and_then(|()| out.flush());
}

/// Prints to standard output. Its reader may leave early; the exit code stays.
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut out = io::stdout().lock();
    let _ = write(&mut out).and_then(|()| out.flush());
}
