//! The end of sources: at a stop, by a reload that removes them, and after a start that failed.
//!
//! ```text
//!  sealed ─▶ confirm at the coordinator ─▶ mark the locks ─▶ trim the state
//!         ─▶ free the locks ─▶ give back
//! ```
//!
//! A mark must never be above the state's bound, nor the state's above the coordinator's. If a step
//! fails, the steps that follow are left out, and the worker IDs are as after a kill.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::fleet_thread::{self, Work};
use super::job_thread::{Asks, NoReply};
use super::storage_thread;
use crate::server::restored::Life;
use snowbank_core::grant::Left;
use snowbank_fleet::{Bound, FleetError, NoAnswer, Rest};
use snowbank_state::{Fate, StateError, WorkerLocks};

/// The threads that an end waits for, and how long it waits for each of their jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writers<'a> {
    /// `None`: the daemon keeps no state.
    pub(crate) storage: Option<&'a Asks<storage_thread::Job>>,
    pub(crate) disk_limit: Duration,
    /// `None`: the daemon belongs to no fleet.
    pub(crate) fleet: Option<&'a Asks<fleet_thread::Job>>,
    pub(crate) answer_limit: Duration,
    /// True while the daemon asks whether it has lost a worker ID.
    pub(crate) in_doubt: &'a AtomicBool,
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
        let fate = self.confirm(writers);
        self.mark(fate)?;
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
        let is_lost = self.are_removed || error.is_loss() || writers.in_doubt.load(Ordering::SeqCst);
        let fate = if is_lost { Fate::Lost } else { Fate::Granted };
        tracing::warn!("the worker IDs are not given back, as after a crash: {}", error.reason());
        fate
    }

    /// Marks the locks: granted up to the last bound, with the fate of those that go back. A source that
    /// never served has marks of earlier times, which keep their bounds.
    fn mark(&self, fate: Fate) -> Result<(), StateError> {
        for (&source, locks) in &self.locks {
            if self.have_served {
                let Some(left) = self.left.iter().find(|left| left.source == source) else { continue };
                locks.mark_granted(left.id_bound).map_err(not_marked)?;
            }
            // As after a crash, what a mark says of the fleet stays.
            if fate != Fate::Granted && self.bounds.iter().any(|bound| bound.source == source) {
                locks.mark_as(fate).map_err(not_marked)?;
            }
        }
        Ok(())
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
