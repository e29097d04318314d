//! Why the daemon does not start.

use std::fmt;

/// The reason why the daemon does not start: one line that names the value and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    reason: String,
    may_pass: bool,
}

impl StartError {
    /// Returns an error whose cause may be gone at the next try: a port, a host name, a disk.
    pub(crate) fn for_now(reason: impl fmt::Display) -> Self {
        StartError { reason: reason.to_string(), may_pass: true }
    }

    /// Returns true if the next try may succeed without a change to the configuration or the machine.
    pub fn may_pass(&self) -> bool {
        self.may_pass
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for StartError {}

impl From<String> for StartError {
    fn from(reason: String) -> Self {
        StartError { reason, may_pass: false }
    }
}
