//! `snowbank serve`: from the command line to a daemon that serves until it is stopped.

use std::io::{self, Write};
use std::path::PathBuf;

use super::inputs::{
    Inputs, allow_open_files, forbid_cores, settle_state_dir, warnings, warnings_of_environment,
};
use super::{Failure, Outcome, cores};
use crate::admin;
use crate::config::{Machine, Overrides, Protocol, Settings, StatePlace};
use crate::os_clock;
use crate::server::{self, Beginning, Inherited, Note, Server, Signals, StartError};
use crate::service::{Logs, Notifier};

const HELP: &str = "\
Exit code 0: stopped as asked. 2: somebody must change something. 3: the cause may pass by itself.";

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
    // From here on, a signal waits until the daemon listens.
    let signals = Signals::catch(arguments.stop_at_stdin_eof)?;
    let notifier = Notifier::from_environment();
    let outcome = start_and_serve(arguments, inherited, signals, &notifier, out);
    if let Err(Failure::Start(error)) = &outcome {
        notifier.failed(&error.to_string());
    }
    outcome
}

fn start_and_serve(
    arguments: &Arguments,
    inherited: Result<Inherited, StartError>,
    signals: Signals,
    notifier: &Notifier,
    out: &mut impl Write,
) -> Outcome {
    let mut overrides = (*arguments.overrides).clone();
    if let Ok(inherited) = &inherited {
        overrides.listen_at(&inherited.addresses());
    }
    let inputs = Inputs { config: arguments.config.clone(), overrides, cores: cores() };
    let now = os_clock::read().wall;
    let loaded = inputs.read(now);
    let log = loaded.as_ref().map_or_else(|_| inputs.overrides.log(), |(settings, _)| settings.log);
    let logs = Logs::start(log).map_err(|error| StartError::no_thread(&error))?;
    let sockets = inherited?;
    let (mut settings, secrets) = loaded.map_err(StartError::from)?;
    let picked = settings.pick_worker_ids(&Machine::here()).map_err(StartError::from)?;
    refuse_endless_standard_input(arguments)?;
    let place =
        settle_state_dir(&mut settings).map_err(|error| StartError::WrongSetting(error.to_string()))?;
    let mut warned = warnings(&settings, &secrets, now);
    warned.extend(allow_open_files(&mut settings));
    let choices = choices(&settings, &place, picked, &warned);
    let server = Server::open(Beginning {
        settings,
        secrets,
        sockets,
        directory: place.directory,
        adopt: arguments.adopt_state,
        choices,
        warned,
        reread: Box::new(move || inputs.read_again()),
        notifier: notifier.clone(),
        logs,
    })?;
    let addresses = where_it_listens(&server);
    Ok(server.run(signals, admin::serve, || announce(out, &addresses))?)
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
    // An inherited socket, an option or a variable may replace a value of the file.
    notes.extend(settings.origins.overridden.iter().cloned().map(Note::Info));
    notes.extend(warnings.iter().cloned().chain(warnings_of_environment(settings)).map(Note::Warning));
    notes
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

/// Writes the addresses where the daemon listens. A program that reads these lines may then
/// connect, or send a signal. An output that takes nothing does not stop the daemon.
fn announce(out: &mut impl Write, addresses: &[String]) {
    let lines: String = addresses.iter().map(|address| format!("{address}\n")).collect();
    // Written at once: what stays in the buffer would fail again when the daemon ends.
    if let Err(error) = out.write_all(lines.as_bytes()).and_then(|()| out.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        tracing::warn!("cannot write the addresses to standard output: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_full_output_is_not_written_again_at_the_end() {
        let full = File::options().write(true).open("/dev/full").expect("the device");
        let mut out = io::LineWriter::new(full);
        announce(&mut out, &["listening on 127.0.0.1:7660".into(), "admin on 127.0.0.1:9660".into()]);
        out.flush().expect("nothing is left to write");
    }
}
