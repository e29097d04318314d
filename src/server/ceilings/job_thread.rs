//! A thread that does one job after another, however slow the storage or coordinator is. Only a
//! clean stop waits for the thread.

use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};

/// The handle of the thread. The thread ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct JobThread<J, D> {
    jobs: SyncSender<J>,
    /// The channel of finished jobs. It closes once the thread has dropped what it worked on.
    pub(super) done: Receiver<D>,
    /// The thread to wake when a job is done, if one has asked for that.
    waker: Arc<OnceLock<Thread>>,
    /// The number of jobs that are not done.
    in_flight: usize,
}

impl<J: Send + 'static, D: Send + 'static> JobThread<J, D> {
    /// Starts the thread, which works on `subject` with `run`. At most `jobs_max` jobs are in
    /// flight at a time.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start<S: Send + 'static>(
        name: &str,
        jobs_max: usize,
        mut subject: S,
        run: fn(&mut S, J) -> D,
    ) -> io::Result<Self> {
        let (jobs, receive_jobs) = mpsc::sync_channel(jobs_max);
        let (send_done, done) = mpsc::sync_channel(jobs_max);
        let waker: Arc<OnceLock<Thread>> = Arc::default();
        let wake = Arc::clone(&waker);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            for job in receive_jobs {
                let is_received = send_done.send(run(&mut subject, job)).is_ok();
                if let Some(waker) = wake.get().filter(|_| is_received) {
                    waker.unpark();
                }
            }
            // The locks are released before the channel closes, because the closed channel shows
            // that this thread has ended.
            drop(subject);
            drop(send_done);
        })?;
        Ok(JobThread { jobs, done, waker, in_flight: 0 })
    }

    /// Wakes the calling thread whenever a job is done.
    pub(super) fn wake_this_thread(&self) {
        let _ = self.waker.set(thread::current());
    }

    /// Returns whether all jobs are done.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Hands a job to the thread.
    pub(super) fn send(&mut self, job: J) {
        let sent = self.jobs.try_send(job);
        debug_assert!(
            !matches!(sent, Err(TrySendError::Full(_))),
            "more jobs than the thread was started for"
        );
        // Sending fails only after the thread has panicked. Then no job is ever done, and the
        // daemon refuses requests at its ceilings.
        if sent.is_ok() {
            self.in_flight += 1;
        }
    }

    /// Returns the jobs done since the last call.
    pub(super) fn take_done(&mut self) -> Vec<D> {
        let done: Vec<D> = self.done.try_iter().collect();
        self.in_flight -= done.len();
        done
    }

    /// Lets the thread end after the jobs that it has. Returns the channel of their results.
    pub(super) fn close(self) -> Receiver<D> {
        self.done
    }
}
