//! `snowbank serve`: from the command line to a daemon that serves until it is stopped.

use std::future::Future;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

use tokio::signal::unix::{Signal, SignalKind};

use super::inputs::{Inputs, allow_open_files, settle_state_dir, warnings_of_environment};
use super::reload::{self, Requests};
use super::stop::{Stops, catch};
use super::{Failure, Outcome};
use crate::clock;
use crate::config::{Machine, Overrides, Protocol, Settings, SourceSettings, StatePlace};
use crate::server::{self, Inherited, Note, RunError, Server, StartError, State, Tries, WaitEnd, Waiting};
use crate::service::{Logs, Notifier};
use snowbank_client::layout::UnixMicros;

const HELP: &str = "\
Exit code 0: stopped as asked. 1: it could not go on. 2: somebody must change something. 3: the cause may pass by itself.";

/// Options of `snowbank serve`. Options beat environment variables, and these beat the file.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The configuration, in TOML; `snowbank check` finds its mistakes
    #[arg(long, env = "SNOWBANK_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Box<Overrides>,
    /// Take over the state of another machine: for a disk or a machine's image that moved, once the daemon there has
    /// stopped for good. Or go on with an older copy of this machine's state, if the newest is lost, once the clock is past
    /// all that was granted since. Needed once; afterwards the state is this machine's
    #[arg(long)]
    adopt_state: bool,
    /// Stop cleanly when standard input ends, as on a signal: for a program that starts a daemon for itself and holds
    /// the other end of a pipe, so that the daemon does not outlive it
    #[arg(long)]
    stop_at_stdin_eof: bool,
}

/// Starts a daemon and serves until a signal, the service manager or the end of standard input stops it.
pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    // First, because it must run before there are threads.
    let inherited = Inherited::take();
    // After this a hang-up requests a reload, once the daemon serves. A daemon outlives the terminal that started it.
    let hangups = catch(SignalKind::hangup())?;
    let notifier = Notifier::from_environment();
    let outcome = start_and_serve(arguments, inherited, hangups, &notifier, out);
    if let Err(Failure::Start(error)) = &outcome {
        notifier.failed(&error.to_string());
    }
    outcome
}

fn start_and_serve(
    arguments: &Arguments,
    inherited: Result<Inherited, StartError>,
    hangups: Signal,
    notifier: &Notifier,
    out: &mut impl Write,
) -> Outcome {
    let inputs = inputs(arguments, inherited.as_ref().ok());
    let now = clock::os::read().wall;
    let loaded = inputs.read(now);
    let log = loaded.as_ref().map_or_else(|_| inputs.overrides.log(), |(settings, _)| settings.log);
    let logs = Logs::start(log).map_err(|error| StartError::no_thread(&error))?;
    let inherited = inherited?;
    let (mut settings, mut secrets) = loaded.map_err(StartError::from)?;
    let picked = settings.pick_worker_ids(&Machine::here()).map_err(StartError::from)?;
    refuse_endless_standard_input(arguments)?;
    let warnings_of_secrets = std::mem::take(&mut secrets.warnings);
    let place =
        settle_state_dir(&mut settings).map_err(|error| StartError::WrongSetting(error.to_string()))?;
    let too_few_files = allow_open_files(&mut settings);
    let state = State { directory: place.path(), adopt: arguments.adopt_state };
    // A wait catches signals, and keeps those that come between its end and the start that follows.
    let mut stops = None;
    let mut starting = Some(notifier.extend_start(FIRST_CEILINGS));
    let mut announced = Announced::default();
    let mut tries = Tries::new(&settings, secrets.fleet.clone(), state);
    let (prepared, inherited) = match tries.prepare() {
        Err(reason) if reason.is_lack_of_numbers() => {
            drop(starting.take());
            let waiting = Waiting::start(tries, &secrets, inherited, &reason)?;
            announced.choices(&settings, &place, now, &picked);
            tracing::warn!("waits for a worker ID, and hands out nothing: {reason}");
            let stops = stops.insert(Stops::catch()?);
            let end = wait(waiting, arguments, notifier, stops, (&mut announced, out))?;
            let WaitEnd::Taken(prepared, sockets) = end else { return Ok(()) };
            starting = Some(notifier.extend_start(FIRST_CEILINGS));
            (*prepared, sockets)
        }
        prepared => (prepared?, inherited),
    };
    let (server, reloader) = Server::start(prepared, secrets, inherited)?;
    drop(starting);
    // Not before, because a refusal to start is one line.
    announced.choices(&settings, &place, now, &picked);
    server.notes().iter().for_each(Note::log);
    warnings_of_secrets.iter().chain(&too_few_files).for_each(|warning| tracing::warn!("{warning}"));
    let warned = settings.warnings(now).into_iter().chain(warnings_of_secrets).chain(too_few_files).collect();
    let reloads = reload::start(inputs, reloader, warned, notifier.clone(), logs)
        .map_err(|error| StartError::no_thread(&error))?;
    let stops = stops.map_or_else(Stops::catch, Ok)?;
    serve(server, arguments, notifier, stops, reload_at_hangups(hangups, &reloads), (&mut announced, out))
}

/// The status while a start waits for its disk.
const FIRST_CEILINGS: &str = "starting: storage takes its time for the first ceilings";

/// The lines that were written already, by a daemon that waited for worker IDs.
#[derive(Debug, Default)]
struct Announced {
    are_choices_logged: bool,
    are_addresses_written: bool,
}

impl Announced {
    /// Logs the settings that matter, once.
    fn choices(&mut self, settings: &Settings, place: &StatePlace, now: UnixMicros, picked: &[String]) {
        if !std::mem::replace(&mut self.are_choices_logged, true) {
            log_choices(settings, place, now);
            picked.iter().for_each(|line| tracing::info!("{line}"));
        }
    }

    /// Writes where the daemon listens, once. A program that reads these lines may connect or send a signal from then on. A
    /// closed pipe stops nothing.
    fn addresses(&mut self, server: &[String], out: &mut impl Write) {
        if !std::mem::replace(&mut self.are_addresses_written, true)
            && let Err(error) = announce(out, server)
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            tracing::warn!("cannot write the addresses to standard output: {error}");
        }
    }
}

/// Serves a daemon that waits for worker IDs, until it has them or is stopped.
fn wait(
    waiting: Waiting,
    arguments: &Arguments,
    notifier: &Notifier,
    stops: &mut Stops,
    (announced, out): (&mut Announced, &mut impl Write),
) -> Result<WaitEnd, Failure> {
    let (health, addresses) = (waiting.server().health(), where_it_listens(waiting.server()));
    let stop = async {
        announced.addresses(&addresses, out);
        stops.run_waiting(notifier, &health, arguments.stop_at_stdin_eof).await;
    };
    let end = waiting.run(stop).map_err(failure)?;
    if matches!(end, WaitEnd::Taken(..)) {
        tracing::info!("has worker IDs now, and starts");
    }
    Ok(end)
}

/// Serves until the stop. Runs `beside` meanwhile.
fn serve(
    server: Server,
    arguments: &Arguments,
    notifier: &Notifier,
    stops: Stops,
    beside: impl Future<Output = ()>,
    (announced, out): (&mut Announced, &mut impl Write),
) -> Outcome {
    let (health, addresses) = (server.health(), where_it_listens(&server));
    let is_probed = server.admin_addresses().next().is_some();
    let of_stop = health.clone();
    let stop = async {
        announced.addresses(&addresses, out);
        stops.run(notifier, &of_stop, is_probed, arguments.stop_at_stdin_eof, beside).await;
    };
    server.run(stop).map_err(failure)?;
    match health.lost() {
        Some(reason) => Err(Failure::Start(StartError::NumberHeld(format!(
            "stopped, because a worker ID is lost, or a counter, or the state: {reason}; the next start finds out whose \
             it is"
        )))),
        None => Ok(()),
    }
}

fn failure(error: RunError) -> Failure {
    match error {
        RunError::Start(error) => Failure::Start(error),
        failed @ RunError::ThreadFailed(_) => Failure::no(failed),
    }
}

/// Returns everything that configures the daemon, at the start and at each reload.
fn inputs(arguments: &Arguments, inherited: Option<&Inherited>) -> Inputs {
    Inputs {
        config: arguments.config.clone(),
        overrides: (*arguments.overrides).clone(),
        cores: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        inherited: inherited.map(Inherited::addresses).unwrap_or_default(),
    }
}

/// Refuses to wait for the end of standard input if it is the kernel's log.
fn refuse_endless_standard_input(arguments: &Arguments) -> Outcome {
    if arguments.stop_at_stdin_eof && server::is_kernel_log_standard_input() {
        return Err(Failure::usage(
            "--stop-at-stdin-eof: found the kernel's log as standard input, which never ends, allowed: one that ends, such as \
             a pipe; hand one over, or leave the option out",
        ));
    }
    Ok(())
}

/// Requests a reload at each SIGHUP. Never completes.
async fn reload_at_hangups(mut hangups: Signal, reloads: &Requests) {
    while hangups.recv().await.is_some() {
        reloads.ask();
    }
    std::future::pending().await
}

/// A line for each listener.
fn where_it_listens(server: &Server) -> Vec<String> {
    let clients = server.addresses().map(|(protocol, address)| match protocol {
        Protocol::Native => format!("listening on {address}"),
        front_end => format!("{} on {address}", front_end.name()),
    });
    clients.chain(server.admin_addresses().map(|address| format!("admin on {address}"))).collect()
}

fn announce(out: &mut impl Write, addresses: &[String]) -> io::Result<()> {
    for address in addresses {
        writeln!(out, "{address}")?;
    }
    out.flush()
}

fn log_choices(settings: &Settings, place: &StatePlace, now: UnixMicros) {
    for line in settings.summary_without_addresses() {
        tracing::info!("{line}");
    }
    for warning in settings.warnings(now).into_iter().chain(warnings_of_environment(settings)) {
        tracing::warn!("{warning}");
    }
    match place {
        StatePlace::Directory { .. } => tracing::info!("{place}"),
        // The coordinator has all that shared counters need.
        StatePlace::Nowhere if settings.sources.iter().all(SourceSettings::is_shared_counter) => {
            tracing::info!("state nowhere (state_dir is none)");
        }
        StatePlace::Nowhere => tracing::warn!("{place}"),
    }
}
