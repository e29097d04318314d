//! The form and the level of log messages.

/// The form of a log message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For the journal where standard error leads there, else as text.
    Auto,
    /// Lines for people, with colours on a terminal.
    Text,
    /// Lines that start with the priority, as journald reads them from a service.
    Journald,
    /// A JSON object on each line.
    Json,
}

/// The least severe messages that are logged. A greater level logs more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Faults that keep the daemon from handing out IDs.
    Error,
    /// Also faults that may soon do so.
    Warn,
    /// Also changes.
    Info,
    /// Also details that help to find a cause.
    Debug,
    /// Everything.
    Trace,
}

impl LogFormat {
    pub(super) const NAMES: [(&'static str, LogFormat); 4] = [
        ("auto", LogFormat::Auto),
        ("text", LogFormat::Text),
        ("journald", LogFormat::Journald),
        ("json", LogFormat::Json),
    ];

    /// Returns its name in configurations.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, of)| *of == self).map_or("", |(name, _)| name)
    }
}

impl LogLevel {
    pub(super) const NAMES: [(&'static str, LogLevel); 5] = [
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];

    /// Returns its name in configurations.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, of)| *of == self).map_or("", |(name, _)| name)
    }
}
