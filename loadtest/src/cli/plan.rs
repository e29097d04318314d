//! `snowbank-loadtest plan`.
use super::Failure;
/// Plan
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {}
pub(super) fn run(_: &Arguments) -> Result<u8, Failure> {
    Ok(2)
}
