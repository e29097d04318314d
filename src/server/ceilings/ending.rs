//! The end of sources: at a stop, by a reload that removes them, and after a start that failed.
//!
//! ```text
//!  sealed ─▶ mark the locks as lost ─▶ confirm at the coordinator ─▶ mark them as returned
//!         ─▶ trim the state ─▶ free the locks ─▶ give back
//! ```
//!
//! Without an answer, the locks are marked as granted, but only after the trim, and unless a loss was
//! read by then: meanwhile the fleet thread goes on asking.
//!
//! A mark must never be above the state's bound, nor the state's above the coordinator's. If a step
//! fails, the steps that follow are left out, and the worker IDs are as after a kill.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fleet_thread::{self, Work};
use super::job_thread::{Asks, NoReply};
use super::storage_thread;
use crate::server::common::Common;
use crate::server::restored::Life;
use snowbank_core::grant::Left;
use snowbank_fleet::{Bound, FleetError, NoAnswer, Rest};
use snowbank_state::{Fate, StateError, WorkerLocks};

/// The threads that an end waits for, and how long it waits for each of their jobs.
#[derive(Clone, Copy)]
pub(crate) struct Writers<'a> {
    /// `None`: the daemon keeps no state.
    pub(crate) storage: Option<&'a Asks<storage_thread::Job>>,
    pub(crate) disk_limit: Duration,
    /// `None`: the daemon belongs to no fleet.
    pub(crate) fleet: Option<&'a Asks<fleet_thread::Job>>,
    pub(crate) answer_limit: Duration,
    pub(crate) common: &'a Common,
}

/// Sources that hand out nothing any more, or never did, and what they held.
#[derive(Debug)]
pub(crate) struct Ended {
    /// False if their start has failed.
    pub(crate) have_served: bool,
    /// True if a reload has removed them.
    pub(crate) are_removed: bool,
    /// The bounds of the sources that the state has.
    pub(crate) left: Vec<Left>,
    /// The bounds of the worker IDs that go back to the fleet.
    pub(crate) bounds: Vec<Bound>,
    /// The rests of the ranges of shared counters.
    pub(crate) rests: Vec<Rest>,
    /// The locks of their worker IDs, by source.
    pub(crate) locks: BTreeMap<usize, WorkerLocks>,
    /// The sources whose numbers another copy of the machine may hand out too.
    pub(crate) restored: Vec<usize>,
    /// The believed wall clock minus the boot clock when they were sealed.
    pub(crate) wall_minus_boot_us: i64,
    /// The life of the machine in which they were sealed or, if they never served, began to start.
    pub(crate) life: Life,
}

impl Ended {
    /// Ends the sources in all places.
    ///
    /// # Errors
    /// The marks or the ceilings could not be lowered. The next start begins above them.
    pub(crate) fn end(mut self, writers: Writers<'_>) -> Result<(), StateError> {
        if self.have_served {
            // The answer may be a loss, and the process may be killed then.
            self.mark_granted()?;
            self.mark_as(Fate::Lost)?;
        }
        let fate = self.confirm(writers);
        if fate != Fate::Granted {
            self.mark_as(fate)?;
        }
        let sources = std::mem::take(&mut self.left);
        if let Some(storage) = writers.storage.filter(|_| !sources.is_empty()) {
            let restored = std::mem::take(&mut self.restored);
            let (are_removed, wall_minus_boot_us) = (self.are_removed, self.wall_minus_boot_us);
            let ended = storage.question(writers.disk_limit, move |store| {
                store.record_unknown(&restored);
                store.end(&sources, are_removed, wall_minus_boot_us)
            });
            ended.map_err(|reason| StateError::storage(words("storage", reason)))??;
        }
        // What the marks said before a start that has failed stays.
        if self.have_served && fate == Fate::Granted {
            self.mark_as(Fate::Granted)?;
            if writers.common.may_be_lost() {
                self.mark_as(Fate::Lost)?;
            }
        }
        // Another daemon that gets a worker ID must be able to lock it.
        self.locks.clear();
        let Some(fleet) = writers.fleet.filter(|_| fate == Fate::Returned) else { return Ok(()) };
        let Ended { bounds, rests, life, .. } = self;
        let given = answered(fleet.question(writers.answer_limit, move |work| {
            let clocks = work.clocks();
            let member = work.member();
            member.hurry();
            member.give_back(&bounds, &rests, clocks, &|| !life.is_over())
        }));
        if let Err(reason) = given.map_err(FleetError::reason) {
            tracing::warn!(
                "the coordinator did not confirm the release of the worker IDs, so the next start asks it who \
                 holds them; numbers of fleet-ticket sources may be skipped: {reason}"
            );
        }
        Ok(())
    }

    /// Asks the coordinator whether all that goes back is still this daemon's. Returns its fate: returned,
    /// lost (also while the daemon is in doubt), or granted as after a crash if there is no answer. Also granted
    /// if nothing goes back. Without an answer, what a reload removes is marked as lost: the daemon may find a
    /// loss later, when it has no lock of it to say so.
    fn confirm(&self, writers: Writers<'_>) -> Fate {
        let mut sources: Vec<usize> = self.bounds.iter().map(|bound| bound.source).collect();
        sources.extend(self.rests.iter().map(|rest| rest.source));
        let Some(fleet) = writers.fleet.filter(|_| !sources.is_empty()) else { return Fate::Granted };
        let confirm = move |work: &mut Work| {
            let clocks = work.clocks();
            work.member().confirm(&sources, clocks)
        };
        let confirmed = answered(fleet.question(writers.answer_limit, confirm));
        let Err(error) = confirmed else { return Fate::Returned };
        let is_lost = self.are_removed || error.is_loss() || writers.common.may_be_lost();
        let fate = if is_lost { Fate::Lost } else { Fate::Granted };
        tracing::warn!("the worker IDs are not given back, as after a crash: {}", error.reason());
        fate
    }

    /// Marks the locks: granted up to the last bound.
    fn mark_granted(&self) -> Result<(), StateError> {
        for left in &self.left {
            let locks = self.locks.get(&left.source);
            locks.map_or(Ok(()), |locks| locks.mark_granted(left.id_bound)).map_err(not_marked)?;
        }
        Ok(())
    }

    /// Marks the locks of the worker IDs that go back to the fleet.
    fn mark_as(&self, fate: Fate) -> Result<(), StateError> {
        let mut locks = self.bounds.iter().filter_map(|bound| self.locks.get(&bound.source));
        locks.try_for_each(|locks| locks.mark_as(fate).map_err(not_marked))
    }
}

fn not_marked(error: impl std::fmt::Display) -> StateError {
    StateError::storage(format!("cannot mark the worker IDs' locks: {error}"))
}

/// Returns the fleet thread's result. A job without one is a coordinator without an answer.
fn answered(result: Result<Result<(), FleetError>, NoReply>) -> Result<(), FleetError> {
    result.unwrap_or_else(|reason| {
        Err(FleetError::NoAnswer(NoAnswer::passing(words("the coordinator", reason))))
    })
}

/// Returns the reason why a job has no result.
pub(crate) fn words(who: &str, reason: NoReply) -> String {
    match reason {
        NoReply::Ended => format!("{who}: what it works on is lost"),
        NoReply::Late => format!("{who} does not answer"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, mpsc};
    use std::{fs, thread};

    use super::*;
    use crate::server::ceilings::fleet_thread::Fleet;
    use crate::server::ceilings::fleet_thread::tests::start_in_fleet;
    use crate::server::common::tests::common_of;
    use snowbank_core::clock::{BootMicros, Reading};
    use snowbank_core::source::Rules;
    use snowbank_fleet::{Clocks, FleetLimits};
    use snowbank_id::layout::{Layout, Position, UnixMicros};
    use snowbank_id::numbering::Numbering;
    use snowbank_state::store::{Beginning, DiskStore, Record, StateDir};
    use snowbank_state::{HostIdentity, Owner, lock_workers_at_once};

    const LIMIT: Duration = Duration::from_secs(60);
    const BEGAN: Reading = Reading { wall: UnixMicros(1_800_000_000_000_000), boot: BootMicros(0) };

    fn numbering() -> Numbering {
        Numbering::new(Layout::resolve("twitter").unwrap(), "5".parse().unwrap()).unwrap()
    }

    /// Returns a source that has served, with its locks in this directory.
    fn sealed(directory: &Path) -> Ended {
        let mut locks = lock_workers_at_once(directory, &numbering()).unwrap();
        locks.mark_for(&Owner::new());
        locks.mark_granted(7).unwrap();
        Ended {
            have_served: true,
            are_removed: false,
            left: vec![Left { source: 0, id_bound: 9, is_untouched: false }],
            bounds: vec![Bound { source: 0, id_bound: 9 }],
            rests: Vec::new(),
            locks: BTreeMap::from([(0, locks)]),
            restored: Vec::new(),
            wall_minus_boot_us: 0,
            life: Life { began: BEGAN, restores: 0, reported: Arc::default() },
        }
    }

    fn fleet() -> Fleet {
        let limits = FleetLimits::new(LIMIT, Duration::from_secs(10));
        start_in_fleet(&Layout::resolve("twitter").unwrap(), limits, Clocks::at(BEGAN.wall, BEGAN))
    }

    fn mark(directory: &Path) -> String {
        let file = fs::read_dir(directory).unwrap().next().unwrap().unwrap();
        fs::read_to_string(file.path()).unwrap()
    }

    fn await_mark(directory: &Path, word: &str) {
        let deadline = std::time::Instant::now() + LIMIT;
        while !mark(directory).contains(word) {
            assert!(std::time::Instant::now() < deadline, "not {word}: {}", mark(directory));
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_end_that_asks_says_so_in_its_locks_first() {
        let directory = tempfile::tempdir().unwrap();
        let ended = sealed(directory.path());
        let fleet = fleet();
        let (hangs, until) = mpsc::channel::<()>();
        let (begins, has_begun) = mpsc::channel();
        let busy = fleet.asks();
        let busy = thread::spawn(move || busy.question(LIMIT, move |_| (begins.send(()), until.recv())));
        has_begun.recv().unwrap();
        let asks = fleet.asks();
        let ending = thread::spawn(move || {
            let (common, _) = common_of(numbering(), Rules::TICKETS);
            let (disk_limit, answer_limit) = (LIMIT, LIMIT);
            let common = &common;
            ended.end(Writers { storage: None, disk_limit, fleet: Some(&asks), answer_limit, common })
        });
        await_mark(directory.path(), "lost");
        drop(hangs);
        busy.join().unwrap().unwrap().1.unwrap_err();
        // The source holds nothing at this coordinator.
        ending.join().unwrap().unwrap();
        assert!(!mark(directory.path()).contains("lost"), "{}", mark(directory.path()));
    }

    /// Ends a source while the coordinator gives no answer. Calls `reads` while the disk hangs. Returns
    /// the mark.
    fn end_without_an_answer(reads: impl FnOnce(&Common)) -> String {
        let directory = tempfile::tempdir().unwrap();
        let locks = directory.path().join("locks");
        let ended = sealed(&locks);
        let fleet = fleet();
        let (common, _) = common_of(numbering(), Rules::TICKETS);
        let (here, owner) = (HostIdentity::default(), Owner::new());
        let state = StateDir::lock(&directory.path().join("state")).unwrap();
        let mut store = DiskStore::new(state, Vec::new(), &here);
        let record = Record::new("default", &numbering(), Position(9), &owner, &here);
        let ceilings = vec![(0, Position(9))];
        store.begin(Beginning { sources: vec![(0, record)], ceilings, ..Beginning::default() }, 0).unwrap();
        let storage = storage_thread::start(store).unwrap();
        let ending = thread::scope(|scope| {
            let common = &*common;
            let (asks, disk) = (fleet.asks(), storage.asks());
            let (hangs, until) = mpsc::channel::<()>();
            let (goes_on, is_free) = mpsc::channel::<()>();
            let (begins, has_begun) = mpsc::channel();
            let also_begins = begins.clone();
            scope.spawn(move || asks.question(LIMIT, move |_| (begins.send(()), until.recv().is_ok())));
            scope
                .spawn(move || disk.question(LIMIT, move |_| (also_begins.send(()), is_free.recv().is_ok())));
            (0..2).for_each(|_| has_begun.recv().unwrap());
            let (asks, disk) = (fleet.asks(), storage.asks());
            let ending = scope.spawn(move || {
                let (storage, fleet) = (Some(&disk), Some(&asks));
                let answer_limit = Duration::ZERO;
                ended.end(Writers { storage, disk_limit: LIMIT, fleet, answer_limit, common })
            });
            await_mark(&locks, "lost");
            reads(common);
            drop(goes_on);
            let ended = ending.join().unwrap();
            drop(hangs);
            ended
        });
        ending.unwrap();
        mark(&locks)
    }

    /// The fleet thread goes on asking, and reads the loss.
    #[test]
    fn a_loss_that_is_read_beside_the_trim_stays_in_the_locks() {
        assert!(end_without_an_answer(|_| ()).contains("granted"));
        for mark in [
            end_without_an_answer(|common| common.lose("the coordinator went back")),
            end_without_an_answer(|common| common.doubt(true)),
        ] {
            assert!(mark.contains("lost"), "{mark}");
        }
    }
}
