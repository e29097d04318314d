//! Where events go and how they look.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use super::journal::Journal;
use crate::config::{LogFormat, LogLevel, LogSettings};

/// Set once events go somewhere: whether that is a place for plain text.
static IS_TEXT: OnceLock<bool> = OnceLock::new();

/// The events of this process, as they are written.
#[derive(Debug)]
pub struct Logs {
    chosen: LogLevel,
    level: reload::Handle<LevelFilter, Registry>,
}

type Sink<S> = Box<dyn Layer<S> + Send + Sync>;

impl Logs {
    /// Has events written from now on, for as long as the process runs. The first call decides where they go.
    pub fn start(settings: LogSettings) -> Logs {
        let (level, handle) = reload::Layer::new(filter(settings.level));
        let (sink, is_text) = sink(settings.format);
        // Fails only if the process has a subscriber already, which then gets the events.
        let _ = tracing_subscriber::registry().with(level).with(sink).try_init();
        let _ = IS_TEXT.set(is_text);
        Logs { chosen: settings.level, level: handle }
    }

    /// Changes what is written: more from now on, less once it was said that it will be
    /// ([`settle_level`](Self::settle_level)).
    pub fn set_level(&mut self, level: LogLevel) {
        let before = std::mem::replace(&mut self.chosen, level);
        self.write(before.max(level));
    }

    /// Writes no more than was chosen.
    pub fn settle_level(&self) {
        self.write(self.chosen);
    }

    fn write(&self, level: LogLevel) {
        // Fails only when the subscriber is gone, and with it all who could notice.
        let _ = self.level.reload(filter(level));
    }
}

/// Says why the program ends: one line, wherever its events go.
pub fn say_refusal(reason: &str) {
    if IS_TEXT.get().is_none() && leads_to_journal() {
        Logs::start(LogSettings::default());
    }
    if IS_TEXT.get() == Some(&false) {
        tracing::error!("{reason}");
    } else {
        // If standard error is closed, the exit code has to do.
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

/// What writes events, and whether as plain text.
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
    // A log that nobody takes any more, or a full disk under it, ends no daemon.
    let lines = fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    match format {
        LogFormat::Json => (lines.json().flatten_event(true).boxed(), false),
        _ => (lines.with_ansi(wants_colours()).with_target(false).boxed(), true),
    }
}

/// Whether standard error is the stream that systemd connected to the journal, and nobody has put another in its place.
fn leads_to_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let found = rustix::fs::fstat(io::stderr());
    found.is_ok_and(|found| named == format!("{}:{}", found.st_dev, found.st_ino))
}

/// As no-color.org has it.
fn wants_colours() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !is_refused
}
