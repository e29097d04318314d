//! Runs the load test as a program, and reads its output and its exit code.
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part")]

pub(crate) mod browser;
pub(crate) mod room;
pub(crate) mod scripted;

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
pub(crate) use snowbank_testkit::{Daemon, Setup, coordinators, has_program, poll, port, skip};
use tempfile::TempDir;

use room::Room;

/// The options of a closed loop without objectives. A pause of the machine does not make such a run
/// fail.
pub(crate) const CLOSED: &str = "--closed --for 300ms --warm-up 100ms";

/// The options of a run of a thousand requests, with an objective that even a busy machine meets.
pub(crate) const THOUSAND: &str = "--rate 1000 --for 1s --warm-up 100ms --p99.9 5s";

pub(crate) struct Running {
    child: Child,
    directory: TempDir,
    _room: Room,
}

/// A server that is killed when this value is dropped.
pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    json: Option<String>,
}

/// Runs the load test to its end. Blanks separate the options, so no option contains a blank.
pub(crate) fn loadtest(options: &str) -> Ran {
    start(options).wait()
}

/// Calls `run` until `is_seen` returns true for the result, but at most ten times. A mere pause of
/// the machine may spoil a run. Returns the last result. If the target counts requests, `run` must
/// make a new target for each call.
pub(crate) fn until(run: impl Fn() -> Ran, is_seen: impl Fn(&Ran) -> bool) -> Ran {
    let mut ran = run();
    for _ in 0..9 {
        if is_seen(&ran) {
            break;
        }
        ran = run();
    }
    ran
}

/// Repeats `run` until the load test has a verdict. On a busy machine, a run may have none.
pub(crate) fn until_judged(run: impl Fn() -> Ran) -> Ran {
    until(run, |ran| ran.code != 2 || !ran.result().starts_with("NO VERDICT"))
}

/// Repeats `run` while only late answers keep the load test from passing. On a busy machine, a
/// sound target may be late.
pub(crate) fn until_in_time(run: impl Fn() -> Ran) -> Ran {
    until(run, |ran| !ran.is_late())
}

pub(crate) fn start(options: &str) -> Running {
    start_by(Command::new(env!("CARGO_BIN_EXE_snowbank-loadtest")), options)
}

/// Starts the load test by a command, which is the load test itself, or another program with the
/// load test as its last argument.
pub(crate) fn start_by(mut command: Command, options: &str) -> Running {
    let directory = tempfile::tempdir().expect("a directory");
    // If an option is given twice, only its last value counts. So a test's options replace the
    // defaults of its helper.
    command.args(last_of_each(options)).arg("--json").arg(directory.path().join("run.json"));
    spawn(command, directory)
}

fn spawn(mut command: Command, directory: TempDir) -> Running {
    let room = Room::take();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the load test starts");
    Running { child, directory, _room: room }
}

/// Runs the program with exactly these arguments, without the `--json` of [`start_by`].
pub(crate) fn command(arguments: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_snowbank-loadtest"));
    command.args(arguments.split_whitespace());
    spawn(command, tempfile::tempdir().expect("a directory")).wait()
}

/// Runs `compare` with the files of two sides.
pub(crate) fn compare(a: &[String], b: &[String], more: &str) -> Ran {
    command(&format!("compare {} --with {} {more}", a.join(" "), b.join(" ")))
}

/// Keeps the last value of each option.
fn last_of_each(options: &str) -> Vec<&str> {
    let mut kept: Vec<Vec<&str>> = Vec::new();
    for part in options.split_whitespace() {
        if part.starts_with("--") || kept.is_empty() {
            kept.retain(|option| option[0] != part);
            kept.push(vec![part]);
        } else if let Some(option) = kept.last_mut() {
            option.push(part);
        }
    }
    kept.into_iter().flatten().collect()
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the load test's child processes that still run.
    pub(crate) fn children(&self) -> Vec<u32> {
        let id = self.id();
        // Each thread of the process lists the children that it started.
        let threads = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten();
        let lists = threads.filter_map(|thread| {
            let path = thread.ok()?.path().join("children");
            std::fs::read_to_string(path).ok()
        });
        lists.collect::<Vec<_>>().join(" ").split_whitespace().filter_map(|id| id.parse().ok()).collect()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the load test runs");
    }

    /// Waits until the load test has ended, even if it was killed.
    pub(crate) fn reap(mut self) {
        self.child.wait().expect("the load test ends");
    }

    pub(crate) fn wait(self) -> Ran {
        let output = self.child.wait_with_output().expect("the load test ends");
        let json = std::fs::read_to_string(self.directory.path().join("run.json")).ok();
        // If a run cannot begin, its file is empty.
        json.iter().filter(|text| !text.is_empty()).for_each(|text| assert_of_schema(text));
        Ran {
            code: output.status.code().expect("no signal ended the load test"),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            json,
        }
    }
}

/// Validates what --json wrote against the schema, with a validator that does not use our types.
pub(crate) fn assert_of_schema(text: &str) {
    let schema = serde_json::from_str(include_str!("../../schema.json")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let figures = serde_json::from_str(text).expect("JSON");
    let errors = validator.iter_errors(&figures).map(|error| format!("{}: {error}", error.instance_path()));
    assert_eq!(errors.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Formats the results without the JSON, which is long.
impl std::fmt::Debug for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {}\n{}{}", self.code, self.stdout, self.stderr)
    }
}

impl Ran {
    /// Returns the lines of the result: the verdict, and the reasons for it.
    pub(crate) fn result(&self) -> String {
        const WORDS: [&str; 7] =
            ["PASS", "FAIL", "NO VERDICT", "fail: ", "no verdict: ", "saturation point: ", "no saturation"];
        let lines = self.stdout.lines().filter(|line| WORDS.iter().any(|word| line.starts_with(word)));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns true if only reasons that a slow machine can cause kept the run from passing.
    fn is_late(&self) -> bool {
        const TIMES: [&str; 6] = [
            "this machine stood still",
            "of which the target took at least",
            "of the requested rate",
            "the generator was the bottleneck",
            "the target stalled: no answer within",
            "the target did not recover within",
        ];
        let result = self.result();
        let mut reasons = result.lines().skip(1).peekable();
        reasons.peek().is_some() && reasons.all(|reason| TIMES.iter().any(|times| reason.contains(times)))
    }

    /// Fails unless the program exited with this code, wrote one line that contains `reason` to
    /// standard error, and nothing to standard output.
    pub(crate) fn assert_refused(&self, code: i32, reason: &str) {
        let found = (self.code, self.stderr.lines().count(), self.stdout.len());
        assert!(found == (code, 1, 0) && self.stderr.contains(reason), "{reason}: {self:?}");
    }

    /// Returns standard output as one line.
    pub(crate) fn words(&self) -> String {
        self.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns the text of the file that --json wrote.
    pub(crate) fn json_text(&self) -> &str {
        self.json.as_deref().expect("--json writes a file")
    }

    pub(crate) fn figure(&self, row: &str, name: &str) -> serde_json::Value {
        figure(&self.json(), row, name)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.json_text()).expect("JSON")
    }
}

/// Returns a figure of a run's file; null if the file has no such figure.
pub(crate) fn figure(run: &serde_json::Value, row: &str, name: &str) -> serde_json::Value {
    let figures = run["figures"].as_array().expect("a list of figures");
    let found = figures.iter().find(|figure| figure["row"] == row && figure["name"] == name);
    found.map(|figure| figure["value"].clone()).unwrap_or_default()
}

/// Returns true if the daemon's binary is there. Cargo builds it for the tests of the workspace,
/// but not for the tests of this package alone.
pub(crate) fn has_daemon() -> bool {
    let found = snowbank_testkit::program::path().is_some();
    if !found {
        skip("no snowbank binary beside snowbank-loadtest; cargo build makes it");
    }
    found
}
