//! `snowbank-loadtest plan`.

use std::path::PathBuf;
use std::time::SystemTime;

use super::{Failure, json_text, print_beside, write_file};
use crate::plan::swept::Swept;
use crate::plan::{Wanted, page, plan};
use crate::report::read::read;
use crate::sweep::file::KIND;

/// From a sweep and a wanted rate: how many daemons, cores and worker IDs, and which limit binds
///
/// Writes a page of Markdown to paste into a ticket. Nothing is measured: the page shows its formulas with
/// the figures put in, its assumptions, and the command that checks it.
///
/// Exit codes: 0 a plan; 1 the rate is impossible; 2 wrong use, or a sweep that cannot support a plan.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A file that `sweep --json FILE` wrote
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    #[command(flatten)]
    wanted: Wanted,
    /// Write the plan to a file, for programs
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let sweep = read::<Swept>(&arguments.from, KIND).map_err(Failure::usage)?;
    let plan = plan(&sweep, &arguments.wanted, SystemTime::now())
        .map_err(|error| Failure { code: error.exit_code(), reason: error.to_string() })?;
    write_file(arguments.json.as_ref(), || json_text(&plan))?;
    print_beside(arguments.json.as_ref(), |out| out.write_all(page::markdown(&plan).as_bytes()));
    Ok(0)
}
