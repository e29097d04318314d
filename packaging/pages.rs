//! Writes man pages and shell completions from the `clap::Command` that reads a command line.
//! `packaging/build` runs this code as a test of both programs, because only tests have the crates
//! that this code needs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;

use clap_complete::Shell;

/// Writes the pages of a command line below the directory `$SNOWBANK_PAGES`, or below a temporary
/// one.
pub(crate) fn write(command: clap::Command) {
    let temporary = tempfile::tempdir().unwrap();
    let directory = std::env::var_os("SNOWBANK_PAGES").unwrap_or_else(|| OsString::from(temporary.path()));
    let man = PathBuf::from(&directory).join("man");
    let completions = PathBuf::from(&directory).join("completions");
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
    // The pages get a directory of their own first, because `man` may already have the other
    // program's pages.
    let own = tempfile::tempdir().unwrap();
    clap_mangen::generate_to(command, own.path()).unwrap();
    for page in fs::read_dir(own.path()).unwrap() {
        let page = page.unwrap();
        let mut text = with_exit_status(&fs::read_to_string(page.path()).unwrap());
        text.push_str(match page.file_name().to_str() {
            Some("snowbank.1") => ENDS,
            _ => ".SH SEE ALSO\n.BR snowbank (1),\n.BR snowbank.toml (5)\n",
        });
        fs::write(man.join(page.file_name()), text).unwrap();
    }
    if name == "snowbank" {
        fs::write(man.join("snowbank.toml.5"), reference()).unwrap();
    }
    let page = fs::read_to_string(man.join(format!("{name}.1"))).unwrap();
    assert!(page.contains("SUBCOMMANDS") && page.matches("SEE ALSO").count() == 1, "{page}");
}

/// The last sections of snowbank(1).
const ENDS: &str = "\
.SH FILES
.TP
/etc/snowbank/snowbank.toml
The configuration of the service: snowbank.toml(5).
.TP
/var/lib/snowbank
Its state: the ceilings below which IDs may have been handed out. Never put an older copy in its place.
.TP
/run/lock/snowbank
The locks of worker IDs, which all daemons of the machine share.
.SH EXAMPLES
.nf
snowbank serve                         a daemon for this machine
snowbank next -n 3                     three IDs from it
snowbank decode 2124513283539993548    what an ID is made of
snowbank status --watch                whether it serves, and how fast
snowbank check /etc/snowbank/snowbank.toml
.fi
.SH SEE ALSO
.BR snowbank.toml (5),
.BR snowbank-loadtest (1)
";

/// Returns a page whose exit codes are in a section of their own.
fn with_exit_status(page: &str) -> String {
    let page = page.replace(".SH EXTRA\nExit codes:\n", ".SH EXIT STATUS\n");
    let page = page.replace(".SH EXTRA\n", ".SH NOTES\n").replace("Exit codes:\n", ".SH EXIT STATUS\n");
    let mut text = String::new();
    for line in page.lines() {
        // Only exit codes are indented.
        match line.strip_prefix("  ").and_then(|item| item.split_once("  ")) {
            Some((code, meaning)) => text += &format!(".TP\n{code}\n{meaning}\n"),
            None => text += &format!("{line}\n"),
        }
    }
    text
}

/// Returns snowbank.toml(5): the reference of all settings.
fn reference() -> String {
    let mut page = String::from(
        ".TH snowbank.toml 5\n.SH NAME\nsnowbank.toml \\- the configuration of snowbank(1)\n.SH DESCRIPTION\n.nf\n",
    );
    for line in include_str!("../docs/snowbank.toml").lines() {
        // A line that begins with a dot or a quote would be a request of troff.
        page += &format!("\\&{}\n", line.replace('\\', "\\e").replace('-', "\\-"));
    }
    page + ".fi\n.SH SEE ALSO\n.BR snowbank (1)\n"
}
