//! Man pages and shell completions, written from the table that reads a command line. The tests of both programs hold
//! packaging/ to them: a change of a command line that does not write them again fails.

use std::collections::BTreeMap;
use std::path::Path;

use clap_complete::Shell;

/// Compares `packaging` with what the command line says now; writes it first if `SNOWBANK_WRITE_REFERENCE` is set.
pub(crate) fn check(packaging: &Path, command: clap::Command) {
    for (name, page) in pages(command) {
        let path = packaging.join(&name);
        if std::env::var_os("SNOWBANK_WRITE_REFERENCE").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == page,
            "packaging/{name} is old; write it again: SNOWBANK_WRITE_REFERENCE=1 cargo test --workspace pages"
        );
    }
}

/// File names below packaging/, and what is in them.
fn pages(command: clap::Command) -> BTreeMap<String, String> {
    let name = command.get_name().to_owned();
    let mut pages = BTreeMap::new();
    for (shell, file) in [
        (Shell::Bash, format!("completions/{name}.bash")),
        (Shell::Zsh, format!("completions/_{name}")),
        (Shell::Fish, format!("completions/{name}.fish")),
    ] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), &name, &mut script);
        pages.insert(file, String::from_utf8(script).unwrap());
    }
    let directory = tempfile::tempdir().unwrap();
    clap_mangen::generate_to(command, directory.path()).unwrap();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        let page = std::fs::read_to_string(entry.path()).unwrap();
        pages.insert(format!("man/{}", entry.file_name().to_string_lossy()), page);
    }
    pages
}
