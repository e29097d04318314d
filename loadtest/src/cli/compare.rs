//! `snowbank-loadtest compare`.

use std::path::PathBuf;

use super::{json_text, open_files, write_files};
use crate::compare;
use crate::failure::Failure;
use crate::report::json::{RUN, Run, read};
use crate::report::terminal::Terminal;

/// Compare runs of A and B: which figures differ by more than equal runs do
///
/// Give several runs of each side, made in turns: they show how much equal runs differ.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// All runs of A: files that --json wrote
    #[arg(value_name = "RUN.json", required = true)]
    files: Vec<PathBuf>,
    /// All runs of B
    #[arg(long, value_name = "RUN.json", num_args = 1.., required = true)]
    with: Vec<PathBuf>,
    /// Write the comparison to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Exit with 1 if B is worse in any figure, and with 2 if the runs give no answer
    #[arg(long)]
    fail_if_worse: bool,
}

/// Reads the files of one side.
fn read_all(files: &[PathBuf]) -> Result<Vec<Run>, Failure> {
    files.iter().map(|file| read(file, RUN)).collect()
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let a = read_all(&arguments.files)?;
    let b = read_all(&arguments.with)?;
    open_files(&[&arguments.json])?;
    let comparison = compare::compare(&a, &b)?;
    Terminal::new(arguments.json.as_deref()).print(|out| compare::write(&comparison, out));
    let code = if arguments.fail_if_worse { comparison.verdict.exit_code() } else { 0 };
    write_files(code, &[(&arguments.json, &|| json_text(&comparison))])
}
