//! Finds the saturation point step by step. The saturation point is the highest rate at which the
//! objective holds, confirmed by a second run.
//!
//! ```text
//!  search (pure) ── a rate ──▶ step: its runs ([`crate::run`]) ──▶ an answer ──▶ search
//! ```
//!
//! - [`search`]: chooses the next rate. [`step`]: a run at a rate, and its answer.
//! - [`table`]: shows the steps and the result at the terminal. [`page`]: a page with a chart.
//!
//! All steps are runs against the same daemon. No ID may come twice in the whole sweep.

pub(crate) mod page;
pub(crate) mod search;
pub(crate) mod step;
pub(crate) mod table;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::{Blame, Failure};
use crate::figure::Figures;
use crate::judge::Objectives;
use crate::report::json::FORMAT;
use crate::report::terminal::Terminal;
use crate::run::{self, Loaded};
use crate::scenario::Scenario;
use crate::units::{grouped, lowercase};
use crate::value::{MAX_RATE_PER_S, Rate, Share, Time};
use search::{Bounds, Limit, Search};
use step::Step;

/// The first step's requests per second without `--start`: far below the limit of any machine. At
/// this rate, ten requests of a step of 5 s lie beyond the p99.9.
const START_REQUESTS_PER_S: f64 = 2_000.0;

/// The first rate is at most this share of the source's full rate. So the search can climb even if
/// the layout has few IDs.
const START_SHARE_OF_FULL_RATE: f64 = 0.125;

/// The pause between two steps, in which the target finishes the work of the earlier step.
const SETTLE: Duration = Duration::from_millis(200);

/// A confirmation is this many times as long as a step. So a rate that held only by luck is
/// unlikely to hold again.
pub(crate) const CONFIRM_LENGTH: u32 = 2;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The command line and the machine, read before the first step.
    pub(crate) origin: Figures,
    /// The scenario of each step. The step sets the rate, and a confirmation is longer.
    pub(crate) scenario: Scenario,
    /// Every objective has to hold.
    pub(crate) objectives: Objectives,
    pub(crate) search: SearchOptions,
}

/// The options of the search.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SearchOptions {
    /// The first rate, in IDs per second [default: 2000 requests/s, or an eighth of the source's
    /// rate]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(crate) start: Option<Rate>,
    /// The highest rate to try [default: the source's highest rate]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(crate) limit: Option<Rate>,
    /// Largest distance from the saturation point to the next rate that misses: two runs on a quiet
    /// machine differ by about 5%
    #[arg(long, value_name = "SHARE", default_value = "5%", allow_hyphen_values = true)]
    pub(crate) resolution: Share,
    /// Repeat a step until it has a verdict, up to this many runs, judged together [default: 2,
    /// within 60s]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: Option<u32>,
    /// Length of each step, after its warm-up; the confirmation takes twice as long
    #[arg(long = "for", value_name = "TIME", default_value = "5s", allow_hyphen_values = true)]
    pub(crate) length: Time,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ended {
    #[default]
    Searched,
    Interrupted,
    /// The target broke a promise. The text says which one.
    Broken(String),
    /// The target could not be loaded again, for this reason.
    Gone(String),
    /// This machine could not begin another run, because it can open no more files or has no free
    /// local port.
    Hindered(String),
}

impl From<Failure> for Ended {
    fn from(cannot: Failure) -> Self {
        match cannot.blame {
            Blame::Interrupt => Ended::Interrupted,
            Blame::Machine => Ended::Hindered(cannot.reason),
            Blame::Target | Blame::User => Ended::Gone(cannot.reason),
        }
    }
}

/// The value of [`Sweep::kind`].
pub(crate) const KIND: &str = "sweep";

/// A sweep, with the keys of its JSON. Rates are IDs per second.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sweep {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// [`KIND`].
    pub(crate) kind: String,
    pub(crate) summary: String,
    pub(crate) ended: Ended,
    /// The highest rate that held, below all that missed; null if there was none.
    pub(crate) saturation: Option<f64>,
    /// True if a second run at the saturation point held.
    pub(crate) confirmed: bool,
    /// True if the target may be able to do more: the machine or `--limit` bounds the rate.
    pub(crate) at_least: bool,
    /// The lowest rate above the saturation point that missed.
    pub(crate) missed: Option<f64>,
    /// The reason why the saturation point is not higher; null if no rate missed and the source
    /// could do more.
    pub(crate) limit: Option<Limit>,
    pub(crate) search: Bounds,
    pub(crate) steps: Vec<Step>,
}

/// Sweeps until the search is over, or until the user, a broken promise or a failure ends the
/// sweep.
///
/// # Errors
/// [`Failure`] if the first step cannot be run.
pub(crate) fn sweep(mut settings: Settings, terminal: &Terminal) -> Result<Sweep, Failure> {
    let mut target;
    (target, settings.scenario) = Loaded::begin(&settings.scenario, terminal)?;
    let full_rate = run::greet(&settings.scenario, 0)?.promise.per_second;
    let mut search = Search::new(settings.bounds(full_rate)?);
    let mut steps = Vec::new();
    let mut ended = Ended::Searched;
    terminal.print(|out| table::begin(&settings, search.bounds, out));
    while let Some(attempt) = search.next() {
        if !steps.is_empty() {
            std::thread::sleep(SETTLE);
        }
        let number = steps.len() + 1;
        let phase = lowercase(attempt.phase);
        let rate = grouped(attempt.rate);
        terminal.name_run(format!("step {number}, {phase} {rate}/s, "));
        let (step, ends) = match step::run(&settings, attempt, full_rate, &mut target) {
            Ok(ran) => ran,
            Err(cannot) if steps.is_empty() => return Err(cannot),
            Err(cannot) => {
                ended = cannot.into();
                break;
            }
        };
        terminal.print(|out| table::row(&step, out));
        let limit = step.limit;
        steps.push(step);
        if let Some(reason) = ends {
            ended = reason;
            break;
        }
        search.record(attempt, limit);
    }
    Ok(Sweep::of(&settings, &search, full_rate, ended, steps))
}

impl Settings {
    /// Returns the bounds of the search for a source that can hand out `per_second` IDs per second.
    pub(crate) fn bounds(&self, per_second: Option<u64>) -> Result<Bounds, Failure> {
        let full_rate = per_second.filter(|&rate| rate > 0).map_or(MAX_RATE_PER_S, |rate| rate as f64);
        let limit = self.search.limit.map_or(full_rate, Rate::per_s).min(full_rate);
        let usual =
            (START_REQUESTS_PER_S * f64::from(self.scenario.batch)).min(full_rate * START_SHARE_OF_FULL_RATE);
        let start = self.search.start.map_or(usual.min(limit), Rate::per_s);
        if start > limit {
            return Err(Failure::usage(format_args!(
                "found --start {start}/s, allowed: at most {limit}/s, the lower of --limit and the source's full rate"
            )));
        }
        Ok(Bounds { start, limit, resolution: self.search.resolution.0 })
    }
}

impl Sweep {
    fn of(
        settings: &Settings,
        search: &Search,
        full_rate: Option<u64>,
        ended: Ended,
        steps: Vec<Step>,
    ) -> Self {
        let saturation = search.saturation();
        let at_full_rate =
            full_rate.zip(saturation).is_some_and(|(full_rate, saturation)| saturation >= full_rate as f64);
        let limit = search.missed.map(|missed| missed.limit).or(at_full_rate.then_some(Limit::Layout));
        let mut sweep = Self {
            format: FORMAT,
            kind: KIND.to_owned(),
            summary: String::new(),
            ended,
            saturation,
            confirmed: search.is_confirmed(),
            at_least: matches!(limit, None | Some(Limit::Machine)),
            missed: search.missed.map(|missed| missed.rate),
            limit,
            search: search.bounds,
            steps,
        };
        sweep.summary = table::summary(&sweep, &table::objective(settings));
        sweep
    }

    /// Returns 0 if a saturation point is confirmed, 1 if the target is at fault, and 2 if the
    /// sweep has no answer.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.ended {
            Ended::Broken(_) | Ended::Gone(_) => 1,
            Ended::Interrupted | Ended::Hindered(_) => 2,
            Ended::Searched if self.confirmed => 0,
            Ended::Searched => 1 + u8::from(self.limit == Some(Limit::Machine)),
        }
    }

    /// Returns the last step that held at the saturation point.
    pub(crate) fn at_saturation(&self) -> Option<&Step> {
        self.steps.iter().rev().find(|step| Some(step.rate()) == self.saturation && step.holds)
    }

    /// Returns the last step that missed at the rate [`Sweep::missed`].
    pub(crate) fn at_miss(&self) -> Option<&Step> {
        self.steps.iter().rev().find(|step| Some(step.rate()) == self.missed && !step.holds)
    }
}
