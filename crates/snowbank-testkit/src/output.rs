//! The output of a child process, line by line or as a whole.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::{DEADLINE, poll};

/// The lines of a child's output. Each line is available as soon as the child has written it.
pub(crate) struct Lines(Mutex<Receiver<String>>);

impl Lines {
    pub(crate) fn of(from: impl Read + Send + 'static) -> Lines {
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Lines(Mutex::new(lines))
    }

    pub(crate) fn next(&self) -> Option<String> {
        self.0.lock().expect("no reader panics").recv_timeout(DEADLINE).ok()
    }
}

/// The whole output of a child. A thread collects it, so that the child never waits for a reader.
pub(crate) struct Text {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Text {
    pub(crate) fn of(mut from: impl Read + Send + 'static) -> Text {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut piece = [0; 4_096];
            while let Ok(size @ 1..) = from.read(&mut piece) {
                collected.lock().expect("no reader panics").extend_from_slice(&piece[..size]);
            }
        });
        Text { bytes, reader }
    }

    pub(crate) fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("no reader panics")).into_owned()
    }

    /// Returns all output, once the writer has closed the pipe or ended.
    pub(crate) fn whole(&self) -> String {
        poll("the end of a pipe", || self.reader.is_finished().then_some(()));
        self.so_far()
    }
}
