//! The output of this program: lines of JSON, and the faults of the client.

use std::fmt::Display;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// The faults of the client that the daemons noticed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    faults: Mutex<Vec<String>>,
}

impl Report {
    /// Records a fault: what was expected, and what came.
    pub(crate) fn fault(&self, text: String) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// Returns the first fault.
    pub(crate) fn first(&self) -> Option<String> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }
}

/// Prints a line on standard output. Ignores errors, because they mean that the test has ended.
pub(crate) fn print(line: &impl Display) {
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}
