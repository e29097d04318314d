//! A thread that does one job after another for the keeper thread, which must not wait for
//! storage or a coordinator.

use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The handle of a thread that does jobs. The thread ends once the handle is dropped.
#[derive(Debug)]
pub(crate) struct JobThread<J, D> {
    jobs: SyncSender<J>,
    /// The results of jobs. The channel closes after the thread has dropped the subject of its
    /// jobs.
    pub(crate) done: Receiver<D>,
    /// The thread to wake whenever a job is done.
    waker: Arc<OnceLock<Thread>>,
    /// The number of jobs that were sent and whose results were not taken yet.
    in_flight: usize,
}

impl<J: Send + 'static, D: Send + 'static> JobThread<J, D> {
    /// Starts the thread, which calls `run` with `subject` and each job. At most `jobs_max` jobs
    /// may be in flight. `run` returns `None` for a job whose result went to another thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn start<S: Send + 'static>(
        name: &str,
        jobs_max: usize,
        mut subject: S,
        run: fn(&mut S, J) -> Option<D>,
    ) -> io::Result<Self> {
        let (jobs, receive_jobs) = mpsc::sync_channel(jobs_max);
        let (send_done, done) = mpsc::sync_channel(jobs_max);
        let waker: Arc<OnceLock<Thread>> = Arc::default();
        let wake = Arc::clone(&waker);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            for job in receive_jobs {
                let Some(done) = run(&mut subject, job) else { continue };
                let is_received = send_done.send(done).is_ok();
                if let Some(waker) = wake.get().filter(|_| is_received) {
                    waker.unpark();
                }
            }
            // A closed channel shows other threads that this thread has ended. So the subject,
            // which holds the locks, is dropped before the channel closes.
            drop(subject);
            drop(send_done);
        })?;
        Ok(JobThread { jobs, done, waker, in_flight: 0 })
    }

    /// Returns a sender with which another thread hands over jobs. Their results go to that thread.
    pub(crate) fn jobs(&self) -> SyncSender<J> {
        self.jobs.clone()
    }

    /// From now on, the calling thread is woken whenever a job is done.
    pub(crate) fn wake_this_thread(&self) {
        let _ = self.waker.set(thread::current());
    }

    /// Returns whether all jobs are done.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Hands a job to the thread.
    pub(crate) fn send(&mut self, job: J) {
        let sent = self.jobs.try_send(job);
        debug_assert!(!matches!(sent, Err(TrySendError::Full(_))), "more than `jobs_max` jobs are in flight");
        // Sending fails only if the thread has panicked, which ends the daemon in a release build.
        if sent.is_ok() {
            self.in_flight += 1;
        }
    }

    /// Returns the results since the last call.
    pub(crate) fn take_done(&mut self) -> Vec<D> {
        let done: Vec<D> = self.done.try_iter().collect();
        // A loss that a job of another thread found was not counted.
        self.in_flight = self.in_flight.saturating_sub(done.len());
        done
    }

    /// Lets the thread end after the jobs that it already has, and waits for that, at most this
    /// long.
    pub(super) fn wait_for_end(self, limit: Duration) {
        let done = self.close();
        let deadline = Instant::now() + limit;
        while done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok() {}
    }

    /// Lets the thread end after the jobs that it already has. Returns the channel of their
    /// results.
    pub(crate) fn close(self) -> Receiver<D> {
        self.done
    }
}
