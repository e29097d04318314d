//! README's snippets for applications compile unchanged in a fresh crate.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns the first code block in that language after the heading.
fn block<'a>(page: &'a str, heading: &str, language: &str) -> &'a str {
    let (_, section) = page.split_once(heading).expect("the heading");
    let (_, block) = section.split_once(&format!("```{language}\n")).expect("a code block");
    block.split_once("```").expect("the end of the block").0
}

/// Writes a file unless it already has that content, so that a second run builds nothing.
fn write(path: &Path, content: &str) {
    if fs::read_to_string(path).ok().as_deref() != Some(content) {
        fs::write(path, content).expect("a writable file");
    }
}

#[test]
fn the_snippets_compile_in_a_fresh_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).expect("README.md");
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    let fresh = place.join("application");
    fs::create_dir_all(fresh.join("src")).expect("a folder");
    // The checkout beside the crate, as README says.
    let _ = fs::remove_file(place.join("snowbank"));
    std::os::unix::fs::symlink(root, place.join("snowbank")).expect("a symbolic link");

    let package = "[package]\nname = \"application\"\nedition = \"2024\"\n\n[workspace]\n\n";
    let dependencies = block(&readme, "## From your application", "toml");
    write(&fresh.join("Cargo.toml"), &format!("{package}{dependencies}"));
    write(&fresh.join("src/main.rs"), block(&readme, "## From your application", "rust"));
    // The tested versions, without asking a registry.
    fs::copy(root.join("Cargo.lock"), fresh.join("Cargo.lock")).expect("a copy");

    let output = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "--offline"])
        .env("CARGO_TARGET_DIR", place.join("target"))
        .current_dir(&fresh)
        .output()
        .expect("cargo runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && messages.is_empty(), "{messages}");
}
