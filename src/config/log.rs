//! What the daemon says of itself, and how.

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// To the journal where standard error leads there, else as text.
    #[default]
    Auto,
    /// Lines for people, with colours on a terminal.
    Text,
    /// To the journal, with a priority and a field for each part.
    Journald,
    /// A JSON object on each line.
    Json,
}

/// The least of the events that are written. A greater one writes more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// What keeps IDs from being handed out.
    Error,
    /// And what may come to that.
    Warn,
    /// And what changes.
    #[default]
    Info,
    /// And what helps to find out why.
    Debug,
    /// And all there is.
    Trace,
}

/// The `[log]` section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// How an event is written.
    pub format: LogFormat,
    /// The least of the events that are written.
    pub level: LogLevel,
}

impl LogFormat {
    pub(super) const NAMES: [(&'static str, LogFormat); 4] = [
        ("auto", LogFormat::Auto),
        ("text", LogFormat::Text),
        ("journald", LogFormat::Journald),
        ("json", LogFormat::Json),
    ];

    /// Its name in configurations.
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

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, of)| *of == self).map_or("", |(name, _)| name)
    }
}
