//! Opens connections on a thread of its own: no request waits for a handshake.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use crate::target::{Access, NoTarget, Stream};

/// The time limit of one connection: a handshake of TLS over a slow link takes a part of it.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that was asked for.
#[derive(Debug)]
pub(super) struct Opened {
    /// The number of the connection that it replaces.
    pub(super) index: usize,
    pub(super) stream: Result<Stream, NoTarget>,
    /// From the first packet until requests may be sent.
    pub(super) took: Duration,
}

/// The thread that opens connections, one after the other. It ends with this value.
#[derive(Debug)]
pub(super) struct Opener {
    asks: Sender<(usize, Access)>,
    opened: Receiver<Opened>,
    /// Connections that were asked for and have not come.
    pub(super) pending: usize,
}

impl Opener {
    pub(super) fn start() -> Self {
        let (asks, asked) = mpsc::channel::<(usize, Access)>();
        let (to, opened) = mpsc::channel();
        std::thread::spawn(move || {
            while let Ok((index, access)) = asked.recv() {
                let begun = Instant::now();
                let stream = access.open(OPEN_TIMEOUT);
                if to.send(Opened { index, stream, took: begun.elapsed() }).is_err() {
                    return;
                }
            }
        });
        Self { asks, opened, pending: 0 }
    }

    /// Asks for a connection that replaces one.
    pub(super) fn ask(&mut self, index: usize, access: &Access) {
        // The thread ends only after this value.
        if self.asks.send((index, access.clone())).is_ok() {
            self.pending += 1;
        }
    }

    /// Returns a connection that is open, or the reason why it is not.
    pub(super) fn take(&mut self) -> Option<Opened> {
        let opened = self.opened.try_recv().ok()?;
        self.pending -= 1;
        Some(opened)
    }
}
