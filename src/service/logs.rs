//! The destination and the format of events.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use super::journal::Journal;
use crate::config::{LogFormat, LogLevel, LogSettings};

/// Set once events have a destination: true if that takes plain text.
static IS_TEXT: OnceLock<bool> = OnceLock::new();

/// The log of this process, with its level.
#[derive(Debug)]
pub struct Logs {
    chosen: LogLevel,
    level: reload::Handle<LevelFilter, Registry>,
}

type Sink<S> = Box<dyn Layer<S> + Send + Sync>;

impl Logs {
    /// Starts to write events, for as long as the process runs. The first call decides the destination.
    pub fn start(settings: LogSettings) -> Logs {
        let (level, handle) = reload::Layer::new(filter(settings.level));
        let (sink, is_text) = sink(settings.format);
        // Fails only if the process has a subscriber already, which then gets the events.
        let _ = tracing_subscriber::registry().with(level).with(sink).try_init();
        let _ = IS_TEXT.set(is_text);
        Logs { chosen: settings.level, level: handle }
    }

    /// Changes the level. A higher one counts from now on, a lower one after the change was logged
    /// ([`settle_level`](Self::settle_level)).
    pub fn set_level(&mut self, level: LogLevel) {
        let before = std::mem::replace(&mut self.chosen, level);
        self.write(before.max(level));
    }

    /// Lowers the level to the chosen one.
    pub fn settle_level(&self) {
        self.write(self.chosen);
    }

    fn write(&self, level: LogLevel) {
        // Fails only when the subscriber is gone, and then nothing is logged at all.
        let _ = self.level.reload(filter(level));
    }
}

/// Logs the reason why the program ends, in one line.
pub fn log_failure(reason: &str) {
    if IS_TEXT.get().is_none() && leads_to_journal() {
        Logs::start(LogSettings::default());
    }
    if IS_TEXT.get() == Some(&false) {
        tracing::error!("{reason}");
    } else {
        // If standard error is closed, only the exit code is left.
        let _ = writeln!(io::stderr(), "snowbank: {reason}");
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Returns the writer of events, and true if it writes plain text.
fn sink<S>(format: LogFormat) -> (Sink<S>, bool)
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let to_journal = match format {
        LogFormat::Auto => leads_to_journal(),
        LogFormat::Journald => true,
        LogFormat::Text | LogFormat::Json => false,
    };
    if to_journal && let Ok(journal) = Journal::open() {
        return (journal.boxed(), false);
    }
    // A closed log or a full disk must not end the daemon.
    let lines = fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    match format {
        LogFormat::Json => (lines.json().flatten_event(true).boxed(), false),
        _ => (lines.with_ansi(wants_colours()).with_target(false).boxed(), true),
    }
}

/// Returns whether standard error is still the stream that systemd connected to the journal.
fn leads_to_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let found = rustix::fs::fstat(io::stderr());
    found.is_ok_and(|found| named == format!("{}:{}", found.st_dev, found.st_ino))
}

/// Follows no-color.org.
fn wants_colours() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !is_refused
}
