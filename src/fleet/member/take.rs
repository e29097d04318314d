//! The taking of numbers at a start, by writes to their keys.

use super::want::{Busy, JoinError, Taken, Want};
use super::{Held, Member, Note, SWAPS_MAX};
use crate::fleet::rules::{self, Holding, Proof, Taking};
use crate::fleet::{Cluster, Coordinator, Marker, NumberKey, Place, Stored, Swap, Swapped};
use crate::numbering::Numbering;
use snowbank_client::layout::WorkerSet;

/// The most tries to take free numbers, each after another daemon was faster.
pub(super) const TRIES_MAX: usize = 100;

/// A number with the key that was found for it.
pub(super) type Found = (u64, Option<Stored>);

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Checks that the fleet's marker has an ID space, and returns its place.
    ///
    /// # Errors
    /// There is no marker, it has other spaces, or the endpoints are of two clusters.
    pub(super) fn place_of(&mut self, space: &str) -> Result<Place, JoinError> {
        let key = self.paths.marker();
        // First, because it connects to an endpoint that answers.
        self.compare_endpoints()?;
        let found = self.coordinator.as_mut().read(std::slice::from_ref(&key))?.into_iter().next().flatten();
        let Some(stored) = found else {
            return Err(JoinError::Refused(format!(
                "the coordinator has no fleet of this name (key {key}): if it is new, run `snowbank fleet init`; if it \
                 lost its data, stop all daemons of the fleet first"
            )));
        };
        let unreadable = |error| JoinError::Refused(format!("key {key}: {error}"));
        let marker = Marker::parse(&stored.text).map_err(unreadable)?;
        self.stay_in(Cluster::of(&key, &stored.text, Marker::identity_in).map_err(unreadable)?);
        marker.place_of(space).ok_or_else(|| {
            JoinError::Refused(format!(
                "the fleet has other ID spaces (key {key}): found {space}, allowed: {}; correct the layout, or choose \
                 another fleet.name",
                marker.shown()
            ))
        })
    }

    /// Takes these worker IDs.
    ///
    /// # Errors
    /// Another daemon holds one of them, or the coordinator did not answer.
    pub fn take(&mut self, want: Want<'_>, worker_ids: &WorkerSet) -> Result<Taken, JoinError> {
        let place = self.place_of(&want.layout.space().to_string())?;
        let numbers = want.layout.numbers_in_space(worker_ids);
        let numbering = want.numbering(worker_ids)?;
        for _ in 0..TRIES_MAX {
            let keys: Vec<String> =
                numbers.iter().map(|&number| self.paths.number(place.index, number)).collect();
            let found: Vec<Found> =
                numbers.iter().copied().zip(self.coordinator.as_mut().read(&keys)?).collect();
            if let Some(taken) = self.try_take(want, place, (worker_ids, &numbering), found)? {
                return Ok(taken);
            }
        }
        Err(JoinError::Held(format!("source {:?}: other daemons write its keys all the time", want.source)))
    }

    /// Returns this state's note of a source.
    pub(super) fn known(&self, want: Want<'_>) -> Option<&Note> {
        self.notes.of(want.source, &want.layout.space().to_string())
    }

    /// Returns the writes of this state that may be the last of its numbers' keys. If it may be an older copy, only those of
    /// this process, which has handed out nothing yet.
    pub(super) fn own_writes(&self, want: Want<'_>) -> Vec<String> {
        let mut writes = self.known(want).map(|note| note.writes.clone()).unwrap_or_default();
        writes.retain(|write| want.proof >= Proof::Newest || self.first_writes.contains(write));
        writes
    }

    /// Takes numbers whose keys are as found. `None`: they have changed.
    pub(super) fn try_take(
        &mut self,
        want: Want<'_>,
        place: Place,
        (worker_ids, numbering): (&WorkerSet, &Numbering),
        found: Vec<Found>,
    ) -> Result<Option<Taken>, JoinError> {
        let writes = self.own_writes(want);
        let noted_floor = self.known(want).map_or(0, |note| note.floor);
        let (floor, lowest) = self.bounds_of((want, numbering), &found, &writes)?;
        let floor = floor.max(place.floor);
        let covered = want.first_bound(numbering, floor, lowest);
        let mut held = self.held(want, place.index, worker_ids, &found, writes);
        // Until this write is done, the key's last write may be an earlier one of this state, with another floor.
        held.floor = floor.max(noted_floor);
        // The writes before the one that was found cannot be done any more.
        for ((_, holding), (_, stored)) in held.numbers.iter_mut().zip(&found) {
            let _ = holding.see(stored.as_ref(), false);
        }
        let write = held.trying.take().unwrap_or_default();
        self.first_writes.push(write.clone());
        let key = NumberKey::new(&self.state, &self.holder, want.source, held.since_unix_s);
        let text = NumberKey { write: write.clone(), id_bound: covered, ..key }.text();
        self.notes.set(held.note());
        let _ = self.notes.save();
        if !self.swap_all(&mut held, &found, (&write, &text))? {
            return Ok(None);
        }
        // An operator may have replaced the ID space by one that collides with it. The notes have no ceiling yet, so the next
        // start asks the coordinator first.
        if self.place_of(&want.layout.space().to_string())? != place {
            return Err(JoinError::Held(format!(
                "source {:?}: the fleet's marker has just changed",
                want.source
            )));
        }
        (held.floor, held.covered, held.acknowledged) = (floor, covered, covered);
        held.is_claimed = true;
        self.notes.set(held.note());
        let _ = self.notes.save();
        self.sources.push(held);
        Ok(Some(Taken { worker_ids: worker_ids.clone(), floor, covered }))
    }

    /// Returns two ID bounds of numbers whose keys are as found: the lowest at which a source may start, and the highest in
    /// the keys that it resumes.
    fn bounds_of(
        &self,
        (want, numbering): (Want<'_>, &Numbering),
        found: &[Found],
        writes: &[String],
    ) -> Result<(u64, u64), JoinError> {
        let noted_floor = self.known(want).map_or(0, |note| note.floor);
        let (mut floor, mut lowest) = (0, 0);
        for (number, stored) in found {
            match want.judge(numbering, stored.as_ref(), writes) {
                Ok(Taking::New) => {}
                Ok(Taking::Resume) => {
                    lowest = lowest.max(bound_of(stored.as_ref()));
                    floor = floor.max(noted_floor);
                }
                Ok(Taking::Above(bound)) => floor = floor.max(bound),
                Err(busy) => return Err(self.refusal(want, *number, busy)),
            }
        }
        Ok((floor, lowest))
    }

    /// Writes all keys of numbers. Returns `false` if one has changed since it was found.
    fn swap_all(
        &mut self,
        held: &mut Held,
        found: &[Found],
        (write, text): (&str, &str),
    ) -> Result<bool, JoinError> {
        for (chunk, numbers) in found.chunks(SWAPS_MAX).zip(held.numbers.chunks_mut(SWAPS_MAX)) {
            let swap = |(number, stored): &Found| Swap {
                key: self.paths.number(held.place, *number),
                expected: stored.as_ref().map(|stored| stored.version),
                text: text.to_owned(),
            };
            match self.coordinator.as_mut().swap(&chunk.iter().map(swap).collect::<Vec<_>>())? {
                Swapped::Done(version) => {
                    numbers.iter_mut().for_each(|(_, holding)| holding.written(version, write));
                }
                Swapped::Refused(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Returns a source's numbers before their first write. That write's identity is drawn, and counts among those that may
    /// be the last.
    pub(super) fn held(
        &mut self,
        want: Want<'_>,
        place: usize,
        worker_ids: &WorkerSet,
        found: &[Found],
        mut writes: Vec<String>,
    ) -> Held {
        let write = (self.draw)();
        writes.push(write.clone());
        Held {
            source: want.source.to_owned(),
            index: want.index,
            space: want.layout.space().to_string(),
            worker_ids: worker_ids.to_string(),
            place,
            numbers: found.iter().map(|(number, _)| (*number, Holding::unseen(writes.clone()))).collect(),
            is_claimed: false,
            since_unix_s: want.wall.0.div_euclid(1_000_000),
            floor: 0,
            covered: 0,
            acknowledged: 0,
            trying: Some(write),
            drawn_on: self.coordinator.as_mut().connections(),
            generation: 0,
        }
    }

    /// Returns why a number cannot be taken.
    fn refusal(&self, want: Want<'_>, number: u64, busy: Busy) -> JoinError {
        let source = want.source;
        let rules::Held { key, free_at } = match busy {
            Busy::Held(held) => held,
            Busy::Unreadable(reason) => {
                let reason = format!("source {source:?}: the key of worker number {number}: {reason}");
                return JoinError::Refused(reason);
            }
        };
        let (holder, free_at) = (key.holder, free_at.rfc3339(0));
        if key.state == self.state {
            return JoinError::Unproven(format!(
                "source {source:?}: this state or a copy of it holds worker number {number} in the fleet ({holder}), and \
                 no mark in lock_dir since this boot shows that this one is the newest; wait: the number is free from \
                 {free_at} on; or give this source another"
            ));
        }
        JoinError::Held(format!(
            "source {source:?}: {holder} holds worker number {number} in the fleet; give this source another, stop \
             that daemon, or wait: if it no longer runs, the number is free from {free_at} on"
        ))
    }
}

pub(super) fn bound_of(stored: Option<&Stored>) -> u64 {
    stored.and_then(|stored| NumberKey::parse(&stored.text).ok()).map_or(0, |key| key.id_bound)
}
