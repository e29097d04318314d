//! Compiles the Rust code of README.md and of the Rust client's README.md, unchanged, in a new
//! crate.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns the first code block that begins with this line.
fn block<'a>(page: &'a str, first_line: &str) -> &'a str {
    let (_, block) = page.split_once(&format!("```{first_line}\n")).expect("a code block");
    block.split_once("```").expect("the end of the block").0
}

/// Writes a file, unless it already has that content, so that a second run builds nothing.
fn write(path: &Path, content: &str) {
    if fs::read_to_string(path).ok().as_deref() != Some(content) {
        fs::write(path, content).expect("a writable file");
    }
}

#[test]
fn the_snippets_compile_in_a_fresh_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).expect("README.md");
    let client_page = fs::read_to_string(root.join("clients/rust/README.md")).expect("its README.md");
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    let fresh = place.join("application");
    fs::create_dir_all(fresh.join("src/bin")).expect("a folder");
    // Puts the sources beside the crate, as README.md says.
    let _ = fs::remove_file(place.join("snowbank"));
    std::os::unix::fs::symlink(root, place.join("snowbank")).expect("a symbolic link");

    let package = "[package]\nname = \"application\"\nedition = \"2024\"\n\n[workspace]\n\n";
    let dependencies = block(&client_page, "toml");
    write(&fresh.join("Cargo.toml"), &format!("{package}{dependencies}"));
    write(&fresh.join("src/main.rs"), block(&client_page, "rust,no_run"));
    let lines = block(&readme, "rust");
    let main = format!("async fn main() -> Result<(), snowbank_client::Error> {{\n{lines}Ok(())\n}}\n");
    write(&fresh.join("src/bin/lines.rs"), &format!("#[tokio::main(flavor = \"current_thread\")]\n{main}"));
    // With this lock file, cargo takes the versions of this repository. It asks the registry for what
    // the pages name beside them, unless the machine has that already.
    fs::copy(root.join("Cargo.lock"), fresh.join("Cargo.lock")).expect("a copy");

    let check = |options: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["check", "--quiet"]).args(options).env("CARGO_TARGET_DIR", place.join("target"));
        cargo.current_dir(&fresh).output().expect("cargo runs")
    };
    let mut output = check(&["--offline"]);
    if !output.status.success() {
        output = check(&[]);
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && messages.is_empty(), "{messages}");
}
