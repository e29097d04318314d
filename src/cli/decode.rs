//! `snowbank decode`.

use std::io::Write;

use super::Outcome;

/// Options of `snowbank decode`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {}

pub(super) fn run(_arguments: &Arguments, _out: &mut impl Write) -> Outcome {
    Ok(())
}
