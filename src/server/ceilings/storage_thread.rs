//! The storage thread does one job after another on the state directory. Only the control thread,
//! and a clean stop, wait for a job. If a stop takes too long, the process ends without the result.
//!
//! The thread checks the state's lock and file before each write. It checks them again after the
//! write, before it reports the outcome. The second check matters if another daemon takes the state
//! over while storage hangs. The other daemon can lock the state only after the lock file was
//! removed, and reads the ceilings only after it has the lock. So if the lock file is still there
//! after a write, any later owner of the state will read this ceiling or a higher one, and start
//! above it. So no ID that this daemon grants is repeated.

use std::io;
use std::time::Duration;

use super::job_thread::{Asks, JobThread, NoReply, Question, Reply};
use snowbank_core::grant::TakenOver;
use snowbank_core::keeper::{Outcome, Write};
use snowbank_state::StateError;
use snowbank_state::store::DiskStore;

/// The most jobs in flight: a write, a check, one of a stop, and one of the control thread.
const JOBS_MAX: usize = 4;

/// A job for the storage thread.
#[derive(Debug)]
pub(crate) enum Job {
    /// Make ceilings durable.
    Write(Write),
    Ask(Question<DiskStore>),
    /// Check that the state still belongs to this process.
    Check,
}

impl Asks<Job> {
    /// Asks the storage thread to do something with the state, and waits for the answer. There is none if
    /// the state is lost by then.
    pub(crate) fn question<R: Send + 'static>(
        &self,
        limit: Duration,
        question: impl FnOnce(&mut DiskStore) -> R + Send + 'static,
    ) -> Result<R, NoReply> {
        self.ask(limit, |reply: Reply<R>| {
            Job::Ask(Question(Box::new(move |store: &mut DiskStore| {
                let answer = question(store);
                if store.still_ours().is_ok() {
                    reply.send(answer);
                }
            })))
        })
    }
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum Done {
    Written(Outcome),
    /// The state still belongs to this process.
    Ours,
    /// Another process may have the state. The thread writes nothing more to the state.
    Lost(TakenOver),
}

/// The handle of the storage thread. When the thread ends, it releases the state's lock.
pub(crate) type Storage = JobThread<Job, Done>;

/// Starts the thread.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn start(store: DiskStore) -> io::Result<Storage> {
    JobThread::start("storage", JOBS_MAX, store, run, |_| Duration::MAX, |_| None)
}

fn run(store: &mut DiskStore, job: Job) -> Option<Done> {
    run_while(store, job, || ())
}

/// Does a job. Calls `meanwhile` between a write and the check that follows the write.
fn run_while(store: &mut DiskStore, job: Job, meanwhile: impl FnOnce()) -> Option<Done> {
    if let Err(taken_over) = store.still_ours() {
        // A thread that waits for the job's result finds its channel closed.
        return Some(Done::Lost(taken_over));
    }
    match job {
        Job::Check => Some(Done::Ours),
        Job::Ask(Question(question)) => {
            question(store);
            store.still_ours().err().map(Done::Lost)
        }
        Job::Write(write) => {
            let writer = write.writer;
            let number = write.number;
            let failure = write_ceilings(store, &write).err().map(|error| error.to_string());
            meanwhile();
            let ours = store.still_ours();
            Some(ours.map_or_else(Done::Lost, |()| Done::Written(Outcome { writer, number, failure })))
        }
    }
}

/// Makes the ceilings of a write durable.
///
/// # Errors
/// It is possible that the ceilings are not durable.
pub(crate) fn write_ceilings(store: &mut DiskStore, write: &Write) -> Result<(), StateError> {
    store.record_unknown(&write.restored);
    store.record_id_time(Some(write.id_minus_boot_us));
    let raises = write.ceilings.iter().map(|(source, durable)| (*source, durable.ceiling));
    store.raise(&raises.collect::<Vec<_>>(), write.wall_minus_boot_us)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;
    use snowbank_core::grant::Left;
    use snowbank_core::keeper::Durable;
    use snowbank_id::layout::{Layout, Position, WorkerSet};
    use snowbank_id::numbering::Numbering;
    use snowbank_state::store::{Beginning, Record, StateDir};
    use snowbank_state::{HostIdentity, Owner};

    fn store() -> (TempDir, DiskStore) {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::lock(directory.path()).unwrap();
        let numbering = Numbering::new(Layout::resolve("twitter").unwrap(), WorkerSet::single(1)).unwrap();
        let host = HostIdentity::default();
        let first = Record::new("orders", &numbering, Position(5), &Owner::new(), &host);
        let mut store = DiskStore::new(state, Vec::new(), &host);
        store.begin(Beginning { sources: vec![(0, first)], ..Beginning::default() }, 0).unwrap();
        (directory, store)
    }

    fn take_over(directory: &Path) {
        fs::remove_file(directory.join("lock")).unwrap();
    }

    fn job(ceiling: u64) -> Job {
        let ceilings = vec![(0, Durable { ceiling: Position(ceiling), generation: 0 })];
        let write = Write {
            writer: 0,
            number: 1,
            ceilings,
            restored: Vec::new(),
            wall_minus_boot_us: 0,
            id_minus_boot_us: 0,
        };
        Job::Write(write)
    }

    #[test]
    fn a_write_is_not_reported_as_durable_once_the_state_is_lost() {
        let (directory, mut store) = store();
        assert!(matches!(run(&mut store, Job::Check), Some(Done::Ours)));
        assert!(matches!(run(&mut store, job(7)), Some(Done::Written(Outcome { failure: None, .. }))));
        let done = run_while(&mut store, job(9), || take_over(directory.path()));
        assert!(matches!(done, Some(Done::Lost(_))));
        let bytes = || fs::read(directory.path().join("ceilings")).unwrap();
        let before = bytes();
        assert!(matches!(run(&mut store, job(11)), Some(Done::Lost(_))));
        let sources = vec![Left { source: 0, id_bound: 6, is_untouched: false }];
        let storage = start(store).unwrap();
        let ended = storage.asks().question(Duration::MAX, move |store| store.end(&sources, false, 0));
        assert!(matches!(ended, Err(NoReply::Ended)), "nothing is trimmed after the loss");
        assert_eq!(bytes(), before, "nothing was written after the loss");
    }
}
