//! The copy of the sources that is patched, built and tested.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::patch::{Patch, Suite, TestName};

/// The time limit of a test. On the unpatched sources each test takes less, even on a slow machine.
const TEST_LIMIT_S: &str = "120";
/// The exit codes of `timeout` after the time limit: `timeout` has ended the test by TERM, or by
/// KILL.
const TIMED_OUT: [Option<i32>; 2] = [Some(124), Some(137)];

/// The folders that are not copied: build output, history, and failures that proptest has saved.
const NOT_COPIED: [&str; 3] = ["target", ".git", "proptest-regressions"];

/// A copy of the sources. It has its own target directory, so dependencies are built only once.
pub(crate) struct Workshop {
    sources: PathBuf,
    copy: PathBuf,
    target: PathBuf,
}

pub(crate) enum Outcome {
    /// The test failed. The text is the message of its first panic.
    Red(String),
    Green,
    /// The sources do not compile. The text is the compiler's message.
    DoesNotCompile(String),
    /// The test reached the time limit.
    Endless,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Red(said) => write!(f, "red ({said})"),
            Outcome::Green => f.write_str("green"),
            Outcome::DoesNotCompile(said) => write!(f, "DOES NOT COMPILE\n{said}\n"),
            Outcome::Endless => write!(f, "DID NOT END within {TEST_LIMIT_S} s"),
        }
    }
}

impl Workshop {
    /// Copies the sources.
    pub(crate) fn open(sources: &Path) -> Result<Workshop, String> {
        let beside = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("sabotage");
        let workshop = Workshop {
            sources: sources.to_path_buf(),
            copy: beside.join("copy"),
            target: beside.join("target"),
        };
        workshop.restore()?;
        Ok(workshop)
    }

    /// Makes the copy equal to the sources.
    fn restore(&self) -> Result<(), String> {
        mirror(&self.sources, &self.copy).map_err(|error| format!("{}: {error}", self.copy.display()))
    }

    /// Applies one patch, runs its test, and reverts the patch.
    pub(crate) fn sabotage(&self, patch: &Patch) -> Result<Outcome, String> {
        for (path, text) in patch.apply(&self.sources)? {
            let written = fs::write(self.copy.join(&path), text);
            written.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let outcome = self.run(&patch.caught_by);
        self.restore()?;
        outcome
    }

    /// Builds and runs one test on the copy, patched or not.
    pub(crate) fn run(&self, test: &TestName) -> Result<Outcome, String> {
        match self.build(test)? {
            Ok(executable) => self.execute(&executable, test.in_executable()),
            Err(said) => Ok(Outcome::DoesNotCompile(said)),
        }
    }

    /// Builds the executable that holds a test. Returns the compiler's message if that fails.
    fn build(&self, test: &TestName) -> Result<Result<PathBuf, String>, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args([
            "test",
            "--no-run",
            "--locked",
            "--quiet",
            "-j2",
            "--message-format=json-render-diagnostics",
        ]);
        command
            .current_dir(&self.copy)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        match test.suite() {
            Suite::Unit(library) => command.args(["--package", library.package, "--lib"]),
            Suite::Integration(file) => command.args(["--test", file]),
            Suite::Loom(library) => {
                let target = self.target.with_file_name("target-loom");
                command.args(["--package", library.package, "--lib"]);
                command.env("RUSTFLAGS", "--cfg snowbank_loom").env("CARGO_TARGET_DIR", target)
            }
        };
        let output = command.output().map_err(|error| format!("cargo: {error}"))?;
        if !output.status.success() {
            return Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let executable = messages.lines().find_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            let is_test = message["profile"]["test"].as_bool()?;
            is_test.then_some(PathBuf::from(message["executable"].as_str()?))
        });
        executable.map(Ok).ok_or_else(|| format!("cargo built no executable for {test}"))
    }

    fn execute(&self, executable: &Path, name: &str) -> Result<Outcome, String> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", TEST_LIMIT_S]).arg(executable).args(["--exact", name]);
        command.current_dir(&self.copy).env_remove("SNOWBANK_SEED");
        let output = command.output().map_err(|error| format!("timeout: {error}"))?;
        let status = output.status;
        if TIMED_OUT.contains(&status.code()) {
            return Ok(Outcome::Endless);
        }
        let said = String::from_utf8_lossy(&output.stdout);
        if !said.contains("running 1 test") {
            return Err(format!("there is no test {name}"));
        }
        if status.success() {
            return Ok(Outcome::Green);
        }
        let mut lines = said.lines().skip_while(|line| !line.contains("panicked at"));
        let why = lines.nth(1).map_or_else(|| status.to_string(), str::to_owned);
        Ok(Outcome::Red(why))
    }
}

/// Makes `to` a copy of `from`. Does not write equal files, because cargo compares modification
/// times.
fn mirror(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !from.join(entry.file_name()).exists() {
            let path = entry.path();
            if path.is_dir() {
                fs::remove_dir_all(path)?
            } else {
                fs::remove_file(path)?
            };
        }
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if NOT_COPIED.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let path = entry.path();
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            mirror(&path, &copy)?;
        } else {
            let bytes = fs::read(&path)?;
            if fs::read(&copy).ok().as_ref() != Some(&bytes) {
                fs::write(&copy, bytes)?;
            }
        }
    }
    Ok(())
}
