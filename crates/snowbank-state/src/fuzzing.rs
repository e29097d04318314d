//! Fuzz targets of the state, with the test that replays their corpus.
//!
//! The body of each target is in a file `fuzzing.rs` next to the code that the target tests.
//! `fuzz/fuzz_targets` at the root of the repository has a shim for each target.

pub use crate::store::fuzzing::{state_file, state_import};

/// The bytes of a fuzzer, read as choices. After the last byte, every choice is false or 0, so
/// short inputs work too.
pub(crate) struct Choices<'a>(pub(crate) &'a [u8]);

impl Choices<'_> {
    pub(crate) fn bool(&mut self) -> bool {
        let [byte] = self.array();
        byte & 1 == 1
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let (taken, rest) = self.0.split_at(self.0.len().min(N));
        array[..taken.len()].copy_from_slice(taken);
        self.0 = rest;
        array
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn every_kept_input_passes() {
    replay::run_kept_inputs("snowbank_state", &[("state_file", state_file), ("state_import", state_import)]);
}
