//! Starts that go on without asking the coordinator, with the worker IDs that the state had. In the
//! fleet, a worker ID is known by its *number*, which [the crate](crate) defines.
//!
//! Such a start is safe for the same reason as a daemon that runs through an outage or wakes up
//! late. The start hands out nothing above the ceiling that the coordinator has acknowledged, and
//! every other daemon that takes the number starts at that ceiling or above. So the key's present
//! value does not matter. The start proves without the coordinator that the ceiling is its own:
//!
//! - The state is the newest of its copies, and no clean stop has returned the numbers
//!   ([`Proof::Held`]). Of this state's writes, only a release lowers a key's bound. A stop first
//!   lets the coordinator confirm the numbers ([`Member::confirm`]), then marks them as returned,
//!   and then sends the release. So a stop in an outage returns nothing. If the answer to a release
//!   was lost, the next start must ask, because another daemon may have the number at a lower
//!   bound.
//! - The source's *note*, in the state's file `fleet` ([`Notes`](super::Notes)), was made in the
//!   present boot, and nothing reports that the machine was restored from a snapshot since then. So
//!   the marks in `lock_dir`, which a boot may remove, cover all IDs that were granted under the
//!   note. The ceiling that the state itself stores is above them.
//! - The note names these numbers, this fleet and this directory. If the state was copied together
//!   with `lock_dir`, the copy is in another directory.
//! - The difference of the clocks is the one that was noted with the ceiling. The difference in the
//!   state file is not enough. After a jump, a daemon stores the new difference there before the
//!   coordinator has acknowledged a ceiling again.
//! - The ceiling was acknowledged. A raise whose outcome is unknown does not change the noted
//!   ceiling.
//!
//! The start writes no note of its numbers. So if starts are killed one after the other, all of them use the same
//! proof and the same ceiling, until a raise is acknowledged. When the ceiling is near, a start
//! asks the coordinator. A start that asked and got no grant has lost its proof, because it may have
//! read that its number is lost.
//!
//! The first [`Member::check`] compares the marker, and writes the keys. The proof is wrong in one
//! case: the machine was restored from a snapshot, and nothing showed that. Then there are two
//! copies of the daemon, and the write of the keys ends one of them. A daemon that has lost its
//! number marks its locks before it ends ([`Proof::Lost`]), and forgets its ceiling, so that its next
//! start asks the coordinator.

use super::Member;
use crate::member::want::{Found, Own, Taken, Want};
use crate::rules::{self, Proof};
use crate::{Coordinator, FleetError};
use snowbank_core::clock;
use snowbank_id::layout::{UnixMicros, WorkerSet};

/// A start must ask the coordinator unless its ceiling is ahead by at least the horizon divided by
/// this. The ceiling of a running daemon is at least half of its horizon ahead. So a restart of
/// that daemon may take a quarter of the horizon, and another quarter is left for the coordinator's
/// first answer.
const LEFT_MIN: u32 = 4;

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Goes on without asking, and keeps the worker IDs that this state had, if their ceiling is
    /// far enough ahead. Otherwise returns `None`: the start must ask the coordinator.
    pub fn resume_at_once(&mut self, want: Want<'_>, worker_ids: &WorkerSet) -> Option<Taken> {
        let numbering = want.numbering(worker_ids).ok()?;
        let ceiling = numbering.position_from(self.known(want)?.covered);
        let is_enough =
            rules::left(&numbering, ceiling, want.clocks.wall) >= self.limits.horizon() / LEFT_MIN;
        if is_enough { self.resume_unseen(want, worker_ids) } else { None }
    }

    /// Goes on without asking, and keeps the worker IDs that this state had, however near their
    /// ceiling is. A start also calls this if the coordinator did not answer. Returns `None` in
    /// five cases: the state had other worker IDs or numbers, it has no ceiling for them, it lacks
    /// the proof, the clocks have jumped, or the configuration has other limits.
    pub fn resume_unseen(&mut self, want: Want<'_>, worker_ids: &WorkerSet) -> Option<Taken> {
        self.set_clocks(want.clocks);
        let note = self.known(want).filter(|note| want.proof == Proof::Held && note.covered > 0)?.clone();
        // The limits belong to the fleet, and only the coordinator knows whether they have changed.
        if self.has_jumped(want) || note.limits != self.limits {
            return None;
        }
        let numbers = want.layout.numbers_in_space(worker_ids);
        // If a constant of the layout has changed, the same worker ID has another number.
        if self.own(want).as_ref() != Some(worker_ids) || note.numbers != numbers {
            return None;
        }
        let found: Vec<Found> = numbers.into_iter().map(|number| Found::new(number, None)).collect();
        let own = Own {
            writes: note.writes.clone(),
            note: Some(note.clone()),
            floor: UnixMicros(0),
            limits: note.limits,
        };
        let numbering = want.numbering(worker_ids).ok()?;
        let mut held = self.held(want, note.place, &numbering, &found, &own);
        assert!(!held.term.is_empty() && !held.identity.is_empty(), "each note has a term and an identity");
        held.wall_minus_boot_us = note.wall_minus_boot_us;
        (held.floor, held.covered, held.acknowledged) = (note.floor, note.covered, note.covered);
        self.sources.push(held);
        let worker_ids = worker_ids.clone();
        let floor = note.floor;
        let covered = note.covered;
        Some(Taken { worker_ids, floor, unused_from: covered, covered, is_new: false, is_same_term: true })
    }

    /// Returns whether the clocks have jumped against each other since the noted ceiling was
    /// requested. If so, the machine may have been restored from a snapshot.
    pub fn has_jumped(&self, want: Want<'_>) -> bool {
        let note = self.known(want).filter(|note| note.covered > 0);
        note.is_some_and(|note| clock::has_jumped(want.clocks.wall_minus_boot_us, note.wall_minus_boot_us))
    }

    /// Checks the marker for a source that went on without asking, as other starts do before they
    /// take a number. Reads the marker only the first time: later, each write fails if the marker
    /// has changed.
    pub(super) fn check_marker(&mut self, source: usize) -> Result<(), FleetError> {
        let held = &self.sources[source];
        if held.is_claimed {
            return Ok(());
        }
        let (space, noted, identity) = (held.space.clone(), held.place, held.identity.clone());
        if self.marker.is_none() {
            self.read_marker()?;
        }
        if self.known_marker()?.marker.identity == identity && self.check_space(&space)? == noted {
            self.check_passed(source)
        } else {
            Err(self.meet_other_fleet())
        }
    }

    /// Forgets all ceilings after a loss, so that each next start asks the coordinator: what has lost one
    /// write may have lost others. Only sources that go on serving keep theirs. Waits for no disk, because
    /// the loss must take the grants away first. The marks of the locks say the same.
    pub(super) fn forget_ceilings(&mut self) {
        self.notes.forget_ceilings();
        for at in 0..self.sources.len() {
            let held = &mut self.sources[at];
            if self.lost.is_some() || self.idle.contains(&held.index) {
                held.covered = 0;
            }
            self.notes.set(self.sources[at].note(&self.fleet, self.limits));
        }
        self.notes.begin();
    }
}
