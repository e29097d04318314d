//! Replays the kept inputs of fuzz targets without a fuzzer, in the tests of each crate that has
//! bodies of targets.

use std::fs;
use std::path::{Path, PathBuf};

/// A target's name and its body.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// Runs the body of each target on every input that is kept for it. `targets` has all targets of the
/// crate that have a shim in `fuzz_targets`, in the order of their names.
pub(crate) fn run_kept_inputs(crate_name: &str, targets: &[Target]) {
    let call = format!(" {crate_name}::fuzzing::");
    let mut shims = files(Path::new("fuzz_targets"));
    shims.retain(|shim| fs::read_to_string(shim).expect("a readable shim").contains(&call));
    let shims: Vec<_> = shims.iter().map(|shim| shim.file_stem().expect("a name")).collect();
    assert_eq!(shims, targets.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (name, body) in targets {
        let inputs = files(&Path::new("corpus").join(name));
        assert!(!inputs.is_empty(), "no input is kept for {name}");
        for input in inputs {
            // Shown if the body panics.
            eprintln!("{}", input.display());
            body(&fs::read(&input).expect("a readable input"));
        }
    }
}

/// Returns the files of a directory below `fuzz`, sorted.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut roots = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|root| root.join("fuzz"));
    let fuzz = roots.find(|fuzz| fuzz.join("corpus").is_dir()).expect("the repository's folder fuzz");
    let directory = fuzz.join(directory);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a directory entry").path()).collect();
    files.sort();
    files
}
