//! Fuzz targets of the client, with the test that replays their corpus.
//!
//! The body of a target is in a file `fuzzing.rs` next to the code that the target tests.
//! `fuzz/fuzz_targets` at the root of the repository has a shim for each target.

pub use crate::protocol::fuzzing::{info_json, reply_frames};

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &[replay::Target] = &[("info_json", info_json), ("reply_frames", reply_frames)];

    #[test]
    fn every_kept_input_passes() {
        replay::run_kept_inputs(TARGETS);
    }

    #[test]
    fn every_target_has_its_shim() {
        replay::assert_shims(TARGETS, "snowbank_client");
    }
}
