//! `page`: the HTML page of a run made before.

use std::path::PathBuf;

use super::{Failure, write_file};
use crate::report::html;
use crate::report::json::{self, Run};
use crate::report::read::read;

/// Write the page that --html writes, from the figures that --json wrote
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A file that --json wrote
    #[arg(value_name = "RUN.json")]
    figures: PathBuf,
    /// Where the page goes
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let figures: Run = read(&arguments.figures, json::RUN).map_err(Failure::usage)?;
    write_file(&arguments.output, html::run::render(&figures).as_bytes())?;
    Ok(0)
}
