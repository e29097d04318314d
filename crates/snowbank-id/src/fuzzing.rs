//! Fuzz targets of layouts and formats, and the test that replays their corpus.
//!
//! Each body is in a file `fuzzing.rs` next to the code that it tests. `fuzz/fuzz_targets` at the
//! root of the repository has a shim for each.

pub use crate::format::fuzzing::format_text;
pub use crate::layout::fuzzing::layout_text;

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &[replay::Target] = &[("format_text", format_text), ("layout_text", layout_text)];

    #[test]
    fn every_kept_input_passes() {
        replay::run_kept_inputs(TARGETS);
    }

    #[test]
    fn every_target_has_its_shim() {
        replay::assert_shims(TARGETS, "snowbank_id");
    }
}
