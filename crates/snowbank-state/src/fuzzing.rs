//! Fuzz targets of the state, with the test that replays their corpus.
//!
//! Each body is in a file `fuzzing.rs` next to the code that it tests. `fuzz/fuzz_targets` at the
//! root of the repository has a shim for each.

mod choices;

pub(crate) use self::choices::Choices;
pub use crate::store::fuzzing::{state_file, state_import};

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &[replay::Target] = &[("state_file", state_file), ("state_import", state_import)];

    #[test]
    fn every_kept_input_passes() {
        replay::run_kept_inputs(TARGETS);
    }

    #[test]
    fn every_target_has_its_shim() {
        replay::assert_shims(TARGETS, "snowbank_state");
    }
}
