//! The form and the level of log messages.

use tracing::level_filters::LevelFilter;

/// The form of a log message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
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

/// The names of the least severe messages that are logged. A greater level logs more.
pub(super) const LEVELS: [(&str, LevelFilter); 5] = [
    // Faults that keep the daemon from handing out IDs.
    ("error", LevelFilter::ERROR),
    // Also faults that may soon do so.
    ("warn", LevelFilter::WARN),
    // Also changes.
    ("info", LevelFilter::INFO),
    // Also details that help to find a cause.
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];
