//! The program that plays the daemons.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

pub(crate) const PATH: &str = env!("CARGO_BIN_EXE_snowbank-conformance");

/// A run of the program.
pub(crate) struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// Returns the names of all cases.
pub(crate) fn names() -> Vec<String> {
    let listed = Command::new(PATH).arg("list").output().expect("a list");
    String::from_utf8(listed.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

impl Program {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(PATH);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let lines = BufReader::new(child.stdout.take().expect("the program's output"));
        Self { child, lines }
    }

    /// Returns the next line, or null if the program has ended. The program ends by itself if a
    /// case takes too long.
    pub(crate) fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_default()
    }

    pub(crate) fn say(&mut self, words: &str) {
        writeln!(self.child.stdin.as_mut().expect("an input"), "{words}").expect("the program reads");
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
