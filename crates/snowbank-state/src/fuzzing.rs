//! Fuzz targets of the state, with the test that replays their corpus.
//!
//! Each body is in a file `fuzzing.rs` next to the code that it tests. `fuzz/fuzz_targets` at the root of
//! the repository has a shim for each.

#[path = "../../../fuzz/choices.rs"]
#[allow(dead_code, reason = "each crate uses a part")]
mod choices;

pub(crate) use self::choices::Choices;
pub use crate::store::fuzzing::{state_file, state_import};

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    type Body = fn(&[u8]);

    const TARGETS: &[(&str, Body)] = &[("state_file", state_file), ("state_import", state_import)];

    fn fuzz() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"))
    }

    #[test]
    fn every_kept_input_passes() {
        for (name, body) in TARGETS {
            let inputs = fs::read_dir(fuzz().join("corpus").join(name)).expect("a corpus");
            let mut count = 0;
            for input in inputs {
                let path = input.expect("a directory entry").path();
                // Shown if the body panics.
                eprintln!("{}", path.display());
                body(&fs::read(&path).expect("a readable input"));
                count += 1;
            }
            assert!(count > 0, "no input is kept for {name}");
        }
    }

    #[test]
    fn every_target_has_its_shim() {
        let mut shims: Vec<String> = Vec::new();
        for shim in fs::read_dir(fuzz().join("fuzz_targets")).expect("the shims") {
            let path = shim.expect("a directory entry").path();
            if fs::read_to_string(&path).expect("a readable shim").contains("snowbank_state::fuzzing::") {
                shims.push(path.file_stem().expect("a name").to_string_lossy().into_owned());
            }
        }
        shims.sort();
        let targets: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        assert_eq!(shims, targets);
    }
}
