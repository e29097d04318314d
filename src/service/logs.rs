//! The destination and the format of events.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::{Arc, OnceLock};
use std::thread;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use super::journal::Journal;
use super::log_thread::{self, LogQueue, Progress};
use crate::config::{LogFormat, LogLevel, LogSettings};

/// Set once events have a destination.
static DESTINATION: OnceLock<Destination> = OnceLock::new();

/// The destination of this process's events.
#[derive(Debug)]
struct Destination {
    progress: Arc<Progress>,
    /// The way to standard error, if it gets plain text.
    text: Option<LogQueue<Vec<u8>>>,
}

/// The log of this process, with its level.
#[derive(Debug)]
pub struct Logs {
    chosen: LogLevel,
    level: reload::Handle<LevelFilter, Registry>,
}

type Sink<S> = Box<dyn Layer<S> + Send + Sync>;

impl Logs {
    /// Starts to write events and messages of panics, for as long as the process runs. The first call decides the
    /// destination.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(settings: LogSettings) -> io::Result<Logs> {
        let (level, handle) = reload::Layer::new(filter(settings.level));
        let (sink, destination) = sink(settings.format)?;
        // Fails only if the process has a subscriber already, which then gets the events.
        let _ = tracing_subscriber::registry().with(level).with(sink).try_init();
        let _ = DESTINATION.set(destination);
        log_panics();
        Ok(Logs { chosen: settings.level, level: handle })
    }

    /// Changes the level. A level that logs more holds from now on, one that logs less after the change was logged
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
    if DESTINATION.get().is_none() && leads_to_journal() {
        // Without a thread the reason goes to standard error, which leads to the journal too.
        let _ = Logs::start(LogSettings::default());
    }
    // First the lines that wait are written, so that there is room for this one.
    end_log();
    let line = format!("snowbank: {reason}\n");
    match DESTINATION.get() {
        Some(Destination { text: Some(queue), .. }) => queue.send(line.into_bytes()),
        Some(_) => tracing::error!("{reason}"),
        // If standard error is closed, only the exit code is left.
        None => _ = io::stderr().write_all(line.as_bytes()),
    }
}

/// Waits a moment for the destination of the events so far, before the process ends.
pub fn end_log() {
    if let Some(destination) = DESTINATION.get() {
        destination.progress.flush();
    }
}

/// Makes the thread of the log write messages of panics. The process ends then, so the lines that wait for that thread
/// come first.
fn log_panics() {
    let write_directly = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if thread::current().name() == Some(log_thread::NAME) {
            return write_directly(panic);
        }
        log_failure(&words_of_panic(panic));
        end_log();
    }));
}

fn words_of_panic(panic: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("without a name");
    let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
    let payload = panic.payload();
    let constant = payload.downcast_ref::<&str>().copied();
    let reason = constant.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let reason = reason.unwrap_or("no reason is given");
    // Captured if RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    let backtrace = match backtrace.status() {
        BacktraceStatus::Captured => format!("\n{backtrace}").trim_end().to_owned(),
        _ => String::new(),
    };
    format!("thread {name} panicked{place}: {reason}{backtrace}")
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

/// Returns the writer of events, and where it leads.
fn sink<S>(format: LogFormat) -> io::Result<(Sink<S>, Destination)>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let to_journal = match format {
        LogFormat::Auto => leads_to_journal(),
        LogFormat::Journald => true,
        LogFormat::Text | LogFormat::Json => false,
    };
    if to_journal && let Ok(journal) = Journal::open() {
        let destination = Destination { progress: Arc::clone(journal.progress()), text: None };
        return Ok((journal.boxed(), destination));
    }
    // A closed log or a full disk must not end the daemon.
    let queue = LogQueue::start(|line: Vec<u8>| _ = io::stderr().write_all(&line))?;
    let destination = |text| Destination { progress: Arc::clone(queue.progress()), text };
    let lines = queue.clone();
    let lines = fmt::layer().with_writer(move || Line(lines.clone())).log_internal_errors(false);
    Ok(match format {
        LogFormat::Json => (lines.json().flatten_event(true).boxed(), destination(None)),
        _ => {
            let text = lines.with_ansi(wants_colours()).with_target(false);
            (text.boxed(), destination(Some(queue.clone())))
        }
    })
}

/// Takes one event's line, which comes in one piece.
struct Line(LogQueue<Vec<u8>>);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set for the process in which the test's thread panics.
    const PANICS: &str = "TEST_OF_LOGS_PANICS";
    const LINES: usize = 500;

    fn log_and_panic() {
        Logs::start(LogSettings { level: LogLevel::Info, format: LogFormat::Text }).unwrap();
        // More than a pipe holds.
        (0..LINES).for_each(|line| tracing::info!(line, "{}", "waits ".repeat(50)));
        let panics = thread::Builder::new().name(String::from("shard-7")).spawn(panic_at_once);
        panics.unwrap().join().unwrap_err();
    }

    fn panic_at_once() {
        panic!("it cannot go on");
    }

    #[test]
    fn a_panic_is_logged_after_the_lines_that_wait() {
        if std::env::var_os(PANICS).is_some() {
            return log_and_panic();
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "service::logs::tests::a_panic_is_logged_after_the_lines_that_wait"]);
        command.args(["--nocapture", "--test-threads=1"]).env(PANICS, "");
        let output = command.env_remove("RUST_BACKTRACE").env_remove("RUST_LIB_BACKTRACE").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.iter().filter(|line| line.contains("waits")).count(), LINES, "{text}");
        let last = lines.last().unwrap();
        assert!(last.starts_with("snowbank: thread shard-7 panicked at src/service/logs.rs:"), "{last}");
        assert!(last.ends_with(": it cannot go on"), "{last}");
    }
}
