//! A daemon with its own configuration.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::Server;
use tempfile::TempDir;

/// A daemon that ends when this is dropped.
pub(crate) struct Served {
    server: Server,
    lines: Vec<String>,
    directory: TempDir,
}

fn snowbank() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_snowbank-loadtest"));
    Command::new(program.with_file_name("snowbank"))
}

/// A directory for a daemon: its configuration, state and locks.
pub(crate) fn directory(config: &str) -> TempDir {
    let directory = super::directory_in_memory();
    std::fs::write(directory.path().join("snowbank.toml"), config).expect("written");
    directory
}

/// Runs a command on the daemon's state, to its end.
pub(crate) fn prepare(directory: &TempDir, arguments: &[&str]) {
    let mut command = snowbank();
    command.args(arguments).arg("--state-dir").arg(directory.path().join("state"));
    command.arg("--lock-dir").arg(directory.path().join("locks"));
    let done = command.stdout(Stdio::null()).status().expect("it runs");
    assert!(done.success(), "{arguments:?}");
}

/// Starts the daemon and waits until it listens on this many addresses.
pub(crate) fn serve(directory: TempDir, listeners: usize) -> Served {
    let mut command = snowbank();
    command.arg("serve").arg("--config").arg(directory.path().join("snowbank.toml"));
    command.arg("--state-dir").arg(directory.path().join("state"));
    command.arg("--lock-dir").arg(directory.path().join("locks"));
    let mut server = Server(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts"));
    let stdout = BufReader::new(server.0.stdout.take().expect("piped"));
    let lines: Vec<String> = stdout.lines().map_while(Result::ok).take(listeners).collect();
    assert_eq!(lines.len(), listeners, "it listens");
    Served { server, lines, directory }
}

impl Served {
    /// Returns the number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.server.0.id()
    }

    /// Returns the address that follows this text.
    pub(crate) fn address(&self, words: &str) -> String {
        let found = self.lines.iter().find_map(|line| line.strip_prefix(words)?.strip_prefix(" on "));
        found.expect("a listener").to_owned()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().expect("UTF-8").to_owned()
    }
}
