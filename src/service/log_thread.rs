//! The thread `log`, which writes the lines of the log. If the log's destination is blocked (a pipe
//! that nobody reads), only this thread waits, and clients are not delayed.
//!
//! The crate `tracing-appender` has such a thread too. But `tracing-appender` panics if the system
//! has no thread left. It prints to standard output if writing the last lines takes too long. And
//! it ends the thread at a flush.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};

pub(super) const NAME: &str = "log";
/// The most lines in the queue. Most lines have less than 300 bytes. Lines come in bursts of some
/// tens.
const LINES_MAX: usize = 1_024;
/// The longest time that a flush takes.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(1);

/// Queues lines for the thread. Each write must be the line of one event.
#[derive(Clone, Debug)]
pub(super) struct LogWriter {
    messages: Sender<Message>,
    /// The number of lines that were dropped since the last report, because the queue was full.
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// The thread drops the sender once all lines before this message are written.
    Flush(Sender<()>),
}

impl LogWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<LogWriter> {
        let (messages, received) = bounded(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&dropped);
        thread::Builder::new().name(String::from(NAME)).spawn(move || run(&received, &count, out))?;
        Ok(LogWriter { messages, dropped })
    }

    /// Waits until all lines so far are written, at most for [`END_PATIENCE`]. If lines were
    /// dropped, also waits for the line that reports them.
    pub(super) fn flush(&self) {
        let deadline = Instant::now() + END_PATIENCE;
        // The first flush makes the thread report dropped lines; the second waits for that report.
        for _ in 0..2 {
            let (flushed, wait) = bounded(0);
            if self.messages.send_deadline(Message::Flush(flushed), deadline).is_ok() {
                // Receiving always fails: when the thread has flushed, or when the deadline has
                // passed.
                let _ = wait.recv_deadline(deadline);
            }
        }
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.messages.try_send(Message::Line(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run(messages: &Receiver<Message>, dropped: &AtomicU64, mut out: impl Write) {
    for message in messages {
        // The sender is dropped at the end of the iteration, after the line about dropped lines is
        // queued.
        let _flushed = match message {
            Message::Line(line) => {
                // A write fails if the log is closed or the disk is full. The daemon continues.
                let _ = out.write_all(&line);
                None
            }
            Message::Flush(flushed) => Some(flushed),
        };
        if messages.is_empty() {
            let lines = dropped.swap(0, Ordering::Relaxed);
            if lines > 0 {
                tracing::error!(lines, "log lines dropped: output is blocked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A destination that writes a line only when the test allows it.
    struct Gate {
        may_pass: mpsc::Receiver<()>,
        written: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.may_pass.recv().map_err(io::Error::other)?;
            self.written.send(line.to_vec()).map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn blocked_output_delays_no_writer_and_drops_are_logged() {
        let (let_pass, may_pass) = mpsc::channel();
        let (written, lines) = mpsc::channel();
        let (messages, received) = bounded(LINES_MAX);
        let writer = LogWriter { messages, dropped: Arc::default() };
        let reports = writer.clone();
        let dropped = Arc::clone(&writer.dropped);
        // Does what `start` does, with a subscriber that no other test uses.
        thread::spawn(move || {
            let subscriber = tracing_subscriber::fmt().with_writer(move || reports.clone()).with_ansi(false);
            let run = || run(&received, &dropped, Gate { may_pass, written });
            tracing::subscriber::with_default(subscriber.finish(), run);
        });
        // The thread may have taken the first line from the queue.
        let all = LINES_MAX + 100;
        for number in 0..all {
            writer.clone().write_all(number.to_string().as_bytes()).unwrap();
        }
        let dropped = writer.dropped.load(Ordering::Relaxed) as usize;
        assert!((99..=100).contains(&dropped), "{dropped}");
        // The gate still blocks all writes, so the flush ends at its deadline.
        LogWriter::flush(&writer);
        // Where the gap of the dropped lines is depends on when the thread took the first line.
        let mut passed = Vec::new();
        for _ in 0..all - dropped {
            let_pass.send(()).unwrap();
            passed.push(String::from_utf8(lines.recv().unwrap()).unwrap().parse::<usize>().unwrap());
        }
        assert!(passed.is_sorted_by(|one, two| one < two), "in order: {passed:?}");
        assert_eq!(passed[..LINES_MAX], (0..LINES_MAX).collect::<Vec<_>>(), "the first lines are queued");
        let_pass.send(()).unwrap();
        let report = String::from_utf8(lines.recv().unwrap()).unwrap();
        let expected = format!("log lines dropped: output is blocked lines={dropped}\n");
        assert!(report.contains("ERROR") && report.ends_with(&expected), "{report}");
    }
}
