//! The thread `log`: writes events to their destination, however slow that is. No other thread waits for it, because an
//! unread pipe or a busy journal must not delay clients.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The thread's name.
pub(super) const NAME: &str = "log";
/// The most events that wait for their destination. Usual ones have less than 300 bytes, and they come in bursts of some tens.
const EVENTS_MAX: usize = 1_024;
/// The longest wait for the destination when the process ends.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(1);

/// The way to the thread.
#[derive(Clone, Debug)]
pub(super) struct LogQueue<T> {
    events: SyncSender<T>,
    progress: Arc<Progress>,
}

/// The numbers of events of a [`LogQueue`].
#[derive(Debug, Default)]
pub(super) struct Progress {
    queued: AtomicU64,
    /// Events for which there was no room, and which no event reports yet.
    lost: AtomicU64,
    written: Mutex<u64>,
    moved: Condvar,
}

impl<T: Send + 'static> LogQueue<T> {
    /// Starts the thread, which calls `write` for each event.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(write: impl FnMut(T) + Send + 'static) -> io::Result<LogQueue<T>> {
        let (events, received) = sync_channel(EVENTS_MAX);
        let progress = Arc::new(Progress::default());
        let of_thread = Arc::clone(&progress);
        let run = move || run(&received, &of_thread, write);
        thread::Builder::new().name(String::from(NAME)).spawn(run)?;
        Ok(LogQueue { events, progress })
    }

    /// Hands over an event. If there is no room it is lost, and a later line counts it.
    pub(super) fn send(&self, event: T) {
        // Before the thread can have written it.
        self.progress.queued.fetch_add(1, Ordering::Relaxed);
        if self.events.try_send(event).is_err() {
            self.progress.queued.fetch_sub(1, Ordering::Relaxed);
            self.progress.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The progress of the thread.
    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }
}

impl Progress {
    /// Waits until all events so far are written, but not longer than [`END_PATIENCE`].
    pub(super) fn flush(&self) {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        // A destination that takes nothing must not keep the process from its end.
        drop(self.moved.wait_timeout_while(written, END_PATIENCE, |written| {
            *written < self.queued.load(Ordering::Relaxed) || self.lost.load(Ordering::Relaxed) > 0
        }));
    }

    fn note_written(&self) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.moved.notify_all();
    }
}

fn run<T>(events: &Receiver<T>, progress: &Progress, mut write: impl FnMut(T)) {
    loop {
        let event = match events.try_recv() {
            Ok(event) => event,
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                // The destination has taken all that waited, so there is room for this.
                let lost = progress.lost.load(Ordering::Relaxed);
                if lost > 0 {
                    tracing::error!(lost, "lines of the log are lost, because nothing took them in time");
                    progress.lost.fetch_sub(lost, Ordering::Relaxed);
                }
                let Ok(event) = events.recv() else { return };
                event
            }
        };
        write(event);
        progress.note_written();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_destination_that_takes_nothing_holds_nobody_up() {
        let (let_pass, may_pass) = mpsc::channel::<()>();
        let (write, written) = mpsc::channel();
        let queue = LogQueue::start(move |event| {
            may_pass.recv().expect("the test lets it pass");
            write.send(event).expect("the test reads");
        });
        let queue = queue.unwrap();
        // The first may be with the thread by then.
        let all = EVENTS_MAX + 100;
        (0..all).for_each(|event| queue.send(event));
        let lost = queue.progress.lost.load(Ordering::Relaxed) as usize;
        assert!((99..=100).contains(&lost), "{lost}");
        for event in 0..all - lost {
            let_pass.send(()).unwrap();
            assert_eq!(written.recv().unwrap(), event, "in order");
        }
        queue.progress.flush();
        assert_eq!(*queue.progress.written.lock().unwrap() as usize, all - lost);
    }

    #[test]
    fn the_end_of_the_process_does_not_wait_for_it_for_ever() {
        let (_kept, never) = mpsc::channel::<()>();
        let queue = LogQueue::start(move |()| _ = never.recv()).unwrap();
        queue.send(());
        queue.progress.flush();
        assert_eq!(*queue.progress.written.lock().unwrap(), 0);
    }
}
