//! Man pages and shell completions, written from the table that reads a command line. `packaging/build` runs this as a
//! test of both programs, because only tests have what it needs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;

use clap_complete::Shell;

/// Writes the pages of a command line below the directory `$SNOWBANK_PAGES`, else to a temporary one.
pub(crate) fn write(command: clap::Command) {
    let temporary = tempfile::tempdir().unwrap();
    let directory = std::env::var_os("SNOWBANK_PAGES").unwrap_or_else(|| OsString::from(temporary.path()));
    let (man, completions) =
        (PathBuf::from(&directory).join("man"), PathBuf::from(&directory).join("completions"));
    fs::create_dir_all(&man).unwrap();
    fs::create_dir_all(&completions).unwrap();
    let name = command.get_name().to_owned();
    for (shell, file) in [
        (Shell::Bash, format!("{name}.bash")),
        (Shell::Zsh, format!("_{name}")),
        (Shell::Fish, format!("{name}.fish")),
    ] {
        let mut script = File::create(completions.join(file)).unwrap();
        clap_complete::generate(shell, &mut command.clone(), &name, &mut script);
    }
    clap_mangen::generate_to(command, &man).unwrap();
    let page = fs::read_to_string(man.join(format!("{name}.1"))).unwrap();
    assert!(page.contains("SUBCOMMANDS"), "{page}");
}
