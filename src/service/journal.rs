//! journald's own protocol: an event is one datagram of fields (systemd.io/JOURNAL_NATIVE_PROTOCOL).
//!
//! The crate `tracing-journald` is not used: it would block threads that answer clients while the journal is busy, and it
//! leaves an event's fields out of MESSAGE, which is all that `journalctl` shows. Here the thread `log` waits for the journal.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::log_thread::{LogQueue, Progress};

/// The socket of journald.
const SOCKET: &str = "/run/systemd/journal/socket";
/// The longest value of a field, in bytes. Usual values are far shorter, and journald rejects much longer datagrams.
const VALUE_BYTES_MAX: usize = 16 * 1024;

/// Sends events to the journal.
#[derive(Debug)]
pub(super) struct Journal {
    queue: LogQueue<Entry>,
}

/// An event on its way to the journal.
#[derive(Debug)]
struct Entry {
    datagram: Vec<u8>,
    /// The line for standard error, if the journal is gone.
    line: String,
}

impl Journal {
    /// Connects to the journal of this machine.
    pub(super) fn open() -> io::Result<Journal> {
        Self::at(Path::new(SOCKET))
    }

    fn at(path: &Path) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        let queue = LogQueue::start(move |entry: Entry| {
            if socket.send(&entry.datagram).is_err() {
                // If this fails too, the event is lost.
                let _ = io::stderr().write_all(entry.line.as_bytes());
            }
        })?;
        Ok(Journal { queue })
    }

    /// The progress of the thread that writes.
    pub(super) fn progress(&self) -> &Arc<Progress> {
        self.queue.progress()
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut parts = Parts::default();
        event.record(&mut parts);
        let (priority, message) = (priority(*event.metadata().level()), parts.line());
        let mut datagram = Vec::new();
        put(&mut datagram, "MESSAGE", &message);
        put(&mut datagram, "PRIORITY", &priority.to_string());
        put(&mut datagram, "SYSLOG_IDENTIFIER", "snowbank");
        put(&mut datagram, "SNOWBANK_TARGET", event.metadata().target());
        for (name, value) in &parts.fields {
            put(&mut datagram, &field_name(name), value);
        }
        // If standard error leads to journald, it reads the priority from the line.
        self.queue.send(Entry { datagram, line: format!("<{priority}>{message}\n") });
    }
}

/// The priorities of syslog(3).
pub(super) fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// The parts of an event, as text.
#[derive(Debug, Default)]
struct Parts {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Parts {
    /// Returns the message and all fields in one line, as in the text format.
    fn line(&self) -> String {
        let mut line = self.message.clone();
        for (name, value) in &self.fields {
            // Writing to a String does not fail.
            let _ = write!(line, " {name}={value}");
        }
        line
    }
}

impl Visit for Parts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = format!("{value:?}");
        cut(&mut text, VALUE_BYTES_MAX);
        match field.name() {
            "message" => self.message = text,
            name => self.fields.push((name, text)),
        }
    }
}

/// Cuts a text between two characters, to at most `bytes_max` bytes.
fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
    }
}

/// Returns a name that journald takes: capital letters, digits and underscores, at most 64 of them.
fn field_name(name: &str) -> String {
    let upper = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    "SNOWBANK_".chars().chain(upper).take(64).collect()
}

/// Appends a field. The length before the value lets the value contain line feeds.
fn put(datagram: &mut Vec<u8>, name: &str, value: &str) {
    datagram.extend_from_slice(name.as_bytes());
    datagram.push(b'\n');
    datagram.extend_from_slice(&(value.len() as u64).to_le_bytes());
    datagram.extend_from_slice(value.as_bytes());
    datagram.push(b'\n');
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Parses a datagram as journald does.
    fn fields(mut datagram: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        while !datagram.is_empty() {
            let name_end = datagram.iter().position(|&byte| byte == b'\n').unwrap();
            let (name, rest) = datagram.split_at(name_end);
            let length = u64::from_le_bytes(rest[1..9].try_into().unwrap()) as usize;
            let value = &rest[9..9 + length];
            assert_eq!(rest[9 + length], b'\n');
            fields.push((String::from_utf8(name.into()).unwrap(), String::from_utf8(value.into()).unwrap()));
            datagram = &rest[10 + length..];
        }
        fields
    }

    #[test]
    fn an_event_has_its_priority_its_fields_and_a_line_that_says_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let journald = UnixDatagram::bind(&path).unwrap();
        let subscriber = tracing_subscriber::registry().with(Journal::at(&path).unwrap());
        let error = io::Error::other("two\nlines");
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(address = "[::1]:7", %error, "cannot accept");
        });
        let mut datagram = [0; 4_096];
        let size = journald.recv(&mut datagram).unwrap();
        let fields = fields(&datagram[..size]);
        let expected = [
            ("MESSAGE", "cannot accept address=[::1]:7 error=two\nlines"),
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "snowbank"),
            ("SNOWBANK_TARGET", "snowbank::service::journal::tests"),
            ("SNOWBANK_ADDRESS", "[::1]:7"),
            ("SNOWBANK_ERROR", "two\nlines"),
        ];
        assert_eq!(fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_value_is_cut_where_a_datagram_would_grow_too_long() {
        for (bytes_max, left) in [(0, ""), (1, ""), (2, "é"), (3, "é"), (4, "éé"), (9, "éé")] {
            let mut text = String::from("éé");
            cut(&mut text, bytes_max);
            assert_eq!(text, left);
        }
    }
}
