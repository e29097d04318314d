//! Lines for the operator about a start. They are logged once the daemon listens, so that a start
//! that fails logs only its error.

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// No action is needed.
    Info(String),
    /// An operator should look into this.
    Warning(String),
}

impl Note {
    /// Logs the line.
    pub fn log(&self) {
        match self {
            Note::Info(line) => tracing::info!("{line}"),
            Note::Warning(line) => tracing::warn!("{line}"),
        }
    }
}
