//! `snowbank-loadtest plan`.

use std::path::PathBuf;

use super::{json_text, open_files, write_files};
use crate::failure::Failure;
use crate::plan::{Wanted, plan};
use crate::report::json::read;
use crate::report::terminal::Terminal;
use crate::sweep::{KIND, Sweep};

/// Compute from a sweep how many daemons, cores and worker IDs a rate needs, and which limit binds
///
/// Writes a page of Markdown for a ticket. It measures nothing: the page shows each figure with its
/// formula, its assumptions, and the command that checks it.
///
/// Exit codes: 0 a plan; 1 the rate is impossible; 2 wrong use, or the sweep cannot support a plan.
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
    let sweep = read::<Sweep>(&arguments.from, KIND)?;
    let plan = plan(&sweep, &arguments.wanted)?;
    open_files(&[&arguments.json])?;
    Terminal::new(arguments.json.as_deref()).print(|out| out.write_all(plan.page.as_bytes()));
    write_files(0, &[(&arguments.json, &|| json_text(&plan))])
}
