//! The numbers that a daemon holds for a source.

use std::time::Duration;

use super::Note;
use crate::rules::{self, Holding, Loss};
use snowbank_id::numbering::Numbering;

/// The numbers of one source.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) source: String,
    /// The source's index in the daemon.
    pub(super) index: usize,
    /// The numbering of the source's layout with these worker IDs.
    pub(super) numbering: Numbering,
    /// The source's ID space.
    pub(super) space: String,
    /// The source's worker IDs, in text form.
    pub(super) worker_ids: String,
    /// The index of the ID space in the marker.
    pub(super) place: usize,
    pub(super) numbers: Vec<(u64, Holding)>,
    /// The term of the numbers: [`NumberKey::term`](crate::NumberKey).
    pub(super) term: String,
    /// The identity of the marker under which the source took the numbers.
    pub(super) identity: String,
    /// How far ahead of the clock the fleet's ceiling is kept.
    pub(super) horizon: Duration,
    /// How far IDs may be ahead of the wall clock.
    pub(super) max_ahead: Duration,
    /// True once this process has written the keys. A source that started without asking the
    /// coordinator has written none yet.
    pub(super) is_claimed: bool,
    /// The time at which the source took the numbers. It is only shown to people.
    pub(super) since_unix_s: i64,
    /// The lowest bound at which the source may start. The keys never get a lower bound.
    pub(super) floor: u64,
    /// The source may be granted the IDs below this bound.
    pub(super) covered: u64,
    /// The bound that was acknowledged last. After a release or a loss, `covered` is lower.
    pub(super) acknowledged: u64,
    /// True during the pause that follows when numbers are taken, or when a bound is raised that
    /// the clock has already passed. The notes have no ceiling during the pause.
    pub(super) is_unsettled: bool,
    /// True once a release was tried.
    pub(super) is_returned: bool,
    /// The wall clock minus the boot clock when the daemon requested `covered`.
    pub(super) wall_minus_boot_us: i64,
    /// The identity of the write whose outcome is unknown.
    pub(super) trying: Option<String>,
    /// How many connections had been opened when the last write's identity was made.
    pub(super) made_on: u64,
    /// The generation of the grants when the last write's identity was made.
    pub(super) generation: u64,
}

impl Held {
    /// Returns how far the source's IDs may be ahead of other daemons' clocks.
    pub(super) fn reach(&self) -> Duration {
        rules::reach(self.horizon, self.max_ahead)
    }

    /// Returns the message for the loss of a number. `state` is the identity of this daemon's
    /// state.
    pub(super) fn lost(&self, at: usize, loss: &Loss, state: &str) -> String {
        let number = self.numbers[at].0;
        let source = &self.source;
        if let Loss::Taken(key) = loss
            && key.state == state
            && !key.released
        {
            let holder = &key.holder;
            return format!(
                "worker ID {number} of source {source:?}: another copy of this daemon or of its state has written its \
                 key ({holder})"
            );
        }
        format!("worker ID {number} of source {source:?}: {loss}")
    }

    /// Returns the writes that may be the last write of one of the source's keys.
    fn writes(&self) -> Vec<String> {
        let mut writes: Vec<String> = Vec::new();
        for write in self.numbers.iter().flat_map(|(_, holding)| holding.writes()) {
            if !writes.contains(write) {
                writes.push(write.clone());
            }
        }
        writes
    }

    /// Returns the bound that the coordinator had acknowledged for all numbers of the source.
    pub(super) fn lowest_acknowledged(&self) -> u64 {
        self.numbers.iter().map(|(_, holding)| holding.acknowledged()).min().unwrap_or(0)
    }

    pub(super) fn note(&self) -> Note {
        Note {
            source: self.source.clone(),
            space: self.space.clone(),
            place: self.place,
            worker_ids: self.worker_ids.clone(),
            numbers: self.numbers.iter().map(|(number, _)| *number).collect(),
            writes: self.writes(),
            term: self.term.clone(),
            identity: self.identity.clone(),
            acknowledged: self.lowest_acknowledged(),
            floor: self.floor,
            covered: if self.is_unsettled { 0 } else { self.covered },
            is_held: !self.is_unsettled && !self.is_returned,
            wall_minus_boot_us: self.wall_minus_boot_us,
        }
    }
}
