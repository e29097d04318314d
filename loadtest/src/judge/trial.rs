//! A run, and more of the same if the machine's stalls decide the first one's answer. Their
//! requests are judged together: a second run cannot hide what the first one showed.

use std::time::{Duration, Instant};

use super::{Objectives, Verdict};
use crate::measure::Fault;
use crate::report::Report;
use crate::report::terminal::Terminal;
use crate::run::{CannotRun, Loaded, Outcome, of_echo};
use crate::scenario::Scenario;

/// The number of runs before "no verdict", by default.
const DEFAULT_RUNS: u32 = 2;

/// The time that they may take, by default.
const DEFAULT_TIME: Duration = Duration::from_secs(60);

/// Runs a scenario until it has a verdict, at most `runs` times, or until the user interrupts it.
/// A target that was late has a bare echo beside it.
///
/// # Errors
/// [`CannotRun`] if the first run is not possible. Faults of a target under load are in the
/// outcome.
pub(crate) fn run(
    scenario: &Scenario,
    objectives: &Objectives,
    runs: Option<u32>,
    terminal: &Terminal,
) -> Result<Outcome, CannotRun> {
    let (mut loaded, aimed) = Loaded::begin(scenario, terminal)?;
    let mut outcome = rounds(&aimed, objectives, runs, &mut loaded)?;
    if Report::new(scenario, objectives, &outcome).was_late() && !terminal.is_interrupted() {
        terminal.name_run("a bare echo, ".to_owned());
        outcome.echo = Some(of_echo(scenario, terminal).map(Box::new));
    }
    Ok(outcome)
}

/// Runs a scenario that names its target until it has a verdict.
///
/// # Errors
/// Those of the first run.
pub(crate) fn rounds(
    scenario: &Scenario,
    objectives: &Objectives,
    runs: Option<u32>,
    target: &mut Loaded<'_>,
) -> Result<Outcome, CannotRun> {
    let begun = Instant::now();
    let mut outcome = target.run(scenario)?;
    while Report::new(scenario, objectives, &outcome).asks_for_more() {
        let rounds = outcome.rounds;
        let fits = runs.is_some() || begun.elapsed() * (rounds + 1) / rounds < DEFAULT_TIME;
        if rounds >= runs.unwrap_or(DEFAULT_RUNS) || !fits {
            break;
        }
        match target.run(scenario) {
            Ok(round) => outcome.prolong(round),
            Err(CannotRun::Interrupted) => outcome.collected.interrupted = true,
            // What was measured is shown, with the reason.
            Err(error) => {
                let is_gone = matches!(error, CannotRun::NoTarget(_)) || error.exit_code() == 1;
                let is_ours = error.is_limit_here() || !is_gone;
                let reason = error.to_string();
                outcome.collected.faults.push(Fault::NotBegun { reason, is_ours });
            }
        }
    }
    Ok(outcome)
}

impl Report<'_> {
    /// Returns true if an open loop that was not cut short was late.
    fn was_late(&self) -> bool {
        let counts = &self.outcome.collected.counts;
        self.scenario.is_open_loop()
            && !self.outcome.collected.is_cut_short()
            && self.objectives.latencies.iter().any(|latency| latency.judge(counts) != super::Found::Met)
    }

    /// Returns true if another run may lead to a verdict. What happened on purpose cannot be
    /// repeated.
    fn asks_for_more(&self) -> bool {
        matches!(self.verdict, Verdict::Unknown(_))
            && self.scenario.outage.is_none()
            && self.outcome.collected.counts.requests > 0
            && !self.outcome.collected.is_cut_short()
    }
}
