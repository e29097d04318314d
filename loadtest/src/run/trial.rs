//! Runs a scenario, and repeats the run if it has no verdict. The requests of all runs are judged
//! together, so a second run cannot hide what the first run showed.

use std::time::{Duration, Instant};

use super::{Loaded, run_echo};
use crate::failure::{Blame, Failure};
use crate::judge::{Objectives, Verdict, judge};
use crate::measure::Fault;
use crate::outcome::Outcome;
use crate::report::terminal::Terminal;
use crate::scenario::Scenario;

/// The most runs by default. If the last of them has no verdict, the result is "no verdict".
const DEFAULT_RUNS: u32 = 2;

/// The time that all runs may take by default. Together with the echo after these runs, that is
/// about a minute.
const DEFAULT_TIME: Duration = Duration::from_secs(55);

/// Runs a scenario until there is a verdict or the user interrupts the run, but at most `runs`
/// times. Then runs a bare echo under the same load, unless a run was cut short.
///
/// # Errors
/// [`Failure`] if the first run is not possible. Faults of a target under load are in the outcome.
pub(crate) fn run(
    scenario: &Scenario,
    objectives: &Objectives,
    runs: Option<u32>,
    terminal: &Terminal,
) -> Result<Outcome, Failure> {
    let (mut loaded, aimed) = Loaded::begin(scenario, terminal)?;
    let mut outcome = rounds(&aimed, objectives, runs, &mut loaded)?;
    if !outcome.is_cut_short() {
        terminal.name_run("a bare echo, ".to_owned());
        outcome.echo = Some(run_echo(scenario, terminal).map(Box::new));
    }
    Ok(outcome)
}

/// Does the same as [`run`], without the echo. The scenario has the target's addresses.
///
/// # Errors
/// [`Failure`] if the first run is not possible.
pub(crate) fn rounds(
    scenario: &Scenario,
    objectives: &Objectives,
    runs: Option<u32>,
    target: &mut Loaded<'_>,
) -> Result<Outcome, Failure> {
    let begun = Instant::now();
    let mut outcome = target.run(scenario)?;
    // A run with a planned outage is not repeated.
    let most = if scenario.outage.is_some() { 1 } else { runs.unwrap_or(DEFAULT_RUNS) };
    while outcome.rounds < most && outcome.asks_for_more(objectives) {
        let next_ends = begun.elapsed() * (outcome.rounds + 1) / outcome.rounds;
        if runs.is_none() && next_ends >= DEFAULT_TIME {
            break;
        }
        match target.run(scenario) {
            Ok(round) => outcome.prolong(round),
            Err(failure) if failure.blame == Blame::Interrupt => outcome.interrupted = true,
            // The report shows the figures of the earlier runs, and this reason.
            Err(Failure { blame, reason }) => {
                let is_ours = blame != Blame::Target;
                outcome.faults.push(Fault::NotBegun { reason, is_ours });
            }
        }
    }
    Ok(outcome)
}

impl Outcome {
    /// Returns true if another run may lead to a verdict.
    fn asks_for_more(&self, objectives: &Objectives) -> bool {
        matches!(judge(self, objectives), Verdict::Unknown(_))
            && self.counts.requests > 0
            && !self.is_cut_short()
    }
}
