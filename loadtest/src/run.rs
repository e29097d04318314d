//! One run: target, connections, threads, and the collector that hears from them.
//!
//! ```text
//!  load thread 0 ─┐ places, seconds,
//!  load thread 1 ─┼───────────────▶ collector (the caller's thread): distinct IDs, seconds, progress
//!  load thread n ─┘ at the end all counts
//! ```

mod approach;
mod collector;
mod interruptible;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use snowbank_client::Endpoint;

use crate::check::distinct::Distinct;
use crate::daemon::{Daemon, Ending, NotStarted};
use crate::load::{self, Lanes, Pace, Shared, Stall, Task, Wire};
use crate::measure::{Counts, Fault, SecondFigures};
use crate::promise::{NoPromise, Promise};
use crate::schedule::{Arrivals, Schedule, Share};
use crate::target::{self, Access, NoTarget, Token};
use crate::value::{Mix, Rate};

/// From the spawning of the threads to the begin of the run: all of them are waiting by then.
const START_DELAY: Duration = Duration::from_millis(50);

/// Messages that may wait for the collector; a thread that finds it full waits, and that shows as a pause.
const QUEUE_LENGTH: usize = 1_024;

/// What is asked of a target.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Where it listens; `None` starts a daemon.
    pub address: Option<Endpoint>,
    /// What is shown first on each connection.
    pub token: Option<Token>,
    /// Which of its sources; `None` is the default source.
    pub source: Option<String>,
    /// Whether the target is a Redis.
    pub resp: bool,
    /// When requests leave.
    pub drive: Drive,
    /// IDs per request.
    pub batch: Mix,
    /// Connections of all threads together.
    pub connections: usize,
    /// Generator threads.
    pub threads: usize,
    /// At the full rate, checked and not timed.
    pub warm_up: Duration,
    /// How long, or how much, is measured.
    pub length: Length,
    /// The announced outage of a daemon of our own.
    pub outage: Option<Outage>,
    /// The announced stall of one connection.
    pub client_stall: Option<ClientStall>,
    /// Whether an open loop's threads stay awake between requests, each on a core of its own.
    pub stays_awake: bool,
    /// Whether generator threads run before ordinary ones where that is permitted.
    pub real_time: bool,
    /// Whether each second's histogram is kept for a file.
    pub keeps_interval_log: bool,
    /// What random draws begin with.
    pub seed: u64,
}

/// An outage that is brought about on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// From the begin of the measurement.
    pub at: Duration,
    /// How the daemon ends before it is started anew.
    pub ending: Ending,
}

/// A client that hangs on purpose: one connection is not read for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientStall {
    /// From the begin of the measurement.
    pub at: Duration,
    /// For how long.
    pub length: Duration,
}

/// When requests leave.
#[derive(Debug, Clone, Copy)]
pub enum Drive {
    /// On a schedule.
    Open {
        /// IDs per second.
        rate: Rate,
        /// How long the rate rises, before the warm-up.
        ramp: Duration,
        /// How requests are spaced.
        arrivals: Arrivals,
    },
    /// As fast as answers come.
    Closed {
        /// Requests in flight on each connection.
        depth: usize,
    },
}

/// How long a measurement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// That long.
    For(Duration),
    /// Until so many IDs were asked for.
    Ids(u64),
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// Where the target listens.
    pub address: String,
    /// Its version, if it says so.
    pub version: Option<String>,
    /// Whether it was started for this run.
    pub own_daemon: bool,
    /// Whether its clock is this machine's.
    pub same_clock: bool,
    /// What its IDs were held to.
    pub promise: Promise,
    /// What was counted.
    pub counts: Counts,
    /// What it did wrong.
    pub faults: Vec<Fault>,
    /// Its seconds.
    pub seconds: Vec<SecondFigures>,
    /// The seconds' histograms, in HdrHistogram's interval log format, if they were to be kept.
    pub interval_log: Vec<u8>,
    /// From the begin of the measurement to its end, or to the last answer if that came later.
    pub elapsed: Duration,
    /// The processor time of a daemon of our own during the measurement.
    pub target_cpu: Option<Duration>,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// Whether more places were scattered than can be kept.
    pub too_scattered: bool,
}

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum CannotRun {
    /// No target that speaks the protocol.
    #[error(transparent)]
    NoTarget(#[from] NoTarget),
    /// No daemon of our own.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// Nothing to hold its IDs to.
    #[error(transparent)]
    NoPromise(#[from] NoPromise),
    /// A batch that the target says it refuses.
    #[error("--batch asks for {asked} IDs at once; the target allows {allowed}")]
    TooLargeBatch {
        /// The largest size asked for.
        asked: u32,
        /// The target's limit.
        allowed: u32,
    },
    /// The user ended it before there was anything to measure.
    #[error("interrupted before the measurement began")]
    Interrupted,
    /// This machine allows no more connections.
    #[error(
        "cannot open more than {taken} of {wanted} connections here: {reason}; ask for fewer, or raise the limit"
    )]
    TooManyConnections {
        /// How many could be opened.
        taken: usize,
        /// How many were wanted.
        wanted: usize,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// It answered INFO, and then took no further connection.
    #[error("fail: the target answered INFO and then took {taken} of {wanted} connections: {reason}")]
    Connections {
        /// How many it took.
        taken: usize,
        /// How many were wanted.
        wanted: usize,
        /// The system's reason.
        reason: std::io::Error,
    },
}

impl CannotRun {
    /// 1 where the target is at fault, 2 otherwise.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoPromise(NoPromise::Layout { .. }) | Self::Connections { .. } => 1,
            _ => 2,
        }
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Since its begin, ramp and warm-up included.
    pub elapsed: Duration,
    /// How long that is in all, if a time ends it.
    pub total: Option<Duration>,
    /// The last second that is complete.
    pub last_second: Option<&'a SecondFigures>,
    /// Open loop or closed loop.
    pub loop_words: &'static str,
}

/// Runs a scenario to its end, or until `interrupt` is set.
///
/// # Errors
/// [`CannotRun`] if there is nothing to load. What a target does wrong under load is in the outcome.
pub fn run(
    scenario: &Scenario,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Outcome, CannotRun> {
    run_after(scenario, &mut Distinct::default(), interrupt, progress)
}

/// One of several runs against the same target: no ID may be among those `seen` in the runs before it either.
///
/// # Errors
/// As [`run`].
pub fn run_after(
    scenario: &Scenario,
    seen: &mut Distinct,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Outcome, CannotRun> {
    let (mut daemon, endpoint) = match &scenario.address {
        Some(endpoint) => (None, endpoint.clone()),
        None => {
            let daemon = interruptible::unless(interrupt, || Ok(Daemon::start()?))?;
            let endpoint = daemon.endpoint.clone();
            (Some(daemon), endpoint)
        }
    };
    let access = Access { endpoint, token: scenario.token.clone() };
    let (approach::Greeted { wire, promise, version, same_clock }, streams) = {
        let (access, scenario) = (access.clone(), scenario.clone());
        interruptible::unless(interrupt, move || approach::approach(&access, &scenario))?
    };
    let origin = Instant::now() + START_DELAY;
    let shared = Arc::new(Shared {
        wire,
        promise,
        origin,
        lanes: scenario.lanes(),
        stop: AtomicBool::new(false),
        highest: AtomicU64::new(0),
    });
    let (to, from) = mpsc::sync_channel(QUEUE_LENGTH);
    let threads: Vec<_> = streams
        .into_iter()
        .enumerate()
        .map(|(thread, streams)| {
            let task = scenario.task(thread, same_clock, access.clone());
            let (shared, to) = (Arc::clone(&shared), to.clone());
            std::thread::spawn(move || load::run(task, streams, &shared, &to))
        })
        .collect();
    drop(to);
    let collected = collector::collect(scenario, &shared, seen, &from, daemon.as_mut(), interrupt, progress);
    // A thread that panicked has told nothing, and then its load is missing.
    let panicked =
        threads.into_iter().map(|thread| thread.join().is_err()).filter(|&panicked| panicked).count();
    assert_eq!(panicked, 0, "a load thread panicked");
    if let Wire::Resp { key } = &shared.wire {
        // A counter that stays behind is untidy, and no more.
        let _ = target::ask_resp(&access.endpoint, &format!("DEL {key}"), ":");
    }
    Ok(collected.outcome(
        scenario,
        access.endpoint.to_string(),
        version,
        daemon.is_some(),
        same_clock,
        shared,
    ))
}

impl Scenario {
    /// From the begin of the run to the begin of the measurement.
    fn measured_from(&self) -> Duration {
        match self.drive {
            Drive::Open { ramp, .. } => ramp + self.warm_up,
            Drive::Closed { .. } => self.warm_up,
        }
    }

    /// From the begin of the run to the begin of the announced outage.
    fn outage_at(&self) -> Option<Duration> {
        Some(self.measured_from() + self.outage?.at)
    }

    /// The loop in words, for every output.
    #[must_use]
    pub fn loop_words(&self) -> &'static str {
        match self.drive {
            Drive::Open { .. } => "open loop",
            Drive::Closed { .. } => "closed loop",
        }
    }

    /// The announced stall, from the begin of the run.
    fn stall(&self) -> Option<Stall> {
        let ClientStall { at, length } = self.client_stall?;
        let from = self.measured_from() + at;
        Some(Stall { from, until: from + length })
    }

    /// How long the measurement is, if a time ends it. On a schedule, a count is a time too.
    #[must_use]
    pub fn measured_for(&self) -> Option<Duration> {
        match (self.length, self.drive) {
            (Length::For(length), _) => Some(length),
            (Length::Ids(ids), Drive::Open { rate, .. }) => {
                Some(Duration::from_secs_f64((ids as f64 / rate.per_s()).min(1e9)))
            }
            (Length::Ids(_), Drive::Closed { .. }) => None,
        }
    }

    /// From the begin of the run to the last request, if a time ends it.
    fn ends_at(&self) -> Option<Duration> {
        Some(self.measured_from() + self.measured_for()?)
    }

    /// The schedules of an open loop.
    fn lanes(&self) -> Lanes {
        let schedule = |thread| match self.drive {
            Drive::Open { rate, ramp, arrivals } => {
                let requests_per_s = rate.per_s() / self.batch.mean();
                let share = Share { thread, threads: self.threads };
                Some(Schedule::new(requests_per_s, ramp, arrivals, share, self.seed))
            }
            Drive::Closed { .. } => None,
        };
        Lanes::new((0..self.threads).filter_map(schedule))
    }

    fn task(&self, thread: usize, same_clock: bool, access: Access) -> Task {
        let threads = self.threads;
        let pace = match self.drive {
            Drive::Open { .. } => Pace::Open,
            Drive::Closed { depth } => {
                let ids_limit = match self.length {
                    Length::Ids(ids) => Some(share_of(ids, thread, threads)),
                    Length::For(_) => None,
                };
                Pace::Closed { depth, ids_limit }
            }
        };
        Task {
            share: Share { thread, threads },
            pace,
            mix: self.batch.clone(),
            warm_up: self.measured_from(),
            end: self.ends_at(),
            outage: self.outage_at(),
            stall: self.stall().filter(|_| thread == 0),
            access,
            stays_awake: self.stays_awake && matches!(self.drive, Drive::Open { .. }),
            real_time: self.real_time && matches!(self.drive, Drive::Open { .. }),
            same_clock,
            seed: self.seed,
        }
    }
}

/// Equal parts, the rest to the first threads.
fn share_of(all: u64, thread: usize, threads: usize) -> u64 {
    let (thread, threads) = (thread as u64, threads as u64);
    all / threads + u64::from(thread < all % threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (all, threads) in [(10, 3), (0, 2), (7, 7), (1, 4)] {
            assert_eq!((0..threads).map(|thread| share_of(all, thread, threads)).sum::<u64>(), all);
        }
    }
}
