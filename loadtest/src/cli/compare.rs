//! `compare`: two runs side by side.

use std::path::{Path, PathBuf};

use super::{Failure, json_text, print_beside, write_file};
use crate::compare::{self, table::Side};
use crate::report::json;
use crate::report::read::read;

/// Put two runs side by side: which figures differ by more than runs differ anyway
///
/// With one run on each side the spread is taken from the seconds within them; with several, from the runs.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Files that --json wrote: A and B; if --with is given, all runs of A
    #[arg(value_name = "RUN.json", required = true)]
    files: Vec<PathBuf>,
    /// All runs of B
    #[arg(long, value_name = "RUN.json", num_args = 1..)]
    with: Vec<PathBuf>,
    /// Write the comparison to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// End with exit code 1 if B is worse in any figure of rate, errors or response time, and with 2 if the runs
    /// cannot tell
    #[arg(long)]
    fail_if_worse: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let (a, b) = arguments.sides()?;
    let comparison = compare::compare(&a.runs, &b.runs).map_err(Failure::usage)?;
    write_file(arguments.json.as_ref(), || json_text(&comparison))?;
    print_beside(arguments.json.as_ref(), |out| compare::table::write(&comparison, &a, &b, out));
    Ok(if arguments.fail_if_worse { comparison.verdict.exit_code() } else { 0 })
}

impl Arguments {
    fn sides(&self) -> Result<(Side, Side), Failure> {
        match (&self.files[..], &self.with[..]) {
            ([a, b], []) => Ok((side(std::slice::from_ref(a))?, side(std::slice::from_ref(b))?)),
            (_, []) => Err(Failure::usage(format!(
                "compare takes two files, or several and --with several others; given: {}",
                self.files.len()
            ))),
            (a, b) => Ok((side(a)?, side(b)?)),
        }
    }
}

fn side(files: &[PathBuf]) -> Result<Side, Failure> {
    let runs = files.iter().map(|file| read(file, json::RUN).map_err(Failure::usage));
    let name = |file: &PathBuf| Path::new(file).display().to_string();
    Ok(Side { runs: runs.collect::<Result<_, _>>()?, names: files.iter().map(name).collect() })
}
