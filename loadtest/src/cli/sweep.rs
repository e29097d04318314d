//! `snowbank-loadtest sweep`.

use std::path::PathBuf;

use super::load::{Latencies, Load};
use super::{json_text, open_files, write_files};
use crate::failure::Failure;
use crate::judge::Objectives;
use crate::origin;
use crate::report::terminal::Terminal;
use crate::scenario::Drive;
use crate::sweep::{SearchOptions, Settings, page, sweep, table};
use crate::value::Rate;

/// Find the saturation point: the highest rate at which the objective holds
///
/// Raises the rate until the objective is missed, closes in on the highest rate at which it holds,
/// and confirms that rate by a second run, twice as long. Checks every ID: none may come twice in
/// the whole sweep.
///
/// Exit codes: 0 the saturation point is confirmed; 1 the objective does not hold even at the first
/// step, or the target broke a promise; 2 wrong use, no target that speaks the protocol,
/// interrupted, or no verdict at the first step.
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
    write_files(
        swept.exit_code(),
        &[(&arguments.json, &|| json_text(&swept)), (&arguments.html, &|| page::render(&swept).into_bytes())],
    )
}

impl Arguments {
    fn settings(&self) -> Result<Settings, Failure> {
        if self.load.address.len() > 1 {
            return Err(Failure::usage(
                "found several --address, allowed: one, because a sweep finds the saturation point of one daemon",
            ));
        }
        // Each step replaces this rate.
        let drive = Drive::Open { rate: Rate::STANDARD, arrivals: self.load.arrivals() };
        Ok(Settings {
            origin: origin::this_process(),
            scenario: self.load.scenario(drive, self.search.length.0)?,
            objectives: Objectives { rate: None, latencies: self.latencies.open_loop(), errors: 0.0 },
            search: self.search.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::Command;
    use crate::failure::Failure;
    use crate::value::MAX_RATE_PER_S;

    /// Returns the first and the highest rate of a search, or the reason why the options are
    /// refused.
    fn bounds(options: &[&str], per_second: Option<u64>) -> Result<(f64, f64), Failure> {
        let line = ["snowbank-loadtest", "sweep"].iter().chain(options);
        let arguments = crate::cli::Arguments::try_parse_from(line).expect("sound options");
        let Some(Command::Sweep(sweep)) = arguments.command else { panic!("a sweep was asked for") };
        let bounds = sweep.settings().expect("sound settings").bounds(per_second);
        bounds.map(|bounds| (bounds.start, bounds.limit))
    }

    #[test]
    fn the_search_begins_low_and_ends_at_the_full_rate() {
        assert_eq!(bounds(&[], Some(4_096_000)), Ok((2_000.0, 4_096_000.0)));
        assert_eq!(bounds(&["--batch", "1000"], Some(4_096_000)), Ok((512_000.0, 4_096_000.0)));
        assert_eq!(bounds(&[], Some(10_000)), Ok((1_250.0, 10_000.0)));
        assert_eq!(bounds(&[], None), Ok((2_000.0, MAX_RATE_PER_S)));
        assert_eq!(bounds(&["--limit", "1000"], None), Ok((1_000.0, 1_000.0)));
        assert_eq!(bounds(&["--limit", "1M", "--start", "500"], Some(10_000)), Ok((500.0, 10_000.0)));
        let above = bounds(&["--start", "20000", "--limit", "1M"], Some(10_000)).expect_err("out of range");
        let reason = above.reason;
        assert!(reason.starts_with("found --start 20000/s, allowed: at most 10000/s"), "{reason}");
        let above = bounds(&["--start", "2000", "--limit", "1000"], Some(10_000)).expect_err("out of range");
        let reason = above.reason;
        assert!(reason.starts_with("found --start 2000/s, allowed: at most 1000/s"), "{reason}");
    }
}
