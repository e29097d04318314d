//! The numbers that a daemon holds for a source.

use std::fmt;

use super::Note;
use crate::rules::{self, Holding, Loss};
use crate::{FleetLimits, Paths};
use snowbank_id::layout::UnixMicros;
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
    /// The bound that had passed when the source began to raise it. `None` after the pause, and for
    /// a source that starts.
    pub(super) passed: Option<u64>,
    /// The identity of the release, once one was tried.
    pub(super) released_by: Option<String>,
    /// The wall clock minus the boot clock before the identity was made of the write that granted
    /// `covered`. Of two copies of a memory, both may know an identity that was made before they
    /// parted.
    pub(super) wall_minus_boot_us: i64,
    /// The identity of the write whose outcome is unknown.
    pub(super) trying: Option<String>,
    /// The wall clock minus the boot clock before the last write's identity was made.
    pub(super) made_with_us: i64,
    /// How many connections had been opened when the last write's identity was made.
    pub(super) made_on: u64,
    /// The generation of the grants when the last write's identity was made.
    pub(super) generation: u64,
}

impl Held {
    /// Returns the message for the loss of a number. `paths` are the fleet's keys, and `state` is the
    /// identity of this daemon's state.
    pub(super) fn lost(&self, at: usize, loss: &Loss, paths: &Paths, state: &str) -> String {
        if let Loss::Taken(key) = loss
            && key.state == state
            && !key.released
        {
            let holder = &key.holder;
            return self.named(
                at,
                paths,
                &format_args!("another copy of this daemon or of its state has written its key ({holder})"),
            );
        }
        self.named(at, paths, loss)
    }

    /// Returns a message about the number at this index and its key.
    pub(super) fn named(&self, at: usize, paths: &Paths, what: &impl fmt::Display) -> String {
        let number = self.numbers[at].0;
        let key = paths.number(self.place, number);
        format!("worker ID {number} of source {:?} (key {key}): {what}", self.source)
    }

    /// Returns the identity of the write that is about to be tried.
    ///
    /// # Panics
    /// Panics if the write has none: then the daemon could not recognise it.
    pub(super) fn trying(&self) -> &str {
        self.trying.as_deref().expect("each write has an identity")
    }

    /// Returns the instant of the bound that the coordinator acknowledged for the number at this
    /// index.
    pub(super) fn until(&self, at: usize) -> UnixMicros {
        rules::instant_of(&self.numbering, self.numbers[at].1.acknowledged())
    }

    /// Returns the writes of all numbers, each once.
    fn each_once(&self, of: fn(&Holding) -> &[String]) -> Vec<String> {
        let mut writes: Vec<String> = Vec::new();
        for write in self.numbers.iter().flat_map(|(_, holding)| of(holding)) {
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

    /// Returns the source's note, in the fleet of this name and with these limits.
    ///
    /// A release stands in the note only once the coordinator has acknowledged it, and not if the source
    /// was still in its pause or its bound had passed by then. Otherwise another daemon may have had the
    /// numbers before the release was done, so the next start must not take the release for its own and
    /// go on without a pause. If the release was not done, the next start recognises the write before
    /// it, and pauses.
    pub(super) fn note(&self, fleet: &str, limits: FleetLimits) -> Note {
        assert!(
            self.covered <= self.acknowledged,
            "nothing is granted above what the coordinator acknowledged"
        );
        let mut writes = self.each_once(Holding::writes);
        if self.is_unsettled || self.trying.is_some() {
            writes.retain(|write| self.released_by.as_ref() != Some(write));
        }
        Note {
            fleet: fleet.to_owned(),
            limits,
            source: self.source.clone(),
            space: self.space.clone(),
            place: self.place,
            worker_ids: self.worker_ids.clone(),
            numbers: self.numbers.iter().map(|(number, _)| *number).collect(),
            writes,
            replaced: self.each_once(Holding::replaced),
            term: self.term.clone(),
            identity: self.identity.clone(),
            acknowledged: self.lowest_acknowledged(),
            floor: self.floor,
            covered: if self.is_unsettled { 0 } else { self.covered },
            is_held: !self.is_unsettled && self.released_by.is_none(),
            wall_minus_boot_us: self.wall_minus_boot_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::member::tests::{holder, limits, store};

    #[test]
    #[should_panic(expected = "nothing is granted above what the coordinator acknowledged")]
    fn no_note_has_a_ceiling_that_was_not_acknowledged() {
        let (mut member, covered) = holder(&store());
        member.sources[0].covered = covered + 1;
        member.sources[0].note("f", limits());
    }
}
