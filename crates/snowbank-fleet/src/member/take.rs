//! A start takes numbers by writing their keys.

use std::time::Duration;

use super::marker::Noticed;
use super::want::{Busy, Found, Own, Taken, Want};
use super::{Held, Member, Note};
use crate::rules::{self, Holding, Proof, Taking, WRITES_MAX};
use crate::{Coordinator, FleetError, Marker, NUMBERS_MAX, NumberKey, Swap, Swapped, noticed_within};
use snowbank_core::clock::BootMicros;
use snowbank_id::layout::{UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;

/// A start tries to take numbers at most this many times. A try can fail because another daemon is
/// faster.
const TRIES_MAX: usize = 100;

/// What a process remembers from one try to take numbers to the next. While a start waits for a
/// number, it tries again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    /// The identities of the writes by which the process tried to take numbers. If an answer was
    /// lost, the write may have been done. Then the process may take the number even if its state
    /// is an older copy, because it has handed out nothing since that write.
    writes: Vec<String>,
    /// True if this process has waited after an earlier try.
    has_waited: bool,
    /// The floor that this process raised when it found that its state's last write is lost. While it
    /// waits, the same loss raises the floor no further.
    floor: Option<UnixMicros>,
}

impl Tried {
    fn add(&mut self, write: &str) {
        self.writes.push(write.to_owned());
        let spare = self.writes.len().saturating_sub(WRITES_MAX);
        self.writes.drain(..spare);
    }

    fn has(&self, write: &str) -> bool {
        self.writes.iter().any(|tried| tried == write)
    }

    /// Forgets the writes and the loss: IDs were handed out since, or another process may know the same.
    fn forget(&mut self) {
        (self.writes, self.floor) = (Vec::new(), None);
    }
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Takes these worker IDs.
    ///
    /// # Errors
    /// Another daemon holds one of the worker IDs, or the coordinator did not answer.
    pub fn take(&mut self, want: Want<'_>, worker_ids: &WorkerSet) -> Result<Taken, FleetError> {
        self.check_count(worker_ids.len())?;
        let numbers = want.layout.numbers_in_space(worker_ids);
        let numbering = want.numbering(worker_ids)?;
        for _ in 0..TRIES_MAX {
            let want = Want { clocks: self.set_clocks(want.clocks), ..want };
            // Another source may run already, and must soon notice a loss.
            self.poll_if_due()?;
            let place = self.place_for(want)?;
            let keys: Vec<String> = numbers.iter().map(|&number| self.paths.number(place, number)).collect();
            let read_at = self.coordinator.as_mut().now();
            let found = numbers.iter().zip(self.coordinator.as_mut().read(&keys)?);
            let found: Vec<Found> = found.map(|(&number, text)| Found::new(number, text)).collect();
            self.notice(want, place, &found)?;
            self.poll_if_due()?;
            if let Some(taken) = self.try_take(want, place, &numbering, found, read_at)? {
                return Ok(taken);
            }
        }
        Err(FleetError::Held(format!("source {:?}: other daemons changed its keys at each try", want.source)))
    }

    /// Checks that the daemon may have this many worker IDs more.
    pub(super) fn check_count(&self, more: usize) -> Result<(), FleetError> {
        let count = self.sources.iter().map(|held| held.numbers.len()).sum::<usize>().saturating_add(more);
        if count <= NUMBERS_MAX {
            return Ok(());
        }
        Err(FleetError::Refused(format!(
            "found {count} worker IDs, allowed: at most {NUMBERS_MAX} for a daemon of a fleet, so that one message reads \
             all their keys; give the others to another daemon"
        )))
    }

    /// Returns this state's note of a source.
    pub(super) fn known(&self, want: Want<'_>) -> Option<&Note> {
        self.notes.of(&self.fleet, want.source, &want.space())
    }

    /// Returns this state's own writes and its note. If the state may be an older copy, only the
    /// writes of this process count, because this process has handed out nothing yet.
    pub(super) fn own_of(&self, want: Want<'_>) -> Own {
        let marker = self.marker.as_ref().map(|known| &known.marker);
        let floor = marker.map_or(UnixMicros(0), Marker::floor);
        let limits = self.limits;
        let Some(note) = self.known(want) else {
            return Own { writes: Vec::new(), note: None, floor, limits };
        };
        let mut writes = note.writes.clone();
        writes.retain(|write| want.proof >= Proof::Newest || self.tried.has(write));
        let is_of_this_fleet = marker.is_some_and(|marker| marker.identity == note.identity);
        Own { writes, note: is_of_this_fleet.then(|| note.clone()), floor, limits }
    }

    /// Raises the fleet's floor if one of the keys has a lower bound than the coordinator had
    /// acknowledged to this state. Does nothing with less than [`Proof::Lost`], because a later clean
    /// stop may have lowered the bound.
    ///
    /// Here a start notices lost writes of earlier processes. If the start ends early, nobody needs
    /// to notice that its own writes are lost: it has handed out nothing.
    pub(super) fn notice(&mut self, want: Want<'_>, place: usize, found: &[Found]) -> Result<(), FleetError> {
        let note = self.known(want).filter(|_| want.proof >= Proof::Lost).cloned();
        let Some(note) = note else { return Ok(()) };
        if note.identity != self.known_marker()?.marker.identity {
            return Ok(());
        }
        for Found { number, text, key } in found.iter().filter(|found| note.numbers.contains(&found.number)) {
            // A value that cannot be read shows no bound. `Want::judge` refuses its number later.
            let Ok(key) = key else { continue };
            if !rules::went_back(key.as_ref(), &note.term, note.acknowledged, &note.replaced) {
                continue;
            }
            let older = Swap::compare(self.paths.number(place, *number), text.clone());
            let mut granted = self.granted();
            if let Some(key) = key {
                granted.reach = granted.reach.max(key.limits.reach());
            }
            let floor = self.known_marker()?.marker.floor();
            let until = want.layout.space().end_of_tick(note.acknowledged);
            if self.tried.floor.is_some_and(|raised| until <= raised && raised <= floor) {
                return Ok(());
            }
            let noticed = self.raise_floor(Some(older), granted);
            match self.or_ask_again(noticed)? {
                Noticed::WentBack => {
                    self.tried.floor = Some(self.known_marker()?.marker.floor());
                    return Ok(());
                }
                Noticed::OldAnswer => {}
            }
        }
        Ok(())
    }

    /// Raises the floor, once, for a state that holds numbers under a marker with another identity:
    /// see [`Member::meet_other_fleet`].
    pub(super) fn notice_other_fleet(&mut self, want: Want<'_>) -> Result<(), FleetError> {
        let note = self.known(want).filter(|note| want.proof >= Proof::Lost && note.is_held).cloned();
        let Some(note) = note else { return Ok(()) };
        while note.identity != self.known_marker()?.marker.identity {
            let noticed = self.raise_floor_above(self.granted());
            match self.or_ask_again(noticed)? {
                Noticed::WentBack => {
                    // If the note is not kept, the next start raises the floor again.
                    self.notes.set(Note { is_held: false, ..note });
                    self.notes.begin();
                    break;
                }
                Noticed::OldAnswer => self.read_marker()?,
            }
        }
        Ok(())
    }

    /// If a start has found a loss, and the floor could not be raised, forgets all ceilings: no source may
    /// go on without asking, because other daemons that start may get the same IDs. For the same reason a
    /// daemon that serves ends.
    fn or_ask_again(&mut self, noticed: Result<Noticed, FleetError>) -> Result<Noticed, FleetError> {
        if let Err(error) = &noticed {
            self.lose(FleetError::WentBack(format!(
                "a source that starts found that the coordinator went back, and could not raise the floor: {error}"
            )));
            self.forget_ceilings();
        }
        noticed
    }

    /// Takes numbers if their keys still have the values that were found. `read_at` is an instant
    /// before they were read. Returns `None` if a key or the marker has changed, or if the answer came
    /// too late to go on without a pause.
    pub(super) fn try_take(
        &mut self,
        want: Want<'_>,
        place: usize,
        numbering: &Numbering,
        found: Vec<Found>,
        read_at: BootMicros,
    ) -> Result<Option<Taken>, FleetError> {
        let own = self.own_of(want);
        let noted_floor = self.known(want).map_or(0, |note| note.floor);
        let mut taken = self.bounds_of(want, place, numbering, &found, &own)?;
        let write = (self.new_identity)();
        let mut held = self.held(want, place, numbering, &found, &own);
        if !taken.is_same_term {
            held.term = (self.new_identity)();
        }
        assert!(!held.term.is_empty() && !held.identity.is_empty(), "no key is written without them");
        // If this write is not done, the key's last write may be an earlier write of this state,
        // with another floor.
        held.floor = taken.floor.max(noted_floor);
        // Forgets the writes before the write that was found: the coordinator can no longer do
        // them.
        for ((_, holding), found) in held.numbers.iter_mut().zip(&found) {
            holding.try_write(&write);
            let _ = holding.see(found.text.as_deref(), &found.key, &held.term);
        }
        // While this start waited, the coordinator may have been restored. Then another holder's
        // write that came after the release may be lost.
        let is_release_stale = self.tried.has_waited && !taken.is_same_term;
        let was_tried = found.iter().filter_map(Found::readable).any(|key| self.tried.has(&key.write));
        taken.is_new |= is_release_stale || was_tried;
        self.tried.add(&write);
        held.is_unsettled = taken.is_new;
        if let Some(note) = own.note.as_ref().filter(|note| note.is_held && !taken.is_new) {
            // Until this write is answered, a start may go on below the ceiling that was.
            (held.covered, held.acknowledged) = (note.covered, note.covered);
            held.wall_minus_boot_us = note.wall_minus_boot_us;
        }
        let key = NumberKey { write, ..self.value(&held, taken.covered, false) };
        self.notes.set(held.note(&self.fleet, self.limits));
        self.notes.begin();
        self.await_notes()?;
        let at = self.coordinator.as_mut().now();
        if !self.swap_all(&mut held, &found, &key)? {
            return Ok(None);
        }
        // A daemon that took the numbers after they were read pauses at least this long before it hands
        // out anything. If the answer comes later, because it took long or the machine slept, the
        // coordinator may have lost that daemon's write. The next try finds this write, and pauses.
        let took = self.coordinator.as_mut().now().since(read_at);
        if !taken.is_new && took >= noticed_within(Duration::ZERO) {
            return Ok(None);
        }
        (held.floor, held.covered, held.acknowledged) = (taken.floor, taken.covered, taken.covered);
        held.wall_minus_boot_us = held.made_with_us;
        held.is_claimed = true;
        self.sources.push(held);
        self.store_note(self.sources.len() - 1);
        if self.polled.is_none() {
            self.record_taken(at);
        }
        Ok(Some(taken))
    }

    /// Returns what a source takes with these keys.
    fn bounds_of(
        &self,
        want: Want<'_>,
        place: usize,
        numbering: &Numbering,
        found: &[Found],
        own: &Own,
    ) -> Result<Taken, FleetError> {
        let noted_floor = self.known(want).map_or(0, |note| note.floor);
        let fleets_floor = rules::bound_above(numbering, self.known_marker()?.marker.floor());
        // Without a note of this marker there is no term to continue.
        let (mut is_same_term, mut is_new) = (own.note.is_some(), false);
        // The lowest bound at which the source may start, and the lowest that its first write may have.
        let (mut floor, mut unused_from) = (0_u64, 0_u64);
        for found in found {
            let (lowest, is_released) = match want.judge(numbering, found, own) {
                Ok(Taking::Resume) => {
                    let acknowledged = own.note.as_ref().map_or(0, |note| note.acknowledged);
                    let key = found.readable();
                    let lowest = key.map_or(0, |key| key.id_bound).max(acknowledged);
                    (lowest, key.is_some_and(|key| key.released))
                }
                Ok(Taking::Again(acknowledged)) => (acknowledged, false),
                Ok(Taking::Above(bound)) => {
                    floor = floor.max(bound).max(fleets_floor);
                    (is_same_term, is_new) = (false, true);
                    continue;
                }
                Err(busy) => return Err(self.refusal(want, place, found.number, busy)),
            };
            unused_from = unused_from.max(lowest);
            floor = floor.max(noted_floor);
            // A bound that this state has not seen acknowledged proves nothing about the time before.
            let acknowledged = own.note.as_ref().map_or(0, |note| note.acknowledged);
            let until = rules::instant_of(numbering, lowest.min(acknowledged));
            let is_ahead = !rules::may_be_abandoned(until, want.clocks.latest(), self.limits.max_ahead());
            // `is_held` is also false if an earlier pause was cut short.
            let is_held = own.note.as_ref().is_some_and(|note| note.is_held);
            // A release makes `is_held` false.
            if !is_ahead || !is_held {
                floor = floor.max(fleets_floor);
                is_same_term &= !is_released;
                // A clean restart needs no pause: the release is the key's last write.
                is_new |= !is_released;
            }
        }
        unused_from = unused_from.max(floor);
        let covered = want.first_bound(numbering, self.limits, floor, unused_from);
        let worker_ids = want.worker_ids(numbering);
        Ok(Taken { worker_ids, floor, unused_from, covered, is_new, is_same_term })
    }

    /// Writes the keys of all numbers by one swap. Returns `false` if a key or the marker no longer has the
    /// value that was found.
    fn swap_all(&mut self, held: &mut Held, found: &[Found], key: &NumberKey) -> Result<bool, FleetError> {
        let marker = self.known_marker()?.text.clone();
        let text = key.text();
        let mut swaps = vec![Swap::compare(self.paths.marker(), Some(marker))];
        for Found { number, text: before, .. } in found {
            let name = self.paths.number(held.place, *number);
            swaps.push(Swap::write(name, before.clone(), text.clone()));
        }
        let is_done = self.coordinator.as_mut().swap(&swaps)? == Swapped::Done;
        if is_done {
            held.numbers.iter_mut().for_each(|(_, holding)| holding.written(&text, key));
        }
        Ok(is_done)
    }

    /// Returns a source with numbers whose keys are not written yet. Its term and its marker's
    /// identity are those of its note, if it has one.
    pub(super) fn held(
        &mut self,
        want: Want<'_>,
        place: usize,
        numbering: &Numbering,
        found: &[Found],
        own: &Own,
    ) -> Held {
        let known = self.marker.as_ref().map(|known| &known.marker.identity);
        let noted = own.note.as_ref().map(|note| (&note.term, &note.identity));
        let (term, identity) = noted.unzip();
        let mut numbers = Vec::new();
        for &Found { number, .. } in found {
            let noted = own.noted(number);
            let replaced = noted.map_or_else(Vec::new, |note| note.replaced.clone());
            let acknowledged = noted.map_or(0, |note| note.acknowledged);
            numbers.push((number, Holding::unseen(own.writes.clone(), replaced, acknowledged)));
        }
        Held {
            source: want.source.to_owned(),
            index: want.index,
            numbering: numbering.clone(),
            space: want.space(),
            worker_ids: want.worker_ids(numbering).to_string(),
            place,
            numbers,
            term: term.cloned().unwrap_or_default(),
            identity: identity.or(known).cloned().unwrap_or_default(),
            is_claimed: false,
            since_unix_s: want.clocks.wall.0.div_euclid(1_000_000),
            floor: 0,
            covered: 0,
            acknowledged: 0,
            is_unsettled: false,
            passed: None,
            released_by: None,
            wall_minus_boot_us: want.clocks.wall_minus_boot_us,
            trying: None,
            made_with_us: want.clocks.wall_minus_boot_us,
            made_on: self.coordinator.as_mut().connections(),
            generation: 0,
        }
    }

    fn refusal(&self, want: Want<'_>, place: usize, number: u64, busy: Busy) -> FleetError {
        let source = want.source;
        let rules::Held { key, free_at } = match busy {
            Busy::Held(held) => held,
            Busy::Unreadable(error) => {
                let key = self.paths.number(place, number);
                return FleetError::Unreadable(format!(
                    "source {source:?}: worker ID {number} (key {key}): {error}"
                ));
            }
        };
        let holder = key.holder;
        let free_at = free_at.rfc3339(0);
        if key.released {
            return FleetError::Held(format!(
                "source {source:?}: worker ID {number} was released, but {holder}, which had it, may have handed out IDs \
                 ahead of this clock; wait until {free_at}, or give this source another worker ID"
            ));
        }
        if key.state == self.state {
            return FleetError::Held(format!(
                "source {source:?}: this state or a copy of it holds worker ID {number} in the fleet ({holder}), and \
                 no mark in lock_dir from this boot proves that this state is the newest; wait until {free_at}, or give \
                 this source another worker ID"
            ));
        }
        FleetError::Held(format!(
            "source {source:?}: {holder} holds worker ID {number} in the fleet; give this source another worker ID, stop \
             that daemon, or wait: if that daemon no longer runs, its worker ID is free from {free_at} on"
        ))
    }
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Forgets the numbers of these sources, whose start has failed, and remembers the writes that
    /// took them. The next try asks the coordinator who holds the numbers. If no source is left,
    /// the next try compares the endpoints and reads the marker, as a first try does.
    pub fn give_up(&mut self, sources: &[usize]) {
        self.tried.has_waited = true;
        self.sources.retain(|held| !sources.contains(&held.index));
        self.idle.retain(|index| !sources.contains(index));
        self.forget_counters(sources);
        if self.sources.is_empty() && self.counters.is_empty() {
            (self.marker, self.polled) = (None, None);
            self.are_compared = false;
            self.coordinator.as_mut().set_cluster(None);
        }
    }
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Forgets sources that have ended, and all writes of this process: IDs were handed out since.
    pub fn leave(&mut self, sources: &[usize]) {
        self.give_up(sources);
        self.tried.forget();
    }

    /// Forgets what this process remembers of its writes and ceilings, because the machine was
    /// restored from a snapshot. Another copy of the machine may remember the same. The next try to
    /// take numbers asks the coordinator.
    pub fn record_restored(&mut self) {
        self.notes.forget();
        self.tried.forget();
    }

    /// Gives these sources other names. The keys get them with their next write.
    pub fn rename(&mut self, names: &[(usize, String)]) {
        for (index, name) in names {
            let Some(at) = self.sources.iter().position(|held| held.index == *index) else { continue };
            self.sources[at].source.clone_from(name);
            self.store_note(at);
        }
    }
}
