//! `snowbank serve`: from the command line to a daemon that serves until it is stopped.

use std::future::Future;
use std::io::{self, Write};
use std::path::PathBuf;

use tokio::signal::unix::{Signal, SignalKind};

use super::inputs::{Inputs, allow_open_files, forbid_cores, settle_state_dir, warnings_of_environment};
use super::reload;
use super::stop::{Stops, catch};
use super::{Failure, Outcome, cores};
use crate::clock;
use crate::config::{Machine, Overrides, Protocol, Secrets, Settings, StatePlace};
use crate::server::{self, Inherited, Note, Ready, RunError, Server, StartEnd, StartError, Tries, Waiting};
use crate::service::{Extending, Logs, Notifier};

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
    /// Take over the state of another machine, whose disk or image moved here and whose daemon has
    /// stopped for good. Or, if this machine's newest state is lost, use an older copy, once the
    /// clock is past all IDs granted since that copy. Needed for one start: from then on the state
    /// belongs to this machine
    #[arg(long)]
    adopt_state: bool,
    /// Stop cleanly when standard input ends, as on a signal. A program that starts a daemon for
    /// itself holds the other end of a pipe, so that the daemon does not outlive the program
    #[arg(long)]
    stop_at_stdin_eof: bool,
}

/// Starts a daemon and serves until a signal, the end of standard input or a loss stops it.
pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    forbid_cores();
    // The inherited sockets must be taken before any thread starts.
    let inherited = Inherited::take();
    // From here on, a hang-up does not end the daemon. So the daemon outlives the terminal that
    // started it. Once the daemon serves, a hang-up requests a reload.
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
    let mut overrides = (*arguments.overrides).clone();
    if let Ok(inherited) = &inherited {
        overrides.listen_at(&inherited.addresses());
    }
    let inputs = Inputs { config: arguments.config.clone(), overrides, cores: cores() };
    let now = clock::os::read().wall;
    let loaded = inputs.read(now);
    let log = loaded.as_ref().map_or_else(|_| inputs.overrides.log(), |(settings, _)| settings.log);
    let logs = Logs::start(log).map_err(|error| StartError::no_thread(&error))?;
    let inherited = inherited?;
    let (mut settings, mut secrets) = loaded.map_err(StartError::from)?;
    let picked = settings.pick_worker_ids(&Machine::here()).map_err(StartError::from)?;
    refuse_endless_standard_input(arguments)?;
    let place =
        settle_state_dir(&mut settings).map_err(|error| StartError::WrongSetting(error.to_string()))?;
    let mut warnings = settings.warnings(now);
    warnings.append(&mut secrets.warnings);
    warnings.extend(allow_open_files(&mut settings));
    let tries =
        Tries::new(&settings, secrets.fleet.clone(), place.directory.as_deref(), arguments.adopt_state);
    let choices = choices(&settings, &place, picked, &warnings);
    let mut process = Process { arguments, notifier, out: Some(out), choices, stops: None };
    let Some(Granted { ready, sockets, starting }) = process.take_numbers(tries, &secrets, inherited)? else {
        return Ok(());
    };
    let (server, reloader) = Server::start(ready, secrets, sockets)?;
    drop(starting);
    // The choices are logged only now, so that a refused start logs one line: the reason.
    process.log_choices();
    server.notes.iter().for_each(Note::log);
    let reloads = reload::start(inputs, reloader, warnings, notifier.clone(), logs)
        .map_err(|error| StartError::no_thread(&error))?;
    process.serve(server, reload::at_hangups(hangups, &reloads))
}

/// The status that the service manager shows while a start waits for its disk.
const FIRST_CEILINGS: &str = "starting: waits until storage has made the first ceilings durable";

/// A start that may hand out IDs.
struct Granted {
    ready: Ready,
    sockets: Inherited,
    /// As long as this value lives, the service manager waits for the start.
    starting: Extending,
}

/// Returns the lines about settings that the log of a start shows.
fn choices(settings: &Settings, place: &StatePlace, picked: Vec<String>, warnings: &[String]) -> Vec<Note> {
    let mut notes: Vec<Note> = settings.summary_without_addresses().into_iter().map(Note::Info).collect();
    // Shared counters are kept at the coordinator, so they need no state here.
    let needs_no_state = settings.sources.iter().all(|source| source.kind.takes_ranges());
    notes.push(match &place.directory {
        None if needs_no_state => Note::Info(String::from("state nowhere (state_dir is none)")),
        None => Note::Warning(place.to_string()),
        Some(_) => Note::Info(place.to_string()),
    });
    notes.extend(picked.into_iter().map(Note::Info));
    notes.extend(warnings.iter().cloned().chain(warnings_of_environment(settings)).map(Note::Warning));
    notes
}

/// The process of a daemon, while it starts, waits and serves.
struct Process<'a, W> {
    arguments: &'a Arguments,
    notifier: &'a Notifier,
    /// Standard output. `None` once the addresses are written.
    out: Option<&'a mut W>,
    /// The lines about settings that the log shows. Empty once they are logged.
    choices: Vec<Note>,
    /// The signals that stop the daemon, caught since it first waited for a worker ID. So no signal
    /// is lost between the end of that wait and the start that follows.
    stops: Option<Stops>,
}

impl<W: Write> Process<'_, W> {
    /// Takes the worker IDs. If only a worker ID is missing, waits for it. Returns `None` if the
    /// daemon is stopped meanwhile.
    fn take_numbers(
        &mut self,
        tries: Tries,
        secrets: &Secrets,
        sockets: Inherited,
    ) -> Result<Option<Granted>, Failure> {
        let mut starting = self.notifier.extend_start(FIRST_CEILINGS);
        let mut end = tries.start(secrets, sockets);
        loop {
            let StartEnd { ready, sockets, tries } = end;
            let reason = match ready {
                Ok(ready) => return Ok(Some(Granted { ready, sockets, starting })),
                Err(reason) if reason.lacks_only_worker_id() => reason,
                Err(reason) => return Err(reason.into()),
            };
            drop(starting);
            let waiting = Waiting::start(tries, secrets, sockets, &reason)?;
            self.log_choices();
            tracing::warn!("waits for a worker ID, and hands out nothing: {reason}");
            let Some(next) = self.wait(waiting, secrets)? else { return Ok(None) };
            end = next;
            starting = self.notifier.extend_start(FIRST_CEILINGS);
        }
    }

    /// Logs the lines about settings, once.
    fn log_choices(&mut self) {
        std::mem::take(&mut self.choices).iter().for_each(Note::log);
    }

    /// Runs a daemon without worker IDs until it has some, and then continues its start. Returns
    /// `None` if the daemon is stopped meanwhile.
    fn wait(&mut self, waiting: Waiting, secrets: &Secrets) -> Result<Option<StartEnd>, Failure> {
        let health = waiting.server().health();
        let addresses = where_it_listens(waiting.server());
        let ends_with_stdin = self.arguments.stop_at_stdin_eof;
        let stops = match &mut self.stops {
            Some(stops) => stops,
            none => none.insert(Stops::catch()?),
        };
        let stop = async {
            announce(&mut self.out, &addresses);
            stops.run_waiting(self.notifier, &health, ends_with_stdin).await;
        };
        let Some(taken) = waiting.run(stop).map_err(failure)? else { return Ok(None) };
        tracing::info!("has worker IDs now, and starts");
        let _starting = self.notifier.extend_start(FIRST_CEILINGS);
        Ok(taken.grant(secrets, stops.run_starting(self.notifier, ends_with_stdin))?)
    }

    /// Serves until the stop. Runs `beside` meanwhile.
    fn serve(mut self, server: Server, beside: impl Future<Output = ()>) -> Outcome {
        let health = server.health();
        let addresses = where_it_listens(&server);
        let is_probed = server.admin_addresses().next().is_some();
        let stops = self.stops.map_or_else(Stops::catch, Ok)?;
        let stop_health = health.clone();
        let stop = async {
            announce(&mut self.out, &addresses);
            stops.run(self.notifier, &stop_health, is_probed, self.arguments.stop_at_stdin_eof, beside).await;
        };
        server.run(stop).map_err(failure)?;
        match health.lost() {
            Some(reason) => Err(Failure::Start(StartError::HeldInFleet(format!(
                "stopped, because a worker ID, a counter or the state is lost: {reason}; the next start checks \
                 whether another daemon has it"
            )))),
            None => Ok(()),
        }
    }
}

fn failure(error: RunError) -> Failure {
    match error {
        RunError::Start(error) => Failure::Start(error),
        failed @ RunError::ThreadFailed(_) => Failure::no(failed),
    }
}

/// Refuses to wait for the end of standard input if standard input is the kernel's log.
fn refuse_endless_standard_input(arguments: &Arguments) -> Outcome {
    if arguments.stop_at_stdin_eof && server::is_kernel_log_standard_input() {
        return Err(Failure::usage(
            "--stop-at-stdin-eof: found the kernel's log as standard input, allowed: an input that ends, such \
             as a pipe; pass one, or leave the option out",
        ));
    }
    Ok(())
}

/// Returns a line for each listener.
fn where_it_listens(server: &Server) -> Vec<String> {
    let clients = server.addresses().map(|(protocol, address)| match protocol {
        Protocol::Native => format!("listening on {address}"),
        front_end => format!("{} on {address}", front_end.name()),
    });
    clients.chain(server.admin_addresses().map(|address| format!("admin on {address}"))).collect()
}

/// Writes the addresses where the daemon listens, once. A program that reads these lines may then
/// connect, or send a signal. A closed pipe does not stop the daemon.
fn announce(out: &mut Option<&mut impl Write>, addresses: &[String]) {
    let Some(out) = out.take() else { return };
    let lines = addresses.iter().try_for_each(|address| writeln!(out, "{address}"));
    if let Err(error) = lines.and_then(|()| out.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        tracing::warn!("cannot write the addresses to standard output: {error}");
    }
}
