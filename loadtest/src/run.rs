//! One run: target, connections, threads, and the collector that receives their messages.

mod approach;
mod collector;
mod rounds;
mod samples;

pub(crate) use approach::greet;
pub(crate) use collector::Collected;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use snowbank_client::Endpoint;

use crate::check::distinct::Distinct;
use crate::daemon::{Addresses, Daemon, NotStarted};
use crate::frontend;
use crate::judge::words;
use crate::load::{self, Clock, Lanes, Message, Shared};
use crate::machine::stalls::StallSum;
use crate::machine::{Watch, Watched, echo, quota};
use crate::promise::{NoPromise, NotApart, Promise};
use crate::report::terminal::Terminal;
use crate::scenario::{Drive, SEED, Scenario};
use crate::schedule::{Schedule, Share};
use crate::target::NoTarget;
use samples::Sampler;

/// From the spawning of the threads to the start of the run: all of them are waiting by then.
const START_DELAY: Duration = Duration::from_millis(50);

/// A run against an echo need not be longer: it shows the machine, not a daemon that ages.
const LONGEST_ECHO: Duration = Duration::from_secs(3);

/// The name of the threads that carry the load.
const LOAD_THREAD: &str = "load";

/// Messages that may wait for the collector; a thread that finds it full waits, and that shows as a
/// pause.
const QUEUE_LENGTH: usize = 1_024;

/// The results of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) address: String,
    /// The version in its INFO.
    pub(crate) version: Option<String>,
    /// True if the target was started for this run.
    pub(crate) own_daemon: bool,
    /// True if the clocks of all targets are this machine's.
    pub(crate) same_clock: bool,
    /// The highest rate of the sources together by their own INFO, in IDs per second.
    pub(crate) per_second: Option<u64>,
    /// The guarantees of the first target.
    pub(crate) promise: Promise,
    /// From the start of the measurement to its end, or to the last answer if that came later.
    pub(crate) elapsed: Duration,
    /// Runs of the same length that were put together into one.
    pub(crate) rounds: u32,
    /// The machine's stalls during the measurement.
    pub(crate) stalls: StallSum,
    /// The time for which a CPU quota held up the load test itself.
    pub(crate) held_up: Duration,
    /// The results of its threads.
    pub(crate) collected: Collected,
    /// A bare echo under the same load if the target was late, or the reason why there is none.
    pub(crate) echo: Option<Result<Box<Outcome>, String>>,
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
    /// A sweep that would begin above its end.
    #[error("--start {start}/s is above {limit}, {why}")]
    StartTooHigh { start: f64, limit: f64, why: &'static str },
    /// The user ended it before there was anything to measure.
    #[error("interrupted before the measurement began")]
    Interrupted,
    /// Two targets that may hand out the same ID.
    #[error("{one} and {other} {reason}")]
    NotApart { one: Endpoint, other: Endpoint, reason: NotApart },
    /// This machine allows no more connections.
    #[error(
        "cannot open more than {taken} of {wanted} connections here: {reason}; ask for fewer, or raise the limit"
    )]
    TooManyConnections { taken: usize, wanted: usize, reason: NoTarget },
    /// It answered INFO, and then took no further connection.
    #[error("the target answered INFO and then took {taken} of {wanted} connections: {reason}")]
    Connections { taken: usize, wanted: usize, reason: NoTarget },
}

impl CannotRun {
    /// Returns true if this machine has no more open files or local ports: the target is not at
    /// fault.
    pub(crate) fn is_limit_here(&self) -> bool {
        match self {
            Self::TooManyConnections { .. } => true,
            Self::NoTarget(reason) => reason.is_limit_here,
            _ => false,
        }
    }

    /// Returns 1 where the target is at fault, 2 otherwise.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NotApart { reason: NotApart::OtherSpaces, .. } => 2,
            Self::NoPromise(NoPromise::Impossible { .. })
            | Self::Connections { .. }
            | Self::NotApart { .. } => 1,
            _ => 2,
        }
    }
}

/// A target under load, in one run or several: no ID may come twice in any of them.
pub(crate) struct Loaded<'a> {
    /// Started here if the scenario names no target.
    daemon: Option<Daemon>,
    /// By target.
    seen: Vec<Distinct>,
    terminal: &'a Terminal,
}

impl<'a> Loaded<'a> {
    /// Starts a daemon if the scenario names no target. Returns it with the scenario that names it.
    ///
    /// # Errors
    /// [`CannotRun`] if the daemon does not start.
    pub(crate) fn begin(scenario: &Scenario, terminal: &'a Terminal) -> Result<(Self, Scenario), CannotRun> {
        let mut scenario = scenario.clone();
        let mut daemon = None;
        if scenario.addresses.is_empty() {
            let protocol = scenario.protocol;
            let started = terminal.unless_interrupted(move || Daemon::start(protocol));
            let started = started.ok_or(CannotRun::Interrupted)??;
            let Addresses { native, front_end } = &started.addresses;
            scenario.addresses = vec![front_end.as_ref().unwrap_or(native).clone()];
            scenario.info = vec![native.clone()];
            daemon = Some(started);
        }
        Ok((Self { daemon, seen: Vec::new(), terminal }, scenario))
    }

    /// Runs a scenario that names the target.
    ///
    /// # Errors
    /// [`CannotRun`] if there is nothing to load. Faults of a target under load are in the outcome.
    pub(crate) fn run(&mut self, scenario: &Scenario) -> Result<Outcome, CannotRun> {
        let asked = scenario.clone();
        let approached = self.terminal.unless_interrupted(move || approach::approach(&asked));
        let (mut greeted, streams) = approached.ok_or(CannotRun::Interrupted)??;
        if self.daemon.is_some() {
            // Where /proc does not tell who it is, too.
            greeted.iter_mut().for_each(|one| one.peer.clock = Clock::Same);
        }
        let version = greeted.iter().find_map(|one| one.version.clone());
        let origin = Instant::now() + START_DELAY;
        let owners = greeted.iter().map(|one| one.owner).collect();
        let shared = Arc::new(Shared {
            scenario: scenario.clone(),
            peers: greeted.into_iter().map(|one| one.peer).collect(),
            watched: Arc::new(Watched::new(origin, scenario.warm_up, owners)),
            lanes: lanes(scenario),
            stop: AtomicBool::new(false),
        });
        let held_up_before = quota::held_up();
        let watch = Watch::begin(&shared.watched);
        let (threads, from) = spawn(streams, &shared);
        let sampler = Sampler::begin(&shared);
        let mut collected = collector::collect(self, &shared, &from);
        let samples = sampler.end();
        // A thread that panicked has sent no counts, and then its load is missing.
        let panicked = threads.into_iter().filter_map(|thread| thread.join().err()).count();
        assert_eq!(panicked, 0, "a load thread panicked");
        watch.end();
        let Some(Shared { peers, watched, .. }) = Arc::into_inner(shared) else {
            unreachable!("every thread that had a part of it has been joined")
        };
        collected.counts.settling.settle(u64::MAX, &watched.stalls);
        let elapsed = collected.elapsed(scenario, origin);
        samples.put_into(&mut collected.seconds);
        collected.target_cpu = samples.cpu(elapsed);
        let addresses: Vec<String> = peers.iter().map(|peer| peer.access.endpoint.to_string()).collect();
        Ok(Outcome {
            address: addresses.join(", "),
            version,
            own_daemon: self.daemon.is_some(),
            same_clock: peers.iter().all(|peer| peer.clock == Clock::Same),
            per_second: peers.iter().map(|peer| peer.promise.per_second).sum(),
            promise: peers.into_iter().next().unwrap_or_else(|| unreachable!("a run has a target")).promise,
            elapsed,
            rounds: 1,
            // A stall at the end of the load delays the last answers, and counts until they have
            // come.
            stalls: watched.stalls.sum((scenario.warm_up + elapsed).as_nanos() as u64),
            held_up: quota::held_up().saturating_sub(held_up_before),
            collected,
            echo: None,
        })
    }
}

/// Puts the load of a scenario on a bare echo.
///
/// # Errors
/// One line if it could not be run to its end.
pub(crate) fn of_echo(scenario: &Scenario, terminal: &Terminal) -> Result<Outcome, String> {
    // The first connection greets it.
    let address = echo::start(1 + scenario.connections).map_err(|error| error.to_string())?;
    let scenario = Scenario {
        addresses: vec![Endpoint::Tcp { host: address.ip().to_string(), port: address.port() }],
        token: None,
        protocol: &frontend::ECHO,
        info: Vec::new(),
        length: scenario.length.min(LONGEST_ECHO),
        outage: None,
        metrics: Vec::new(),
        keeps_interval_log: false,
        ..scenario.clone()
    };
    let mut loaded = Loaded { daemon: None, seen: Vec::new(), terminal };
    let outcome = loaded.run(&scenario).map_err(|error| error.to_string())?;
    match outcome.collected.faults.first() {
        Some(fault) => Err(words::describe(fault, &outcome.promise)),
        None if outcome.collected.interrupted => Err("the run was interrupted".to_owned()),
        None => Ok(outcome),
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
/// Load threads share the schedules, the stalls, the stop flag and, with strict order, the largest
/// ID, and what is known of each target ([`Shared`]).
fn spawn(streams: approach::Streams, shared: &Arc<Shared>) -> (Vec<JoinHandle<()>>, Receiver<Message>) {
    let (to, from) = mpsc::sync_channel(QUEUE_LENGTH);
    let mut threads = Vec::new();
    for (thread, streams) in streams.into_iter().enumerate() {
        let shared = Arc::clone(shared);
        let to = to.clone();
        let builder = std::thread::Builder::new().name(LOAD_THREAD.to_owned());
        let spawned = builder.spawn(move || load::run(thread, streams, &shared, &to));
        threads.push(spawned.unwrap_or_else(|error| panic!("a load thread cannot be started: {error}")));
    }
    (threads, from)
}

/// Returns the schedules of an open loop.
fn lanes(scenario: &Scenario) -> Lanes {
    let threads = scenario.threads;
    let schedules = (0..threads).filter_map(|thread| match scenario.drive {
        Drive::Open { rate, arrivals } => {
            let requests_per_s = rate.per_s() / scenario.batch.mean();
            Some(Schedule::new(requests_per_s, arrivals, Share { thread, threads }, SEED))
        }
        Drive::Closed { .. } => None,
    });
    Lanes::new(schedules)
}
