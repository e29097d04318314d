//! A PostgreSQL for one test, on a Unix socket in a temporary directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use super::{directory, poll, skip};

/// A running server. Dropping this value stops the server.
pub struct Postgres {
    server: Child,
    directory: TempDir,
}

impl Postgres {
    /// Starts a server with an empty database. Calls [`skip`] if PostgreSQL is not installed.
    pub fn start() -> Option<Postgres> {
        let Some(programs) = programs() else {
            skip("PostgreSQL is missing: install the package postgresql-15 (tests/long does it)");
            return None;
        };
        let directory = directory();
        let data = directory.path().join("data");
        if geteuid().is_root() {
            run(Command::new("chown").arg("postgres").arg(directory.path()));
        }
        let options = ["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8", "--pgdata"];
        run(as_postgres(&programs.join("initdb")).args(options).arg(&data));
        let server = as_postgres(&programs.join("postgres"))
            .args(["-F", "-c", "listen_addresses=", "-D"])
            .arg(&data)
            .arg("-k")
            .arg(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let postgres = Postgres { server, directory };
        poll("a PostgreSQL that answers", || {
            let answer = postgres.psql().args(["-c", "SELECT 1"]).output();
            answer.is_ok_and(|answer| answer.status.success()).then_some(())
        });
        Some(postgres)
    }

    /// Returns the command `psql`, connected to the server. It prints rows as `a|b|c`.
    fn psql(&self) -> Command {
        let mut psql = Command::new("psql");
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
            "-d",
            "postgres",
            "-h",
        ]);
        psql.arg(self.directory.path());
        psql
    }

    /// Runs a script and returns the rows that it prints.
    #[track_caller]
    pub fn rows(&self, script: &str) -> Vec<String> {
        let path = self.directory.path().join("script.sql");
        std::fs::write(&path, script).expect("a file");
        lines(self.psql().arg("-f").arg(&path))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT stops the server at once. It may lose data, but no test reads the data later.
        let _ = kill_process(Pid::from_child(&self.server), Signal::QUIT);
        let _ = self.server.wait();
    }
}

/// Runs a program that must succeed. Returns the lines of its output.
#[track_caller]
pub fn lines(command: &mut Command) -> Vec<String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

fn run(command: &mut Command) {
    lines(command);
}

/// Returns the directory of the server's programs, which Debian keeps out of the path.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let programs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    programs.filter(|programs| programs.join("initdb").is_file()).max()
}

/// Returns a command that runs a program as a user other than root, because PostgreSQL refuses
/// root.
fn as_postgres(program: &Path) -> Command {
    if !geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program).current_dir("/");
    command
}
