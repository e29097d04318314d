//! The copy of the sources that is patched, built and tested.

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::patch::{Patch, Suite, TestName};

/// Longer than any test takes on the unpatched sources, on a slow machine.
const TEST_LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// The folders that are not copied: build output and history.
const NOT_COPIED: [&str; 3] = ["target", ".git", "proptest-regressions"];

/// A copy of the sources with a target directory of its own, so that dependencies are built once.
pub(crate) struct Workshop {
    sources: PathBuf,
    copy: PathBuf,
    target: PathBuf,
}

/// The outcome of a test.
pub(crate) enum Outcome {
    /// It failed; its first panic.
    Red(String),
    /// It passed.
    Green,
    /// The sources do not compile; the compiler's message.
    DoesNotCompile(String),
    /// The executable has no such test.
    NoSuchTest,
    /// It ran into the deadline and was ended.
    Endless,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Red(said) => write!(f, "red ({said})"),
            Outcome::Green => f.write_str("green"),
            Outcome::DoesNotCompile(said) => write!(f, "DOES NOT COMPILE\n{said}\n"),
            Outcome::NoSuchTest => f.write_str("NO SUCH TEST"),
            Outcome::Endless => write!(f, "DID NOT END within {} s", TEST_LIMIT.as_secs()),
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
        mirror(sources, &workshop.copy).map_err(|error| format!("{}: {error}", workshop.copy.display()))?;
        Ok(workshop)
    }

    /// Applies one patch, runs its test, and reverts the patch.
    pub(crate) fn sabotage(&self, patch: &Patch) -> Result<Outcome, String> {
        let changed = patch.apply(&self.sources)?;
        let write = |path: &Path, text: &str| {
            fs::write(self.copy.join(path), text).map_err(|error| format!("{}: {error}", path.display()))
        };
        for (path, text) in &changed {
            write(path, text)?;
        }
        let outcome = self.run(&patch.caught_by);
        for (path, _) in &changed {
            let text = fs::read_to_string(self.sources.join(path));
            write(path, &text.map_err(|error| format!("{}: {error}", path.display()))?)?;
        }
        outcome
    }

    /// Builds and runs one test on the unpatched copy.
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
        executable.map(Ok).ok_or_else(|| format!("cargo built nothing for {test}"))
    }

    fn execute(&self, executable: &Path, name: &str) -> Result<Outcome, String> {
        let fault = |error: std::io::Error| format!("{}: {error}", executable.display());
        let mut command = Command::new(executable);
        command.args(["--exact", name]).current_dir(&self.copy).env_remove("SNOWBANK_SEED");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(fault)?;
        let mut stdout = child.stdout.take().ok_or("no pipe")?;
        let said = thread::spawn(move || {
            let mut said = String::new();
            let _ = stdout.read_to_string(&mut said);
            said
        });
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(fault)? {
                break status;
            }
            if begun.elapsed() > TEST_LIMIT {
                child.kill().and_then(|()| child.wait()).map_err(fault)?;
                return Ok(Outcome::Endless);
            }
            thread::sleep(POLL);
        };
        let said = said.join().unwrap_or_default();
        if !said.contains("running 1 test") {
            return Ok(Outcome::NoSuchTest);
        }
        if status.success() {
            return Ok(Outcome::Green);
        }
        let mut lines = said.lines().skip_while(|line| !line.contains("panicked at"));
        let why = lines.nth(1).map_or_else(|| status.to_string(), str::to_owned);
        Ok(Outcome::Red(why))
    }
}

/// Makes `to` a copy of `from`. Leaves equal files alone, because cargo compares modification
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
