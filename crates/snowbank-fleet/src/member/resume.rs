//! Starts that go on without an answer from the coordinator, under the numbers that the state had.
//!
//! Such a start is safe for the same reason as a daemon that runs through an outage, or wakes up
//! late: it hands out nothing above the ceiling that the coordinator has acknowledged, and every
//! other daemon that takes the number starts at that ceiling or above. So nothing depends on what
//! the key has become. The proof that the ceiling is this daemon's is local:
//!
//! - The state is the newest of its copies, and no clean stop has returned the numbers
//!   ([`Proof::Held`]). Of this state's writes, only the release of a clean stop lowers a key's
//!   bound. A stop marks the numbers as returned before it sends a release, and it sends one only
//!   once the coordinator has confirmed the numbers ([`Member::confirm`]). So a stop in an outage
//!   returns nothing, and a release whose answer was lost counts as done: another daemon may have
//!   the number at a lower bound than this state's. The machine was neither booted nor restored:
//!   [`Notes`](super::Notes) checks this. So all that was granted under the note is below the
//!   state's own ceiling.
//! - The note is of these numbers, of this fleet, and of this directory ([`Notes`](super::Notes)).
//!   A copy that was made together with `lock_dir` is in another directory.
//! - The difference of the clocks is the one that was noted with the ceiling. The state keeps a
//!   difference too, but a daemon that notices a jump stores the new difference there before the
//!   coordinator has acknowledged a ceiling again.
//! - The ceiling was acknowledged. A raise whose outcome is unknown leaves the note as it was.
//!
//! The start writes no note. So a chain of starts that are killed has one proof and one ceiling,
//! until a raise is acknowledged. When the ceiling is near, a start asks the coordinator.
//!
//! The first call afterwards checks the marker, and writes the keys ([`Member::look`]). So if the
//! proof failed, because nothing showed that the machine was restored from a snapshot, one of two
//! copies ends at once. A daemon that has lost its number forgets its ceiling before it ends, so
//! that its next start asks.

use super::{Held, Member};
use crate::member::want::{Found, Own, Taken, Want};
use crate::rules::{self, Proof};
use crate::{Coordinator, FleetError};
use snowbank_core::clock;
use snowbank_id::layout::{UnixMicros, WorkerSet};

/// The part of the horizon, as a divisor, that a start must have left to go on without asking. A
/// daemon that runs has at least half of its horizon left. So its restart may take a quarter, and
/// as much is left for the coordinator's first answer.
const LEFT_MIN: u32 = 4;

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Continues at once with the worker IDs that this state had, if their ceiling is far enough
    /// ahead. Otherwise the start must ask the coordinator.
    pub fn resume_at_once(&mut self, want: Want<'_>, worker_ids: &WorkerSet) -> Option<Taken> {
        let numbering = want.numbering(worker_ids).ok()?;
        let ceiling = numbering.position_from(self.known(want)?.covered);
        let is_enough = rules::left(&numbering, ceiling, want.clocks.wall) >= want.horizon / LEFT_MIN;
        if is_enough { self.resume_unseen(want, worker_ids) } else { None }
    }

    /// Continues with the worker IDs that this state had, while the coordinator does not answer.
    /// Returns `None` if the state had other worker IDs, has no ceiling for these, or lacks the
    /// proof.
    pub fn resume_unseen(&mut self, want: Want<'_>, worker_ids: &WorkerSet) -> Option<Taken> {
        self.set_clocks(want.clocks);
        let note = self.known(want).filter(|note| want.proof == Proof::Held && note.covered > 0)?.clone();
        if self.has_jumped(want) {
            return None;
        }
        let numbers = want.layout.numbers_in_space(worker_ids);
        // The same worker ID is another number if a constant of the layout has changed.
        if self.own(want).as_ref() != Some(worker_ids) || note.numbers != numbers {
            return None;
        }
        let found: Vec<Found> = numbers.into_iter().map(|number| Found::new(number, None)).collect();
        let own = Own { writes: note.writes.clone(), note: Some(note.clone()), floor: UnixMicros(0) };
        let numbering = want.numbering(worker_ids).ok()?;
        let mut held = self.held(want, note.place, &numbering, &found, &own);
        held.identity.clone_from(&note.identity);
        held.wall_minus_boot_us = note.wall_minus_boot_us;
        (held.floor, held.covered, held.acknowledged) = (note.floor, note.covered, note.covered);
        // Nothing was tried yet. The first write is drawn when the coordinator can be asked.
        held.trying = None;
        self.sources.push(held);
        let worker_ids = worker_ids.clone();
        let floor = note.floor;
        let covered = note.covered;
        Some(Taken { worker_ids, floor, unused_from: covered, covered, is_new: false, is_same_term: true })
    }

    /// Returns whether the clocks have jumped against each other since the noted ceiling was asked
    /// for. The machine may have been restored from a snapshot.
    pub fn has_jumped(&self, want: Want<'_>) -> bool {
        let note = self.known(want).filter(|note| note.covered > 0);
        note.is_some_and(|note| clock::has_jumped(want.clocks.wall_minus_boot_us, note.wall_minus_boot_us))
    }

    /// Checks the marker for a source that went on without asking, as other starts do before they
    /// take a number. The marker is read only once, because each write compares it.
    pub(super) fn check_marker(&mut self, source: usize) -> Result<(), FleetError> {
        let Some(held) = self.sources.get(source).filter(|held| !held.is_claimed) else { return Ok(()) };
        let space = held.space.clone();
        let noted = held.place;
        let identity = held.identity.clone();
        let horizon = held.horizon;
        // The reaches of all sources are recorded at once, so that there is one pause.
        let unclaimed = self.sources.iter().filter(|held| !held.is_claimed);
        let reach = unclaimed.map(Held::reach).max().unwrap_or_default();
        let place = if self.marker.is_some() { self.check_space(&space) } else { self.place_of(&space) };
        let recorded = place.and_then(|_| self.record_reach(horizon, reach, false));
        recorded?;
        if self.check_space(&space)? == noted && self.known_marker()?.marker.identity == identity {
            self.check_passed(source)
        } else {
            Err(self.meet_other_fleet())
        }
    }

    /// Forgets all ceilings, so that the next start asks the coordinator. If the notes cannot be
    /// written, that start goes on below its ceiling, and ends as this daemon does.
    pub(super) fn forget_ceilings(&mut self) {
        for at in 0..self.sources.len() {
            self.sources[at].covered = 0;
            self.notes.set(self.sources[at].note());
        }
        let _ = self.notes.save();
    }
}
