//! A run that goes on until its verdict is sure.
//!
//! ```text
//!  the target ─▶ sure? ─ yes ───────────────────────────────────────────▶ verdict
//!     ▲           └ no ─▶ a bare echo, under the same load ─▶ sure? ─ yes ─▶ verdict
//!     └────────────────── no, and fewer than 8 rounds ───────┘
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use crate::report::Report;
use crate::run::{self, CannotRun, Outcome, Progress};
use crate::scenario::Scenario;
use crate::verdict::Objectives;

/// A machine that leaves an eighth of its time for a verdict gets one.
const MAX_ROUNDS: u32 = 8;

/// A run, however often it was prolonged.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) outcome: Outcome,
    /// A bare echo under the same load, if it was needed.
    pub(crate) echo: Option<Outcome>,
}

/// Runs a scenario until its verdict is sure, or `interrupt` is set.
///
/// # Errors
/// [`CannotRun`] if there is nothing to load. Faults of a target under load are in the outcome.
pub(crate) fn run(
    scenario: &Scenario,
    objectives: &Objectives,
    interrupt: &AtomicBool,
    show: &mut dyn FnMut(&str, Progress<'_>),
) -> Result<Trial, CannotRun> {
    let (mut daemon, mut seen) = (run::start_daemon(scenario, interrupt)?, Vec::new());
    let mut round = |show: &mut dyn FnMut(&str, Progress<'_>)| {
        let mut show = |progress: Progress<'_>| show("", progress);
        run::run_against(scenario, daemon.as_mut(), &mut seen, interrupt, &mut show)
    };
    let mut trial = Trial { outcome: round(show)?, echo: None };
    while trial.report(scenario, objectives).asks_about_machine() && !interrupt.load(Ordering::Relaxed) {
        let echo = run::of_echo(scenario, interrupt, &mut |progress| show("a bare echo, ", progress));
        trial.add_echo(echo);
        let is_over =
            trial.outcome.rounds >= MAX_ROUNDS || !trial.report(scenario, objectives).asks_for_more();
        if is_over || interrupt.load(Ordering::Relaxed) {
            break;
        }
        trial.outcome.prolong(round(show)?);
    }
    Ok(trial)
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
