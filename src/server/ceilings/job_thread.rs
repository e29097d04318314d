//! A thread that does one job after another for the keeper thread, which must not wait for
//! storage or a coordinator.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A job that another thread asks for, which sends the answer itself.
pub(crate) struct Question<S>(pub(crate) Box<dyn FnOnce(&mut S) + Send>);

impl<S> fmt::Debug for Question<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a question")
    }
}

/// The handle of a thread that does jobs. The thread ends once the handle and all
/// its [`Asks`] are dropped.
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

/// The jobs that one thread hands to another, one at a time, with a reply for each.
#[derive(Debug)]
pub(crate) struct Asks<J> {
    jobs: SyncSender<J>,
    /// True while a job is with the thread.
    is_under_way: Arc<AtomicBool>,
}

/// Where a job sends its result. Dropped without one if what the jobs work on is lost.
#[derive(Debug)]
pub(crate) struct Reply<R> {
    // Dropped first, so that who gets the reply can ask again.
    under_way: UnderWay,
    to: Sender<R>,
}

#[derive(Debug)]
struct UnderWay(Arc<AtomicBool>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<R> Reply<R> {
    /// Sends the result. It is dropped if nobody waits for it any more.
    pub(crate) fn send(self, result: R) {
        drop(self.under_way);
        let _ = self.to.send(result);
    }
}

/// The reason why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// The thread has ended, or has lost what its jobs work on.
    Ended,
    /// The job takes too long, or an earlier one still does. It may be done later.
    Late,
}

impl<J> Asks<J> {
    /// Sends a job, and waits for its result. A job that is late stays with the thread, and until it
    /// is done no other is sent. So the thread has at most one of these jobs.
    pub(crate) fn ask<R>(&self, limit: Duration, job: impl FnOnce(Reply<R>) -> J) -> Result<R, NoReply> {
        if self.is_under_way.swap(true, Ordering::AcqRel) {
            return Err(NoReply::Late);
        }
        let (to, replied) = mpsc::channel();
        let reply = Reply { under_way: UnderWay(Arc::clone(&self.is_under_way)), to };
        self.jobs.try_send(job(reply)).map_err(|error| match error {
            TrySendError::Full(_) => NoReply::Late,
            TrySendError::Disconnected(_) => NoReply::Ended,
        })?;
        replied.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => NoReply::Late,
            RecvTimeoutError::Disconnected => NoReply::Ended,
        })
    }
}

impl<J: Send + 'static, D: Send + 'static> JobThread<J, D> {
    /// Starts the thread, which calls `run` with `subject` and each job. At most `jobs_max` jobs
    /// may be in flight. `run` returns `None` for a job whose result went to another thread. Between two
    /// jobs, the thread calls `run_due` once the time `due_in` has passed. What is due comes before the
    /// next job, but not twice in a row.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn start<S: Send + 'static>(
        name: &str,
        jobs_max: usize,
        mut subject: S,
        run: fn(&mut S, J) -> Option<D>,
        due_in: fn(&mut S) -> Duration,
        run_due: fn(&mut S) -> Option<D>,
    ) -> io::Result<Self> {
        let (jobs, receive_jobs) = mpsc::sync_channel(jobs_max);
        let (send_done, done) = mpsc::sync_channel(jobs_max);
        let waker: Arc<OnceLock<Thread>> = Arc::default();
        let wake = Arc::clone(&waker);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut has_run = false;
            loop {
                let due_in = due_in(&mut subject);
                let done = if due_in.is_zero() && !has_run {
                    has_run = true;
                    run_due(&mut subject)
                } else {
                    // Even if the timer is due again, a job that waits comes first.
                    has_run = false;
                    match receive_jobs.recv_timeout(due_in) {
                        Ok(job) => run(&mut subject, job),
                        Err(RecvTimeoutError::Timeout) => continue,
                        Err(RecvTimeoutError::Disconnected) => break,
                    }
                };
                let Some(done) = done else { continue };
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

    /// Returns a handle with which a thread hands over jobs and waits for their results.
    pub(crate) fn asks(&self) -> Asks<J> {
        Asks { jobs: self.jobs.clone(), is_under_way: Arc::default() }
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
        // A write that was dropped would stay in flight for ever, and no ceiling would rise any more.
        assert!(!matches!(sent, Err(TrySendError::Full(_))), "at most `jobs_max` jobs are in flight");
        // Otherwise sending fails only if the thread has panicked, which ends the daemon in a release build.
        if sent.is_ok() {
            self.in_flight += 1;
        }
    }

    /// Returns the results since the last call.
    pub(crate) fn take_done(&mut self) -> Vec<D> {
        let done: Vec<D> = self.done.try_iter().collect();
        // A loss that no job of this handle found was not counted.
        self.in_flight = self.in_flight.saturating_sub(done.len());
        done
    }

    /// Lets the thread end after the jobs that it already has, and waits for that, at most this
    /// long.
    pub(super) fn wait_for_end(self, limit: Duration) {
        let JobThread { jobs, done, .. } = self;
        drop(jobs);
        let deadline = Instant::now() + limit;
        while done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first job hangs, as a write does on a disk that hangs.
    #[test]
    fn a_job_that_hangs_keeps_nobody_waiting() {
        type Job = (Receiver<()>, Reply<u32>);
        let run = |(): &mut (), (until, reply): Job| {
            let _ = until.recv();
            reply.send(7);
            None
        };
        let thread = JobThread::<Job, ()>::start("jobs", 2, (), run, |()| Duration::MAX, |()| None);
        let asks = thread.unwrap().asks();
        let ask = |limit, until| asks.ask(limit, |reply| (until, reply));
        let (end, until) = mpsc::channel();
        assert_eq!(ask(Duration::ZERO, until), Err(NoReply::Late));
        let at_once = || mpsc::channel().1;
        assert_eq!(ask(Duration::MAX, at_once()), Err(NoReply::Late), "one job at a time");
        drop(end);
        while ask(Duration::MAX, at_once()) != Ok(7) {
            thread::yield_now();
        }
    }

    /// A check at a coordinator that does not answer may take longer than the time between two.
    #[test]
    fn a_timer_that_is_always_due_leaves_each_job_its_turn() {
        let run_due = |runs: &mut u32| -> Option<u32> {
            *runs += 1;
            None
        };
        let run = |runs: &mut u32, ()| Some(*runs);
        let thread = JobThread::start("timed", 2, 0, run, |_| Duration::ZERO, run_due);
        let mut thread = thread.unwrap();
        for _ in 0..2 {
            thread.send(());
            let done = thread.done.recv_timeout(Duration::from_secs(60));
            assert!(done.is_ok_and(|runs| runs > 0), "{done:?}");
        }
    }
}
