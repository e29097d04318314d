//! `snowbank-loadtest sweep`.

use std::path::PathBuf;

use super::load::{Latencies, Load};
use super::{Failure, json_text, open_files, with_files, write_file};
use crate::judge::Objectives;
use crate::origin;
use crate::report::html;
use crate::report::terminal::Terminal;
use crate::scenario::Drive;
use crate::sweep::{SearchOptions, Settings, sweep, table};
use crate::value::Rate;

/// Find the saturation point: the highest rate at which the objective holds
///
/// Raises the rate until the objective is missed, closes in on the highest rate at which it holds,
/// and confirms that by a second run, twice as long. Every ID is checked; none may come twice in
/// any two steps.
///
/// Exit codes: 0 a saturation point was found and confirmed; 1 the objective does not hold even at
/// the first step, or the target broke a promise; 2 wrong use, no target that speaks the protocol,
/// interrupted, or the generator was the bottleneck already at the first step.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    search: SearchOptions,
    #[command(flatten)]
    latencies: Latencies,
    /// Write all figures to a file, for plan and other programs
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write all figures with charts as one page that a browser opens
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let settings = arguments.settings()?;
    open_files(&[&arguments.json, &arguments.html])?;
    let terminal = Terminal::new(arguments.json.as_deref());
    terminal.begin_runs().map_err(Failure::usage)?;
    let swept = sweep(settings, &terminal);
    terminal.clear();
    let swept = swept?;
    terminal.print(|out| table::end(&swept, out));
    let written = write_file(arguments.json.as_ref(), || json_text(&swept))
        .and_then(|()| write_file(arguments.html.as_ref(), || html::sweep::render(&swept).into_bytes()));
    with_files(swept.exit_code(), written)
}

impl Arguments {
    fn settings(&self) -> Result<Settings, Failure> {
        if self.load.address.len() > 1 {
            return Err(Failure::usage(
                "a sweep has one --address: the saturation point is that of one daemon",
            ));
        }
        // The rate of each step takes its place.
        let drive = Drive::Open { rate: Rate::STANDARD, arrivals: self.load.arrivals() };
        Ok(Settings {
            origin: origin::of_this_process(),
            scenario: self.load.scenario(drive, self.search.length.0)?,
            objectives: Objectives { rate: None, latencies: self.latencies.of_open_loop(), errors: 0.0 },
            search: self.search.clone(),
        })
    }
}

#[cfg(test)]
pub(crate) fn settings(options: &[&str]) -> Settings {
    use clap::Parser;
    let line = ["snowbank-loadtest", "sweep"].iter().chain(options);
    match super::Arguments::try_parse_from(line).expect("sound options").command {
        Some(super::Command::Sweep(arguments)) => arguments.settings().expect("sound settings"),
        other => panic!("a sweep was asked for, not {other:?}"),
    }
}
