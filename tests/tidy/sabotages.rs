//! Each sabotage still applies, and the test that catches it exists.

use std::path::Path;

use patch::TestName;

#[allow(dead_code, reason = "the program that tries the patches uses the rest")]
#[path = "../sabotage/patch.rs"]
mod patch;

/// The most patches. There is a limit, because whoever changes lines that a patch quotes must
/// change the patch, too.
const PATCHES_MAX: usize = 120;

#[test]
fn each_sabotage_applies_and_its_test_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let patches = patch::read_all(root).expect("patches that can be read");
    for patch in &patches {
        patch.apply(root).unwrap_or_else(|fault| panic!("{fault}"));
        assert!(exists(&patch.caught_by, root), "{}: no test is named {}", patch.name, patch.caught_by);
    }
    assert!(patches.len() <= PATCHES_MAX, "{} patches; at most {PATCHES_MAX} are allowed", patches.len());
}

/// Returns whether the file in which the test must be has a function of the test's name.
fn exists(test: &TestName, root: &Path) -> bool {
    let sources = test.library().sources;
    let in_crate = test.in_crate();
    let (modules, function) = in_crate.rsplit_once("::").unwrap_or(("", in_crate));
    let module = modules.replace("::", "/");
    let parent = module.rsplit_once('/').map_or("", |(parent, _)| parent);
    let files = [
        format!("{sources}/{module}.rs"),
        format!("{sources}/{parent}.rs"),
        // A module of an integration test: `tests/daemon::hostile::…`.
        format!("{module}.rs"),
    ];
    let definition = format!("fn {function}(");
    let mut texts = files.iter().filter_map(|file| std::fs::read_to_string(root.join(file)).ok());
    texts.any(|text| text.contains(&definition))
}
