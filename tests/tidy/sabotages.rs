//! Each sabotage still applies, and the test that catches it exists.

use std::path::Path;

#[allow(dead_code, reason = "the program that tries the patches uses the rest")]
#[path = "../sabotage/patch.rs"]
mod patch;

/// The most patches: each binds lines of the sources, and whoever changes those must change it too.
const PATCHES_MAX: usize = 120;

/// The start of the names of a library's unit tests, and its folder. The daemon's is the last: it has none.
const LIBRARIES: [(&str, &str); 6] = [
    ("snowbank_client::", "clients/rust/src"),
    ("snowbank_id::", "crates/snowbank-id/src"),
    ("snowbank_core::", "crates/snowbank-core/src"),
    ("snowbank_state::", "crates/snowbank-state/src"),
    ("snowbank_fleet::", "crates/snowbank-fleet/src"),
    ("", "src"),
];

#[test]
fn each_sabotage_applies_and_its_test_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let patches = patch::read_all(root).expect("patches that can be read");
    for patch in &patches {
        patch.apply(root).unwrap_or_else(|fault| panic!("{fault}"));
        assert!(
            exists(&patch.caught_by.to_string(), root),
            "{}: there is no test {}",
            patch.name,
            patch.caught_by
        );
    }
    assert!(patches.len() <= PATCHES_MAX, "found {} patches; remove some", patches.len());
}

/// Returns whether the sources have a test of that name, judged by its file alone.
fn exists(name: &str, root: &Path) -> bool {
    let library = LIBRARIES.iter().find(|(prefix, _)| name.starts_with(prefix));
    let (prefix, sources) = library.expect("every name starts with the empty prefix");
    let in_crate = &name[prefix.len()..];
    let (modules, function) = in_crate.rsplit_once("::").unwrap_or(("", in_crate));
    let module = modules.replace("::", "/");
    let parent = module.rsplit_once('/').map_or("", |(parent, _)| parent);
    let files = [
        format!("{sources}/{module}.rs"),
        format!("{sources}/{module}/mod.rs"),
        format!("{sources}/{parent}.rs"),
        format!("{sources}/{parent}/mod.rs"),
        // A module of an integration test: `tests/daemon::hostile::…`.
        format!("{module}.rs"),
    ];
    let definition = format!("fn {function}(");
    let has_it =
        |file: &String| std::fs::read_to_string(root.join(file)).is_ok_and(|text| text.contains(&definition));
    files.iter().any(has_it)
}
