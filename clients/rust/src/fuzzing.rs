//! Fuzz targets of the client, with the test that replays their corpus.
//!
//! Each body is in a file `fuzzing.rs` next to the code that it tests. `fuzz/fuzz_targets` at the
//! root of the repository has a shim for each.

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
