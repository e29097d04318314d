//! Reads the options, and returns the exit code.
//!
//! Without a subcommand, measures one load, and repeats the run if it has no verdict. `sweep`
//! measures many rates. `plan` and `compare` read the files of earlier runs.

mod compare;
mod load;
mod plan;
mod sweep;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde::Serialize;
use snowbank_wire::one_line;

use self::load::{Latencies, Load};
use crate::daemon::Ending;
use crate::failure::{Blame, Failure};
use crate::judge::{Objectives, judge};
use crate::measure::SecondFigures;
use crate::origin;
use crate::report::terminal::{Terminal, is_stdout};
use crate::report::{html, json, table};
use crate::run::trial;
use crate::scenario::{Drive, Outage, Scenario};
use crate::value::{Rate, Share, Time};

/// Can this machine hold 10,000 IDs/s within 2 ms?
///
/// Without options, this starts a daemon and offers it 10,000 IDs/s for 10 s on a fixed schedule.
/// It checks every ID, and passes if 99.9 % of the requests are answered within 2 ms of their due
/// time.
///
/// Exit codes: 0 all objectives met; 1 an objective missed, or the target broke a promise; 2 no
/// verdict, wrong use, or no target that speaks the protocol.
#[derive(Debug, Parser)]
#[command(name = "snowbank-loadtest", version, max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    load: Load,
    /// Offered IDs per second [default: 10000/s]; with --closed, the rate to reach
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<Rate>,
    /// Length of the measurement, after the warm-up
    #[arg(long = "for", value_name = "TIME", default_value = "10s", allow_hyphen_values = true)]
    length: Time,
    /// Closed loop: send as fast as answers come, instead of on a schedule
    #[arg(long, conflicts_with = "poisson")]
    closed: bool,
    /// Closed loop: requests in flight on each connection [default: 1]
    #[arg(long, value_name = "N", requires = "closed", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depth: Option<u32>,
    /// Stop the daemon cleanly at this time of the measurement and start it again; only without
    /// --address
    #[arg(long, value_name = "TIME", conflicts_with_all = ["address", "kill_daemon_at"], allow_hyphen_values = true)]
    restart_daemon_at: Option<Time>,
    /// Kill the daemon at this time of the measurement and start it again; only without --address
    #[arg(long, value_name = "TIME", conflicts_with = "address", allow_hyphen_values = true)]
    kill_daemon_at: Option<Time>,
    #[command(flatten)]
    latencies: Latencies,
    /// Largest share of requests that may be refused [default: none]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    errors: Option<Share>,
    /// Repeat the run until there is a verdict, up to this many runs, judged together: a noisy
    /// machine may decide the result of a single run [default: 2, within 60s]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Write all figures to a file; "-" is standard output, and then the table goes to standard
    /// error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write all figures with charts as one page that a browser opens
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the figures of each second as a table for spreadsheets
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write each second's histogram of response times, as HdrHistogram's log viewers read it
    #[arg(long, value_name = "FILE")]
    hlog: Option<PathBuf>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
enum Command {
    Sweep(Box<sweep::Arguments>),
    Plan(plan::Arguments),
    Compare(compare::Arguments),
}

/// Runs the command line that the process was started with.
pub(crate) fn main() -> ExitCode {
    let code = Arguments::try_parse().map_err(wrong_use).and_then(|arguments| match &arguments.command {
        None => measure(&arguments),
        Some(Command::Sweep(arguments)) => sweep::run(arguments),
        Some(Command::Plan(arguments)) => plan::run(arguments),
        Some(Command::Compare(arguments)) => compare::run(arguments),
    });
    ExitCode::from(code.unwrap_or_else(|failure| {
        // If standard error is closed, the exit code has to suffice.
        let _ = writeln!(io::stderr(), "snowbank-loadtest: {}", one_line(&failure.reason));
        failure.exit_code()
    }))
}

fn measure(arguments: &Arguments) -> Result<u8, Failure> {
    let scenario = arguments.scenario()?;
    let objectives = arguments.objectives();
    let Arguments { json, html, csv, hlog, .. } = arguments;
    open_files(&[json, html, csv, hlog])?;
    let origin = origin::this_process();
    let terminal = Terminal::new(json.as_deref());
    terminal.begin_runs().map_err(Failure::usage)?;
    let outcome = trial::run(&scenario, &objectives, arguments.runs, &terminal);
    terminal.clear();
    let outcome = outcome?;
    let verdict = judge(&outcome, &objectives);
    let figures = json::Run::of(&scenario, &objectives, &outcome, &verdict, &origin);
    terminal.print(|out| table::write(&figures, out));
    write_files(
        verdict.exit_code(),
        &[
            (json, &|| json_text(&figures)),
            (html, &|| html::run::render(&figures).into_bytes()),
            (csv, &|| csv_text(&figures.seconds)),
            (hlog, &|| outcome.interval_log.clone()),
        ],
    )
}

impl Arguments {
    fn scenario(&self) -> Result<Scenario, Failure> {
        let drive = if self.closed {
            Drive::Closed { depth: self.depth.unwrap_or(1) as usize }
        } else {
            Drive::Open { rate: self.rate.unwrap_or(Rate::STANDARD), arrivals: self.load.arrivals() }
        };
        Ok(Scenario {
            outage: self.outage()?,
            keeps_interval_log: self.hlog.is_some(),
            ..self.load.scenario(drive, self.length.0)?
        })
    }

    fn outage(&self) -> Result<Option<Outage>, Failure> {
        let ending = if self.kill_daemon_at.is_some() { Ending::Kill } else { Ending::Stop };
        let Some(at) = self.restart_daemon_at.or(self.kill_daemon_at) else { return Ok(None) };
        if at >= self.length {
            let Time(length) = self.length;
            let Time(at) = at;
            return Err(Failure::usage(format_args!(
                "found an outage at {at:?}, allowed: within the measurement, --for {length:?}"
            )));
        }
        Ok(Some(Outage { at: at.0, ending }))
    }

    fn objectives(&self) -> Objectives {
        let latencies = if self.closed { self.latencies.given() } else { self.latencies.open_loop() };
        let errors = self.errors.map_or(0.0, |share| share.0);
        Objectives { rate: self.rate, latencies, errors }
    }
}

/// Opens the files that the run will write, so that a wrong path fails at once. The files keep
/// their content until there are new figures: a run that cannot start must not delete the figures
/// of an earlier run.
fn open_files(paths: &[&Option<PathBuf>]) -> Result<(), Failure> {
    for path in paths.iter().filter_map(|path| path.as_ref()).filter(|path| !is_stdout(path)) {
        let opened = fs::OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|error| cannot_write(path, &error))?;
    }
    Ok(())
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format_args!("cannot write {}: {error}", path.display()))
}

/// An output file: its path if the user gave one, and a function that makes its content.
type File<'a> = (&'a Option<PathBuf>, &'a dyn Fn() -> Vec<u8>);

/// Writes files and returns `code`. A file that cannot be written is a failure even after a pass,
/// because a script may need the file. The table is already printed, so a full disk does not lose
/// the table.
fn write_files(code: u8, files: &[File<'_>]) -> Result<u8, Failure> {
    let blame = if code == 1 { Blame::Target } else { Blame::User };
    for (path, bytes) in files {
        let Some(path) = path else { continue };
        let written =
            if is_stdout(path) { io::stdout().write_all(&bytes()) } else { fs::write(path, bytes()) };
        written.map_err(|error| Failure { blame, ..cannot_write(path, &error) })?;
    }
    Ok(code)
}

/// Returns the text of a JSON file.
fn json_text(figures: &impl Serialize) -> Vec<u8> {
    // Serializing numbers, strings and lists does not fail.
    (serde_json::to_string_pretty(figures).unwrap_or_default() + "\n").into_bytes()
}

/// Returns CSV: a header with the keys of the JSON, and a line for each second. The field of an
/// unknown figure is empty.
fn csv_text(seconds: &[SecondFigures]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for second in seconds {
        // Writing numbers to memory does not fail.
        let _ = writer.serialize(second);
    }
    writer.into_inner().unwrap_or_default()
}

/// Turns an error of clap into one line. If the user asked for the help or the version, prints that
/// text and ends the process.
fn wrong_use(error: clap::Error) -> Failure {
    if !error.use_stderr() {
        error.exit();
    }
    let page = error.render().to_string();
    let lines = page
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let line =
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ").replace(" tip: ", "; tip: ");
    Failure::usage(format_args!("{}; see --help", line.trim_start_matches("error: ")))
}

#[cfg(test)]
#[path = "../../packaging/pages.rs"]
mod pages;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{Arguments, pages};

    #[test]
    fn pages_for_the_package_are_written() {
        pages::write(Arguments::command());
    }
}
