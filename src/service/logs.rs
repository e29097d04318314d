//! The destination and the format of the log's events.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::OnceLock;
use std::thread;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use super::log_thread::{self, LogWriter};
use crate::config::{LogFormat, LogSettings};

/// Set once events have a destination.
static OUTPUT: OnceLock<Output> = OnceLock::new();

#[derive(Debug)]
struct Output {
    writer: LogWriter,
    format: LogFormat,
}

/// The log of this process, with its level.
#[derive(Debug)]
pub struct Logs {
    chosen: LevelFilter,
    level: reload::Handle<LevelFilter, Registry>,
}

impl Logs {
    /// Starts to log events and panics. They are logged until the process ends. The first call
    /// decides the format.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(settings: LogSettings) -> io::Result<Logs> {
        let (level, handle) = reload::Layer::new(settings.level);
        let format = match settings.format {
            LogFormat::Auto if leads_to_journal() => LogFormat::Journald,
            format => format,
        };
        let writer = LogWriter::start(io::stderr())?;
        let lines = layer(format, writer.clone());
        // Setting the subscriber fails only if the process already has one, which then gets the
        // events.
        let _ = tracing_subscriber::registry().with(level).with(lines).try_init();
        let _ = OUTPUT.set(Output { writer, format });
        log_panics();
        Ok(Logs { chosen: settings.level, level: handle })
    }

    /// Changes the level. If the new level logs more events, it applies at once. If it logs fewer,
    /// it applies once [`settle_level`](Self::settle_level) is called, so that the change itself
    /// can be logged.
    pub fn set_level(&mut self, level: LevelFilter) {
        let before = std::mem::replace(&mut self.chosen, level);
        self.write(before.max(level));
    }

    /// Lowers the level to the level that was set last.
    pub fn settle_level(&self) {
        self.write(self.chosen);
    }

    fn write(&self, level: LevelFilter) {
        // Reloading fails only if the subscriber is gone. Then nothing is logged anyway.
        let _ = self.level.reload(level);
    }
}

/// Logs the reason why the program ends.
pub fn log_failure(reason: &str) {
    // The queued lines are written first, so that the queue has room for this line.
    end_log();
    let Some(Output { writer, format }) = OUTPUT.get() else {
        let begin = if leads_to_journal() { "<3>" } else { "snowbank: " };
        // Writing fails if standard error is closed. Then only the exit code shows the failure.
        let _ = io::stderr().write_all(format!("{begin}{reason}\n").as_bytes());
        return;
    };
    match format {
        // Writing to the queue does not fail.
        LogFormat::Auto | LogFormat::Text => {
            _ = writer.clone().write_all(format!("snowbank: {reason}\n").as_bytes());
        }
        LogFormat::Journald | LogFormat::Json => tracing::error!("{reason}"),
    }
}

/// Waits until the events so far are written, at most for `END_PATIENCE`. Called before the process
/// ends.
pub fn end_log() {
    if let Some(output) = OUTPUT.get() {
        LogWriter::flush(&output.writer);
    }
}

/// Makes the thread `log` write the messages of panics, after the lines that are already queued.
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
    // The place and the reason of the panic are on two lines.
    let panic = panic.to_string().replacen('\n', " ", 1);
    // This captures a backtrace only if the environment asks for one.
    let backtrace = Backtrace::capture();
    let backtrace = match backtrace.status() {
        BacktraceStatus::Captured => format!("\n{backtrace}").trim_end().to_owned(),
        _ => String::new(),
    };
    format!("thread {name} {panic}{backtrace}")
}

/// Returns the layer that writes events in this format.
fn layer<S>(format: LogFormat, writer: LogWriter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = fmt::layer().with_writer(move || writer.clone()).log_internal_errors(false);
    match format {
        LogFormat::Auto | LogFormat::Text => lines.with_ansi(wants_colours()).with_target(false).boxed(),
        LogFormat::Journald => {
            let line = fmt::format().without_time().with_level(false).with_target(false);
            lines.with_ansi(false).event_format(ForJournald(line)).boxed()
        }
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    }
}

/// Formats an event for journald, which reads it from a service's standard error: each line starts
/// with its priority, `<N>` (sd-daemon(3)). A line has no time, because the journal adds the time
/// itself.
struct ForJournald(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for ForJournald
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        let priority = priority(*event.metadata().level());
        text.lines().try_for_each(|line| writeln!(writer, "<{priority}>{line}"))
    }
}

/// Returns the priority of a level, as in syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Returns whether standard error is still the stream that systemd connected to the journal.
fn leads_to_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let found = rustix::fs::fstat(io::stderr());
    found.is_ok_and(|found| named == format!("{}:{}", found.st_dev, found.st_ino))
}

/// Returns whether lines get colours: on a terminal, unless `NO_COLOR` (no-color.org) is set.
fn wants_colours() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !is_refused
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Command;

    use super::*;

    /// This environment variable is set in the child process that panics.
    const PANICS: &str = "TEST_OF_LOGS_PANICS";
    const LINES: usize = 500;

    fn log_and_panic() {
        Logs::start(LogSettings { level: LevelFilter::INFO, format: LogFormat::Text }).unwrap();
        // These lines are more than a pipe can hold.
        (0..LINES).for_each(|line| tracing::info!(line, "{}", "waits ".repeat(50)));
        let panics = thread::Builder::new().name(String::from("shard-7")).spawn(panic_at_once);
        panics.unwrap().join().unwrap_err();
    }

    #[test]
    fn lines_for_journald_start_with_their_priority() {
        let (mut reader, pipe) = io::pipe().unwrap();
        let writer = LogWriter::start(pipe).unwrap();
        let subscriber = tracing_subscriber::registry().with(layer(LogFormat::Journald, writer.clone()));
        let error = io::Error::other("two\nlines");
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(address = "[::1]:7", %error, "cannot accept");
            tracing::info!("goes on");
        });
        LogWriter::flush(&writer);
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let first = "<4>cannot accept address=\"[::1]:7\" error=two\n<4>lines\n";
        assert_eq!(text, format!("{first}<6>goes on\n"));
    }

    fn panic_at_once() {
        panic!("it cannot go on");
    }

    #[test]
    fn a_panic_is_logged_after_the_queued_lines() {
        if std::env::var_os(PANICS).is_some() {
            return log_and_panic();
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "service::logs::tests::a_panic_is_logged_after_the_queued_lines"]);
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
