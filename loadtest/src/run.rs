//! One run: target, connections, threads, and the collector that receives their messages.

mod approach;
mod collector;
mod interruptible;

pub(crate) use approach::check_batch;
pub(crate) use collector::Collected;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use snowbank_client::Endpoint;

use crate::check::distinct::Distinct;
use crate::daemon::{Daemon, NotStarted};
use crate::load::{self, Lanes, Message, Shared, Task, Wire};
use crate::machine::owner::Owner;
use crate::machine::stalls::StallSum;
use crate::machine::threads::{LOAD_THREAD, OwnWaits};
use crate::machine::{Watch, echo};
use crate::measure::{SecondFigures, TimeHistogram};
use crate::promise::{NoPromise, Promise};
use crate::scenario::{Drive, Length, Protocol, Scenario};
use crate::schedule::{Schedule, Share};
use crate::target::{self, Access, NoTarget, Stream};

/// From the spawning of the threads to the begin of the run: all of them are waiting by then.
const START_DELAY: Duration = Duration::from_millis(50);

/// A run against an echo need not be longer: it shows the machine, not a daemon that ages.
const LONGEST_ECHO: Duration = Duration::from_secs(10);

/// Messages that may wait for the collector; a thread that finds it full waits, and that shows as a pause.
const QUEUE_LENGTH: usize = 1_024;

/// The results of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) address: String,
    /// The version in its INFO.
    pub(crate) version: Option<String>,
    /// True if the target was started for this run.
    pub(crate) own_daemon: bool,
    /// The process that it runs in.
    pub(crate) owner: Owner,
    pub(crate) promise: Promise,
    /// From the begin of the measurement to its end, or to the last answer if that came later.
    pub(crate) elapsed: Duration,
    /// The machine's stalls during the measurement.
    pub(crate) stalls: StallSum,
    /// The generator's waits for a core that were not the machine's fault.
    pub(crate) own_waits: OwnWaits,
    /// The results of its threads.
    pub(crate) collected: Collected,
}

/// The reason why there is no run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CannotRun {
    /// No target that speaks the protocol.
    #[error(transparent)]
    NoTarget(#[from] NoTarget),
    /// No daemon of our own.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// Nothing to hold its IDs to.
    #[error(transparent)]
    NoPromise(#[from] NoPromise),
    /// A batch above the target's limit.
    #[error("--batch asks for {asked} IDs at once; the target allows {allowed}")]
    TooLargeBatch { asked: u32, allowed: u32 },
    /// The user ended it before there was anything to measure.
    #[error("interrupted before the measurement began")]
    Interrupted,
    /// This machine allows no more connections.
    #[error(
        "cannot open more than {taken} of {wanted} connections here: {reason}; ask for fewer, or raise the limit"
    )]
    TooManyConnections { taken: usize, wanted: usize, reason: std::io::Error },
    /// It answered INFO, and then took no further connection.
    #[error("fail: the target answered INFO and then took {taken} of {wanted} connections: {reason}")]
    Connections { taken: usize, wanted: usize, reason: NoTarget },
}

impl CannotRun {
    /// Returns 1 where the target is at fault, 2 otherwise.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NoPromise(NoPromise::Layout { .. }) | Self::Connections { .. } => 1,
            _ => 2,
        }
    }
}

/// The progress of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress<'a> {
    /// Since its begin, ramp and warm-up included.
    pub(crate) elapsed: Duration,
    /// The length in all, if a time ends it.
    pub(crate) total: Option<Duration>,
    /// The last second that is complete.
    pub(crate) last_second: Option<&'a SecondFigures>,
    /// Open loop or closed loop.
    pub(crate) loop_words: &'static str,
}

/// The target of a run, as far as this machine has it.
pub(crate) struct Target<'a> {
    daemon: Option<&'a mut Daemon>,
    owner: Owner,
    watch: &'a Watch,
}

/// Runs a scenario to its end, or until `interrupt` is set.
///
/// # Errors
/// [`CannotRun`] if there is nothing to load. Faults of a target under load are in the outcome.
pub(crate) fn run(
    scenario: &Scenario,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Outcome, CannotRun> {
    let mut daemon = start_daemon(scenario, interrupt)?;
    run_against(scenario, daemon.as_mut(), &mut Distinct::default(), interrupt, progress)
}

/// Puts the load of a scenario on a bare echo. Returns its response times, or `None` if it could not be run: then
/// the machine has no verdict.
pub(crate) fn of_echo(
    scenario: &Scenario,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Option<TimeHistogram> {
    let address = echo::start(scenario.connections).ok()?;
    let length = scenario.measured_for()?.min(LONGEST_ECHO);
    let scenario = Scenario {
        address: Some(Endpoint::Tcp { host: address.ip().to_string(), port: address.port() }),
        token: None,
        protocol: Protocol::Echo,
        length: Length::For(length),
        outage: None,
        client_stall: None,
        keeps_interval_log: false,
        ..scenario.clone()
    };
    let outcome = run_against(&scenario, None, &mut Distinct::default(), interrupt, progress).ok()?;
    let is_whole = !outcome.collected.is_cut_short();
    is_whole.then_some(outcome.collected.counts.response)
}

/// Starts a daemon if the scenario names no target.
///
/// # Errors
/// [`CannotRun`] if the daemon does not start.
pub(crate) fn start_daemon(scenario: &Scenario, interrupt: &AtomicBool) -> Result<Option<Daemon>, CannotRun> {
    let start = || interruptible::unless(interrupt, || Ok(Daemon::start()?));
    scenario.address.is_none().then(start).transpose()
}

/// Returns the address of the target.
pub(crate) fn endpoint(scenario: &Scenario, daemon: Option<&Daemon>) -> Endpoint {
    match (daemon, &scenario.address) {
        (Some(daemon), _) => daemon.endpoint.clone(),
        (None, Some(address)) => address.clone(),
        (None, None) => unreachable!("a daemon is started where no address is given"),
    }
}

/// Runs one of several scenarios against the same target: no ID may be among those `seen` in the runs before.
///
/// # Errors
/// Those of [`run`].
pub(crate) fn run_against(
    scenario: &Scenario,
    daemon: Option<&mut Daemon>,
    seen: &mut Distinct,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Outcome, CannotRun> {
    let (endpoint, own_daemon) = (endpoint(scenario, daemon.as_deref()), daemon.is_some());
    let access = Access { endpoint, token: scenario.token.clone() };
    let (greeted, streams) = {
        let (access, scenario) = (access.clone(), scenario.clone());
        interruptible::unless(interrupt, move || approach::approach(&access, &scenario))?
    };
    let (owner, version) = (greeted.owner, greeted.version.clone());
    let shared = Arc::new(shared(scenario, greeted));
    let watch = Watch::begin(shared.origin, Arc::clone(&shared.stalls), owner);
    let same_clock = owner != Owner::Remote;
    let task = |thread| Task { thread, scenario: scenario.clone(), access: access.clone(), same_clock };
    let (threads, from) = spawn((0..).map(task).zip(streams), &shared);
    let target = Target { daemon, owner, watch: &watch };
    let mut collected = collector::collect(scenario, &shared, seen, &from, target, interrupt, progress);
    // A thread that panicked has sent no counts, and then its load is missing.
    let panicked = threads.into_iter().filter_map(|thread| thread.join().err()).count();
    assert_eq!(panicked, 0, "a load thread panicked");
    let own_waits = watch.end();
    collected.counts.disturbed.settle(u64::MAX, &shared.stalls);
    if let Wire::Resp { key } = &shared.wire {
        // A counter that stays behind is untidy, and no more.
        let _ = target::ask_resp(&access.endpoint, &format!("DEL {key}"), ":");
    }
    let elapsed = collected.elapsed(scenario, shared.origin);
    let stalls = shared.stalls.sum(scenario.measured_from().as_nanos() as u64);
    let Some(Shared { promise, .. }) = Arc::into_inner(shared) else {
        unreachable!("every thread that had a part of it has been joined")
    };
    let address = access.endpoint.to_string();
    Ok(Outcome { address, version, own_daemon, owner, promise, elapsed, stalls, own_waits, collected })
}

fn shared(scenario: &Scenario, greeted: approach::Greeted) -> Shared {
    Shared {
        wire: greeted.wire,
        promise: greeted.promise,
        origin: Instant::now() + START_DELAY,
        lanes: lanes(scenario),
        stalls: Arc::default(),
        stop: AtomicBool::new(false),
        highest: AtomicU64::new(0),
    }
}

/// Starts the threads of the load.
///
/// ```text
///                          ┌── load thread 0 ── epoll: its connections ──▶ target
///  the caller's thread ────┼── load thread 1 ── epoll: its connections ──▶ target
///     │ collector          └── …
///     │                      sleeper on each core ──▶ the machine's stalls ([`Watch`])
///     ◀── one bounded channel: positions of IDs, each second's figures, at the end all counts
/// ```
///
/// Load threads share the schedules, the stalls, the stop flag and, with strict order, the largest ID
/// ([`Shared`]); nothing else.
fn spawn(
    tasks: impl Iterator<Item = (Task, Vec<Stream>)>,
    shared: &Arc<Shared>,
) -> (Vec<JoinHandle<()>>, Receiver<Message>) {
    let (to, from) = mpsc::sync_channel(QUEUE_LENGTH);
    let start = |(task, streams)| {
        let (shared, to) = (Arc::clone(shared), to.clone());
        let builder = std::thread::Builder::new().name(LOAD_THREAD.to_owned());
        let spawned = builder.spawn(move || load::run(task, streams, &shared, &to));
        spawned.unwrap_or_else(|error| panic!("a load thread cannot be started: {error}"))
    };
    (tasks.map(start).collect(), from)
}

/// Returns the schedules of an open loop.
fn lanes(scenario: &Scenario) -> Lanes {
    let threads = scenario.threads;
    let schedule = |thread| match scenario.drive {
        Drive::Open { rate, ramp, arrivals } => {
            let requests_per_s = rate.per_s() / scenario.batch.mean();
            Some(Schedule::new(requests_per_s, ramp, arrivals, Share { thread, threads }, scenario.seed))
        }
        Drive::Closed { .. } => None,
    };
    Lanes::new((0..threads).filter_map(schedule))
}
