//! `snowbank next`.

use std::io::Write;

use super::Outcome;

/// Options of `snowbank next`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {}

pub(super) fn run(_arguments: &Arguments, _out: &mut impl Write) -> Outcome {
    Ok(())
}
