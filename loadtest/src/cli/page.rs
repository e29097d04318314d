//! `page`: the HTML page of a run or a sweep made before.

use std::path::PathBuf;

use super::{Failure, write_file};
use crate::report::html;
use crate::report::json::{self, Run};
use crate::report::read::{kind, read};
use crate::sweep::file::{self, File};

/// Write the page that --html writes, from the figures that --json wrote
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A file that --json wrote
    #[arg(value_name = "FIGURES.json")]
    figures: PathBuf,
    /// Where the page goes
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let page = match kind(&arguments.figures, &[json::RUN, file::KIND]).map_err(Failure::usage)? {
        file::KIND => {
            let figures: File = read(&arguments.figures, file::KIND).map_err(Failure::usage)?;
            html::sweep::render(&figures)
        }
        _ => {
            let figures: Run = read(&arguments.figures, json::RUN).map_err(Failure::usage)?;
            html::run::render(&figures)
        }
    };
    write_file(&arguments.output, page.as_bytes())?;
    Ok(0)
}
