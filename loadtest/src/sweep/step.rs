//! A run at one rate, and what it says to the search.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::Settings;
use super::search::{Answer, Limit, Phase};
use crate::check::distinct::Distinct;
use crate::daemon::Daemon;
use crate::measure::Fault;
use crate::report::{Report, json};
use crate::run::{self, CannotRun, Drive, Length, Progress, Scenario};
use crate::value::Rate;
use crate::verdict::{Objectives, Verdict};
use snowbank_client::protocol::ErrorCode;

/// A rate this close to all that the source can hand out is the layout's limit, whether requests wait for the next tick or
/// are refused.
const AT_CEILING: f64 = 0.99;

/// One step.
#[derive(Debug, Clone)]
pub struct Step {
    /// IDs per second asked for.
    pub rate: f64,
    /// What for.
    pub phase: Phase,
    /// What it says.
    pub said: Said,
    /// All its figures.
    pub figures: json::Run,
}

/// What a step says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// To the search.
    Answer(Answer),
    /// Nothing: the user ended it.
    Interrupted,
    /// That the sweep is over: the target broke a promise.
    Broken(String),
}

/// Which step.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// IDs per second.
    pub rate: f64,
    /// What for.
    pub phase: Phase,
    /// What the source can hand out.
    pub per_second: Option<u64>,
}

/// Runs one step.
///
/// # Errors
/// [`CannotRun`] if the target takes no load.
pub fn run(
    settings: &Settings,
    asked: Asked,
    daemon: Option<&Daemon>,
    seen: &mut Distinct,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Step, CannotRun> {
    let scenario = scenario(settings, asked);
    let mut cpu = CpuShare::default();
    let outcome = run::run_after(&scenario, seen, interrupt, &mut |now| {
        if now.elapsed >= scenario.warm_up && now.total.is_some_and(|total| now.elapsed <= total) {
            cpu.look(daemon);
        }
        progress(now);
    })?;
    // The rate is the load here and no objective.
    let objectives = Objectives { rate: None, latencies: settings.objectives.latencies.clone() };
    let report = Report::new(&scenario, &objectives, &outcome);
    let said = judge(&report, asked);
    let mut figures = json::Run::of(&report, &settings.origin);
    figures.daemon_cpu_share = cpu.share();
    Ok(Step { rate: asked.rate, phase: asked.phase, said, figures })
}

fn scenario(settings: &Settings, asked: Asked) -> Scenario {
    // Every rate of a search lies between its bounds, which are rates.
    let rate = Rate::new(asked.rate).unwrap_or(Rate::STANDARD);
    Scenario {
        drive: Drive::Open { rate, ramp: Duration::ZERO, arrivals: settings.arrivals() },
        length: Length::For(settings.length(asked.phase)),
        ..settings.scenario.clone()
    }
}

fn judge(report: &Report<'_>, asked: Asked) -> Said {
    let outcome = report.outcome;
    match &report.verdict {
        Verdict::Pass => Said::Answer(Answer::Holds),
        Verdict::Unknown(_) if outcome.interrupted => Said::Interrupted,
        Verdict::Unknown(_) => Said::Answer(Answer::Misses(Limit::Generator)),
        Verdict::Fail(reasons) => {
            let is_broken = |fault: &Fault| matches!(fault, Fault::Violation(_) | Fault::Unreadable(_));
            if outcome.faults.iter().any(is_broken) {
                return Said::Broken(reasons.join("; "));
            }
            Said::Answer(Answer::Misses(limit(report, asked)))
        }
    }
}

fn limit(report: &Report<'_>, asked: Asked) -> Limit {
    let outcome = report.outcome;
    let fell_behind = |fault: &Fault| matches!(fault, Fault::TooManyInFlight { .. } | Fault::FullSocket);
    let mut refused = outcome.counts.refused.keys();
    if !outcome.faults.iter().all(fell_behind) || refused.any(|&code| code != ErrorCode::Exhausted.to_u16()) {
        return Limit::Target;
    }
    let at_ceiling = asked.per_second.is_some_and(|ceiling| asked.rate >= ceiling as f64 * AT_CEILING);
    if at_ceiling || !outcome.counts.refused.is_empty() { Limit::Layout } else { Limit::Latency }
}

/// The processor time of the daemon between the first and the last look.
#[derive(Default)]
struct CpuShare {
    first: Option<(Instant, Duration)>,
    last: Option<(Instant, Duration)>,
}

impl CpuShare {
    fn look(&mut self, daemon: Option<&Daemon>) {
        let seen = daemon.and_then(Daemon::cpu).map(|used| (Instant::now(), used));
        self.first = self.first.or(seen);
        self.last = seen.or(self.last);
    }

    /// As a share of one core; none from a single look.
    fn share(&self) -> Option<f64> {
        let ((from, used_before), (to, used)) = self.first.zip(self.last)?;
        let passed = to.duration_since(from);
        (!passed.is_zero()).then(|| used.saturating_sub(used_before).as_secs_f64() / passed.as_secs_f64())
    }
}
