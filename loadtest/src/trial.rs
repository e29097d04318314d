//! A run that continues until its verdict is sure.
//!
//! ```text
//!  the target ─▶ sure? ─ yes ───────────────────────────────────────────▶ verdict
//!     ▲           └ no ─▶ a bare echo, under the same load ─▶ sure? ─ yes ─▶ verdict
//!     └────────────────── no, and fewer than 8 rounds ───────┘
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use crate::check::distinct::Distinct;
use crate::daemon::Daemon;
use crate::measure::Fault;
use crate::report::Report;
use crate::run::{self, CannotRun, Outcome, Progress};
use crate::scenario::Scenario;
use crate::verdict::Objectives;

/// The most rounds. A machine that is quiet for an eighth of the time gets a verdict.
const MAX_ROUNDS: u32 = 8;

/// A run with all its rounds.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) outcome: Outcome,
    /// A bare echo under the same load, if it was needed.
    pub(crate) echo: Option<Outcome>,
}

/// The source of rounds: a real target, or a simulated one.
trait Rounds {
    /// Puts the load on the target.
    fn target(&mut self) -> Result<Outcome, CannotRun>;

    /// Puts the same load on a bare echo.
    fn echo(&mut self) -> Option<Outcome>;

    fn is_interrupted(&self) -> bool;
}

/// The rounds of a scenario on this machine.
struct Live<'a> {
    scenario: &'a Scenario,
    daemon: Option<Daemon>,
    /// The IDs of all rounds: none may come twice in any two.
    seen: Vec<Distinct>,
    interrupt: &'a AtomicBool,
    show: &'a mut dyn FnMut(&str, Progress<'_>),
}

/// Runs a scenario until its verdict is sure, or `interrupt` is set.
///
/// # Errors
/// [`CannotRun`] if the first round could not run. Faults of a target under load are in the
/// outcome.
pub(crate) fn run(
    scenario: &Scenario,
    objectives: &Objectives,
    interrupt: &AtomicBool,
    show: &mut dyn FnMut(&str, Progress<'_>),
) -> Result<Trial, CannotRun> {
    let daemon = run::start_daemon(scenario, interrupt)?;
    let mut live = Live { scenario, daemon, seen: Vec::new(), interrupt, show };
    until_sure(scenario, objectives, &mut live)
}

fn until_sure(
    scenario: &Scenario,
    objectives: &Objectives,
    rounds: &mut dyn Rounds,
) -> Result<Trial, CannotRun> {
    let mut trial = Trial { outcome: rounds.target()?, echo: None };
    while trial.report(scenario, objectives).asks_about_machine() {
        if !rounds.is_interrupted() {
            trial.add_echo(rounds.echo());
        }
        // Without the echo, the machine's doing would count as the target's.
        if rounds.is_interrupted() {
            trial.outcome.collected.interrupted = true;
            break;
        }
        let is_last = trial.outcome.rounds >= MAX_ROUNDS;
        if is_last || !trial.report(scenario, objectives).asks_for_more() {
            break;
        }
        match rounds.target() {
            Ok(round) => trial.outcome.prolong(round),
            Err(CannotRun::Interrupted) => {
                trial.outcome.collected.interrupted = true;
                break;
            }
            // What was measured is shown, with the reason.
            Err(error) => {
                let is_gone = matches!(error, CannotRun::NoTarget(_)) || error.exit_code() == 1;
                let (is_ours, reason) = (error.is_limit_here() || !is_gone, error.to_string());
                let reason = reason.trim_start_matches("fail: ").to_owned();
                trial.outcome.collected.faults.push(Fault::NotOpened { reason, is_ours });
                break;
            }
        }
    }
    Ok(trial)
}

impl Rounds for Live<'_> {
    fn target(&mut self) -> Result<Outcome, CannotRun> {
        let Self { scenario, daemon, seen, interrupt, show } = self;
        run::run_against(scenario, daemon.as_mut(), seen, interrupt, &mut |progress| show("", progress))
    }

    fn echo(&mut self) -> Option<Outcome> {
        let Self { scenario, interrupt, show, .. } = self;
        run::of_echo(scenario, interrupt, &mut |progress| show("a bare echo, ", progress))
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }
}

impl Trial {
    /// Judges it.
    pub(crate) fn report<'a>(&'a self, scenario: &'a Scenario, objectives: &'a Objectives) -> Report<'a> {
        Report::new(scenario, objectives, &self.outcome, self.echo.as_ref())
    }

    fn add_echo(&mut self, echo: Option<Outcome>) {
        match (&mut self.echo, echo) {
            (Some(all), Some(echo)) => all.prolong(echo),
            (None, echo) => self.echo = echo,
            (Some(_), None) => {}
        }
    }
}

#[cfg(test)]
mod simulation;
