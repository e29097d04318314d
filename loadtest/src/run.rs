//! One run: target, connections, threads, and the collector that receives the threads' messages.

mod approach;
mod collector;
mod rounds;
mod samples;
pub(crate) mod trial;

pub(crate) use approach::greet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use snowbank_wire::Address as Endpoint;

use crate::check::distinct::Distinct;
use crate::daemon::Daemon;
use crate::failure::{Blame, Failure};
use crate::frontend;
use crate::judge::reasons;
use crate::load::{self, Lanes, Shared};
use crate::machine::{Watched, bare_echo, quota};
use crate::outcome::Outcome;
use crate::report::json;
use crate::report::terminal::Terminal;
use crate::scenario::{Drive, Scenario};
use crate::schedule::Schedule;
use samples::Samples;

/// The time from spawning the threads to the start of the run. It lets all threads get ready.
const START_DELAY: Duration = Duration::from_millis(50);

/// The longest run against an echo. An echo does not change with time as a daemon does, so a longer
/// run would show nothing more.
const LONGEST_ECHO: Duration = Duration::from_secs(2);

/// The longest warm-up of a run against an echo. An echo has no caches or buffers to fill.
const LONGEST_ECHO_WARM_UP: Duration = Duration::from_millis(200);

/// The name of the threads that carry the load.
const LOAD_THREAD: &str = "load";

/// The most messages that may wait for the collector. If the queue is full, a thread waits, and the
/// figures show its wait as a pause.
const QUEUE_LENGTH: usize = 1_024;

/// A target under load in one run or several. No ID may come twice in all these runs together.
pub(crate) struct Loaded<'a> {
    /// The daemon that the load test started, if the scenario named no target.
    daemon: Option<Daemon>,
    /// The positions seen, by target.
    seen: Vec<Distinct>,
    terminal: &'a Terminal,
}

impl<'a> Loaded<'a> {
    /// Starts a daemon if the scenario names no target. Returns the target, and the scenario with
    /// the target's address.
    ///
    /// # Errors
    /// [`Failure`] if the daemon does not start, or the user interrupts its start.
    pub(crate) fn begin(scenario: &Scenario, terminal: &'a Terminal) -> Result<(Self, Scenario), Failure> {
        let mut scenario = scenario.clone();
        let mut daemon = None;
        if scenario.addresses.is_empty() {
            let protocol = scenario.protocol;
            let started = terminal.unless_interrupted(move || {
                Daemon::start(protocol)
                    .map_err(|error| Failure::usage(format_args!("cannot start a daemon: {error}")))
            })?;
            scenario.addresses.extend(started.addresses.last().cloned());
            scenario.info.extend(started.addresses.first().cloned());
            daemon = Some(started);
        }
        Ok((Self { daemon, seen: Vec::new(), terminal }, scenario))
    }

    /// Makes one run of a scenario, which has to name the target.
    ///
    /// # Errors
    /// [`Failure`] if the load cannot begin. Faults of a target under load are in the outcome.
    pub(crate) fn run(&mut self, scenario: &Scenario) -> Result<Outcome, Failure> {
        let asked = scenario.clone();
        let (peers, streams) = self.terminal.unless_interrupted(move || approach::approach(&asked))?;
        let origin = Instant::now() + START_DELAY;
        let owners = peers.iter().map(|peer| peer.owner).collect();
        let shared = Shared {
            scenario,
            peers,
            watched: Watched::new(origin, scenario.warm_up, owners),
            lanes: lanes(scenario),
            stop: AtomicBool::new(false),
        };
        let held_up_before = quota::held_up();
        let (mut outcome, samples) = self.load(&shared, streams);
        outcome.held_up = quota::held_up().saturating_sub(held_up_before);
        let Shared { mut peers, watched, .. } = shared;
        let elapsed = outcome.measured_for(scenario, origin);
        // An outage shortly before the end may last beyond the end. The part after the end is not
        // subtracted from the time of the measurement.
        let after = scenario.outage.map_or(Duration::ZERO, |outage| elapsed.saturating_sub(outage.at));
        outcome.counts.settling.settle(u64::MAX, &watched.stalls);
        // A stall at the end of the load delays the last answers, and counts until these answers
        // have arrived.
        outcome.stalls = watched.stalls.sum((scenario.warm_up + elapsed).as_nanos() as u64);
        outcome.target_cpu = samples.cpu(elapsed);
        outcome.planned = scenario.is_open_loop().then_some(scenario.length);
        outcome.elapsed = elapsed;
        outcome.undisturbed = elapsed - outcome.counts.outage.min(after);
        outcome.rounds = 1;
        outcome.target = json::targets(scenario, &peers, self.daemon.is_some());
        outcome.promise = peers.swap_remove(0).promise;
        Ok(outcome)
    }

    /// Runs all threads of a run to their ends.
    ///
    /// ```text
    ///                          ┌── load thread 0 ── epoll: its connections ──▶ target
    ///  the caller's thread ────┼── load thread 1 ── epoll: its connections ──▶ target
    ///     │ collector          └── …
    ///     │                      sleeper on each core ──▶ the machine's stalls ([`Watched`])
    ///     ◀── one bounded channel: positions of IDs, each second's figures, at the end all counts
    /// ```
    ///
    /// Load threads share the schedules, the stalls, the stop flag and what is known of each target
    /// ([`Shared`]). If order is strict, they also share the largest ID received.
    fn load(&mut self, shared: &Shared<'_>, streams: approach::Streams) -> (Outcome, Samples) {
        std::thread::scope(|scope| {
            let _running = Running(&shared.stop);
            shared.watched.watch(scope, &shared.stop);
            let (to, from) = mpsc::sync_channel(QUEUE_LENGTH);
            for (thread, streams) in streams.into_iter().enumerate() {
                let to = to.clone();
                let builder = std::thread::Builder::new().name(LOAD_THREAD.to_owned());
                let spawned = builder.spawn_scoped(scope, move || load::run(thread, streams, shared, &to));
                spawned.unwrap_or_else(|error| panic!("a load thread cannot be started: {error}"));
            }
            drop(to);
            collector::collect(self, shared, &from)
        })
    }
}

/// When dropped, stops all threads of a run. The scope waits for the threads, so they must stop
/// even if the collector panics.
struct Running<'a>(&'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Puts the load of a scenario on a bare echo.
///
/// # Errors
/// [`Failure`] if the run did not reach its end.
pub(crate) fn run_echo(scenario: &Scenario, terminal: &Terminal) -> Result<Outcome, Failure> {
    // One more connection greets the echo first.
    let address = bare_echo::start(1 + scenario.connections).map_err(Failure::usage)?;
    let scenario = Scenario {
        addresses: vec![Endpoint::Tcp { host: address.ip().to_string(), port: address.port() }],
        token: None,
        protocol: &frontend::ECHO,
        info: Vec::new(),
        warm_up: scenario.warm_up.min(LONGEST_ECHO_WARM_UP),
        length: scenario.length.min(LONGEST_ECHO),
        outage: None,
        keeps_interval_log: false,
        ..scenario.clone()
    };
    let mut loaded = Loaded { daemon: None, seen: Vec::new(), terminal };
    let outcome = loaded.run(&scenario)?;
    match outcome.faults.first() {
        Some(fault) => Err(Failure::from_target(reasons::describe(fault, &outcome.promise))),
        None if outcome.interrupted => {
            Err(Failure { blame: Blame::Interrupt, reason: "interrupted".to_owned() })
        }
        None => Ok(outcome),
    }
}

/// Returns the schedules of an open loop, or none for a closed loop.
fn lanes(scenario: &Scenario) -> Lanes {
    let threads = scenario.threads;
    let schedules = (0..threads).filter_map(|thread| match scenario.drive {
        Drive::Open { rate, arrivals } => {
            let requests_per_s = rate.per_s() / f64::from(scenario.batch);
            Some(Schedule::new(requests_per_s, arrivals, thread, threads))
        }
        Drive::Closed { .. } => None,
    });
    Lanes::new(schedules)
}
