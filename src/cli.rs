//! The command line: the options of each command, and the exit codes.

mod alias_keys;
mod ask_reload;
mod backfill;
mod check;
mod chosen;
mod decode;
mod fleet;
mod inputs;
mod layout;
mod lines;
mod next;
mod ping;
mod range;
mod serve;
mod service_user;
mod sql;
mod state;
mod status;
mod ticket;
mod tls_options;
mod token;

#[cfg(test)]
#[path = "../packaging/pages.rs"]
mod pages;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::{fmt, thread};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use serde::Serialize;

use crate::server::StartError;
use crate::service;
use snowbank_state::StateError;
use snowbank_wire::hide_password;

/// Hand out batches of unique, time-sortable 64-bit IDs.
#[derive(Debug, Parser)]
#[command(name = "snowbank", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon.
    Serve(serve::Arguments),
    /// Fetch IDs from a daemon, one decimal ID per line.
    Next(next::Arguments),
    /// Take IDs apart into their instant and fields.
    Decode(decode::Arguments),
    /// Print the first and last ID of a time span, for `WHERE id BETWEEN`.
    Range(range::Arguments),
    /// Print an ID for each instant of rows that exist already.
    Backfill(backfill::Arguments),
    /// List the presets, or draw one layout.
    Layout(layout::Arguments),
    /// Find the mistakes in a configuration file.
    Check(check::Arguments),
    /// Make a token for a client, and the line of a token file for it.
    Token(token::Arguments),
    /// Ask a daemon whether it answers, and how fast.
    Ping(ping::Arguments),
    /// Show the state of a daemon: whether it serves, how fast, and what needs attention.
    Status(status::Arguments),
    /// Ask a daemon of this machine to reload its configuration, and fail if it refuses: for
    /// ExecReload= of a unit.
    Reload(ask_reload::Arguments),
    /// Show who holds which worker ID in a fleet, and prepare its coordinator.
    #[command(subcommand, after_help = fleet::HELP)]
    Fleet(fleet::Command),
    /// Show the state that a daemon keeps over restarts, or move it to another machine.
    #[command(subcommand)]
    State(state::Command),
    /// Set the number from which a ticket source continues: its first start needs it.
    #[command(subcommand)]
    Ticket(ticket::Command),
}

/// The reason why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The answer is no: mistakes were found, a request was refused, or a daemon is unreachable.
    /// Exit code 1.
    No(String),
    /// The command was used wrongly, or cannot be carried out. Exit code 2.
    Usage(String),
    /// The daemon does not start or stops after a loss, or a command cannot run. The cause decides
    /// the exit code: 2 or 3.
    Start(StartError),
    /// The output cannot be written. Exit code 1; 0 if its reader closed the pipe (`| head -1`).
    Output(io::Error),
}

impl Failure {
    /// Returns the failure of wrong use.
    pub fn usage(reason: impl fmt::Display) -> Self {
        Failure::Usage(reason.to_string())
    }

    /// Returns the failure of a command whose answer is no.
    pub fn no(reason: impl fmt::Display) -> Self {
        Failure::No(reason.to_string())
    }
}

/// An I/O error that reaches this conversion comes from a write of a command's output. All other
/// I/O errors get their message where they occur.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

/// For every command except `serve`, a refused state or lock means that the answer is no.
impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Failure::no(error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Failure::Start(error)
    }
}

/// Writes a value as a line of JSON.
fn write_json(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

/// Returns the number of cores that this process may use.
fn cores() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// The result of every command. Each command writes its output to a writer that it is given.
pub type Outcome = Result<(), Failure>;

/// Runs the command line that the process was started with.
pub fn main() -> ExitCode {
    let arguments = without_empty_variables(Arguments::command()).try_get_matches();
    let arguments = arguments.and_then(|matches| Arguments::from_arg_matches(&matches));
    let outcome = arguments.map_err(wrong_use).and_then(|arguments| {
        let mut out = io::stdout().lock();
        has_descriptors().map_err(|error| StartError::no_thread(&error))?;
        run(arguments.command, &mut out)?;
        Ok(out.flush()?)
    });
    let (code, reason) = match outcome {
        Ok(()) => (0, None),
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => (0, None),
        Err(Failure::Output(error)) => (1, Some(format!("cannot write the output: {error}"))),
        Err(Failure::No(reason)) => (1, Some(reason)),
        Err(Failure::Usage(reason)) => (2, Some(reason)),
        Err(Failure::Start(error)) => (error.exit_code(), Some(error.to_string())),
    };
    reason.iter().for_each(|reason| service::log_failure(reason));
    service::end_log();
    ExitCode::from(code)
}

/// Makes the options of a command and its subcommands ignore empty environment variables: an empty
/// variable counts as not set.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|option| {
        let value = option.get_env().and_then(std::env::var_os);
        if value.is_some_and(|value| value.is_empty()) { option.env(None::<&'static str>) } else { option }
    });
    command.mut_subcommands(without_empty_variables)
}

/// Checks that the process may open enough files for its first reactor: otherwise tokio panics.
fn has_descriptors() -> io::Result<()> {
    /// These pairs of sockets have a few more descriptors than tokio opens.
    const PAIRS: usize = 4;
    let pairs: io::Result<Vec<_>> = (0..PAIRS).map(|_| UnixStream::pair()).collect();
    pairs.map(drop)
}

fn run(command: Command, out: &mut impl Write) -> Outcome {
    match command {
        Command::Serve(arguments) => serve::run(&arguments, out),
        Command::Next(arguments) => next::run(&arguments, out),
        Command::Decode(arguments) => decode::run(&arguments, out),
        Command::Range(arguments) => range::run(&arguments, out),
        Command::Backfill(arguments) => backfill::run(&arguments, out),
        Command::Layout(arguments) => layout::run(&arguments, out),
        Command::Check(arguments) => check::run(&arguments, out),
        Command::Token(arguments) => token::run(&arguments, out),
        Command::Ping(arguments) => ping::run(&arguments, out),
        Command::State(command) => state::run(&command, out),
        Command::Ticket(command) => ticket::run(&command, crate::os_clock::read().wall, out),
        Command::Fleet(command) => fleet::run(&command, out),
        Command::Reload(arguments) => ask_reload::run(&arguments),
        Command::Status(arguments) => status::run(&arguments, out),
    }
}

/// Reads a whole number that an option or an argument has.
fn whole(text: &str, allowed: RangeInclusive<u64>) -> Result<u64, String> {
    let value = text.parse().ok().filter(|value| allowed.contains(value));
    value.ok_or_else(|| match allowed.into_inner() {
        (first, u64::MAX) => format!("allowed: a whole number from {first} on"),
        (first, last) => format!("allowed: a whole number from {first} to {last}"),
    })
}

/// Prints help or the version and ends the process. Turns any other error into one line.
fn wrong_use(error: clap::Error) -> Failure {
    use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    use clap::error::{ContextKind, ContextValue};
    if !error.use_stderr() || error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        error.exit();
    }
    let mut page = error.render().to_string();
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg, ContextKind::InvalidSubcommand] {
        if let Some(ContextValue::String(found)) = error.get(kind) {
            page = page.replace(&**found, &hide_password(found));
        }
    }
    let lines = page.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let line = lines.collect::<Vec<_>>().join("; ").replace(":;", ":");
    Failure::Usage(format!("{}; see --help", line.trim_start_matches("error: ")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{Arguments, pages};

    /// A narrow terminal wraps lines again, so a line break within a paragraph leaves short lines.
    #[test]
    fn help_texts_leave_wrapping_to_the_terminal() {
        let mut commands = vec![Arguments::command()];
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            let Some(text) = command.get_after_help() else { continue };
            let text = text.to_string();
            let name = command.get_name();
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.windows(2) {
                let is_whole = pair[0].is_empty() || pair[1].is_empty() || pair[1].starts_with("  ");
                assert!(is_whole, "{name}: a line break within a paragraph after {:?}", pair[0]);
            }
            let widest = lines.iter().filter(|line| line.starts_with("  ")).map(|line| line.len()).max();
            assert!(widest <= Some(80), "{name}: an item wider than a terminal");
        }
    }

    #[test]
    fn pages_for_the_package_are_written() {
        pages::write(Arguments::command());
    }
}
