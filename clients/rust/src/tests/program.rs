//! The program that plays the daemons.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Returns the program's path: SNOWBANK_CONFORMANCE, or the one that cargo builds here.
pub(crate) fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os("SNOWBANK_CONFORMANCE").map_or_else(build, PathBuf::from))
}

fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built =
        Command::new(cargo).args(["build", "-q", "-p", "snowbank-conformance"]).current_dir(&root).status();
    assert!(built.expect("cargo runs").success(), "snowbank-conformance does not compile");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    target.join("debug/snowbank-conformance")
}

/// A run of the program.
pub(crate) struct Program {
    child: Child,
    lines: UnboundedReceiver<String>,
}

/// Returns the names of all cases.
pub(crate) fn names() -> Vec<String> {
    let listed = Command::new(path()).arg("list").output().expect("a list");
    String::from_utf8(listed.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

impl Program {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(path());
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let output = BufReader::new(child.stdout.take().expect("the program's output"));
        let (sender, lines) = unbounded_channel();
        // The program ends by itself if a case takes too long.
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    /// Returns the next line, or null if the program has ended.
    pub(crate) async fn line(&mut self) -> Value {
        serde_json::from_str(&self.lines.recv().await.unwrap_or_default()).unwrap_or_default()
    }

    pub(crate) fn say(&mut self, words: &str) {
        writeln!(self.child.stdin.as_mut().expect("an input"), "{words}").expect("the program reads");
    }

    /// Waits for an event. The error is the line that came in its place.
    pub(crate) async fn wait_for(&mut self, event: &str) -> Result<(), String> {
        let line = self.line().await;
        if line["event"] == event { Ok(()) } else { Err(format!("expected the event {event}, found {line}")) }
    }

    /// Closes the program's input, and waits until the program ends. The error is the text that the
    /// program wrote to standard error.
    pub(crate) fn end(mut self) -> Result<(), String> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        let mut errors = self.child.stderr.take().expect("the program's errors");
        errors.read_to_string(&mut text).expect("UTF-8");
        let has_succeeded = self.child.wait().expect("the program ends").success();
        if has_succeeded { Ok(()) } else { Err(text.trim().to_owned()) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
