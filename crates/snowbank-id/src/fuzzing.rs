//! Fuzz targets of layouts and formats, and the test that replays their corpus.
//!
//! The body of a target is in a file `fuzzing.rs` next to the code that the target tests.
//! `fuzz/fuzz_targets` at the root of the repository has a shim for each target.

pub use crate::format::fuzzing::format_text;
pub use crate::layout::fuzzing::layout_text;

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
#[allow(clippy::disallowed_methods, reason = "the test reads the kept inputs from files")]
mod replay;

#[test]
fn every_kept_input_passes() {
    replay::run_kept_inputs("snowbank_id", &[("format_text", format_text), ("layout_text", layout_text)]);
}
