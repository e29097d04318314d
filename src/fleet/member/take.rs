//! The taking of numbers at a start: those that are given, or free ones.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Bound, Held, Member, Note, SWAPS_MAX, Stop};
use crate::clock::{self, BootMicros, Now};
use crate::fleet::rules::{self, Holding, Taker, Taking};
use crate::fleet::{Coordinator, Marker, NoAnswer, NumberKey, Stored, Swap, Swapped};
use crate::numbering::Numbering;
use snowbank_client::layout::{Layout, LayoutError, UnixMicros, WorkerSet};

/// The most tries to take free numbers, each after another daemon was faster.
const TRIES_MAX: usize = 100;

/// A source that wants numbers.
#[derive(Clone, Copy, Debug)]
pub struct Want<'a> {
    /// The source's index in the daemon.
    pub index: usize,
    /// The source's name.
    pub source: &'a str,
    /// Its layout.
    pub layout: &'a Layout,
    /// The wall clock, as far as it is believed.
    pub wall: UnixMicros,
    /// True if the state is the newest of its copies for the worker IDs that it had: [`rules::is_newest`].
    pub is_newest: bool,
    /// The distance that IDs may be ahead of it.
    pub max_ahead: Duration,
    /// The distance that the fleet's ceiling is kept ahead.
    pub horizon: Duration,
}

/// Numbers that were taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The worker IDs.
    pub worker_ids: WorkerSet,
    /// The source starts at this ID bound or above. 0: at its own ceiling.
    pub floor: u64,
    /// The fleet's ceiling, as an ID bound. 0: none is known, and nothing may be handed out before a raise.
    pub covered: u64,
}

/// The reason why a daemon cannot join its fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The coordinator did not answer.
    #[error("the coordinator does not answer: {0}")]
    NoAnswer(NoAnswer),
    /// Only an operator can change it.
    #[error("{0}")]
    Refused(String),
    /// Other daemons hold the numbers now.
    #[error("{0}")]
    Held(String),
}

impl From<NoAnswer> for JoinError {
    fn from(answer: NoAnswer) -> Self {
        JoinError::NoAnswer(answer)
    }
}

impl Want<'_> {
    fn numbering(&self, worker_ids: &WorkerSet) -> Result<Numbering, JoinError> {
        let made = Numbering::new(self.layout.clone(), worker_ids.clone());
        made.map_err(|error: LayoutError| JoinError::Refused(format!("source {:?}: {error}", self.source)))
    }

    /// Decides whether a key's number may be taken, at a coordinator that may lose its last writes or not.
    fn judge(
        &self,
        (numbering, may_lose_writes): (&Numbering, bool),
        stored: Option<&Stored>,
        writes: &[String],
    ) -> Result<Taking, Busy> {
        let key = stored.map(|stored| NumberKey::parse(&stored.text)).transpose();
        let key = key.map_err(|error| Busy::Unreadable(error.to_string()))?;
        let of_holder = |key: &NumberKey| {
            let margin = rules::margin(may_lose_writes, key, self.horizon);
            UnixMicros(instant(numbering, key.id_bound).0.saturating_add(clock::micros(margin)))
        };
        let until = key.as_ref().map_or(self.wall, of_holder);
        let taker = Taker { writes, wall: self.wall, max_ahead: self.max_ahead };
        rules::take(key.as_ref(), until, taker)
            .map(|taking| match taking {
                Taking::Above(bound) => Taking::Above(bound.max(first_bound_at(numbering, until))),
                taking => taking,
            })
            .map_err(Busy::Held)
    }

    /// Returns the bound to write at first: the horizon ahead of where the source starts, and no lower than what the keys
    /// have. Starts in a row do not add up: the bound is never further ahead of the clock than `max_ahead` and a horizon,
    /// unless a key is.
    fn first_bound(&self, numbering: &Numbering, floor: u64, lowest: u64) -> u64 {
        let now = Now { wall: self.wall, boot: BootMicros(0), jumped: false };
        let from = instant(numbering, floor).min(now.after(self.max_ahead).wall);
        numbering.id_bound(rules::ceiling(numbering, now, from, self.horizon)).max(lowest.max(floor))
    }
}

/// Why a number is not free.
enum Busy {
    Held(rules::Held),
    Unreadable(String),
}

/// Returns the instant at which the clock is past all IDs below a bound.
fn instant(numbering: &Numbering, bound: u64) -> UnixMicros {
    numbering.start_of(numbering.tick_of(numbering.position_from(bound)))
}

/// Returns the bound of the IDs before an instant.
fn first_bound_at(numbering: &Numbering, instant: UnixMicros) -> u64 {
    numbering.id_bound(numbering.first_of(numbering.tick_at(instant)))
}

/// A number with the key that was found for it.
type Found = (u64, Option<Stored>);

impl<C: Coordinator> Member<C> {
    /// Checks that the fleet's marker has the ID space of a layout, and returns the space's place in it.
    ///
    /// # Errors
    /// There is no marker, or it has other spaces.
    pub fn place_of(&mut self, layout: &Layout) -> Result<usize, JoinError> {
        let key = self.paths.marker();
        let found = self.coordinator.read(std::slice::from_ref(&key))?.into_iter().next().flatten();
        let Some(stored) = found else {
            return Err(JoinError::Refused(format!(
                "the coordinator has no fleet of this name (key {key}): if it is new, run `snowbank fleet init`; if it \
                 lost its data, stop all daemons of the fleet first"
            )));
        };
        let marker =
            Marker::parse(&stored.text).map_err(|error| JoinError::Refused(format!("key {key}: {error}")))?;
        let space = layout.space().to_string();
        marker.spaces.iter().position(|known| *known == space).ok_or_else(|| {
            JoinError::Refused(format!(
                "the fleet has other ID spaces (key {key}): found {space}, allowed: {}; correct the layout, or choose \
                 another fleet.name",
                marker.spaces.join(", ")
            ))
        })
    }

    /// Takes these worker IDs.
    ///
    /// # Errors
    /// Another daemon holds one of them, or the coordinator did not answer.
    pub fn take(&mut self, want: Want<'_>, worker_ids: &WorkerSet) -> Result<Taken, JoinError> {
        let place = self.place_of(want.layout)?;
        let numbers = want.layout.numbers_in_space(worker_ids);
        let numbering = want.numbering(worker_ids)?;
        for _ in 0..TRIES_MAX {
            let keys: Vec<String> = numbers.iter().map(|&number| self.paths.number(place, number)).collect();
            let found: Vec<Found> = numbers.iter().copied().zip(self.coordinator.read(&keys)?).collect();
            if let Some(taken) = self.try_take(want, place, (worker_ids, &numbering), found)? {
                return Ok(taken);
            }
        }
        Err(JoinError::Held(format!("source {:?}: other daemons write its keys all the time", want.source)))
    }

    /// Takes this many worker IDs that are free, of those allowed. `lock` locks them on this machine; `None`: they are in
    /// use there.
    ///
    /// # Errors
    /// There are too few, the coordinator did not answer, or they cannot be locked.
    pub fn pick<E: From<JoinError>>(
        &mut self,
        want: Want<'_>,
        count: usize,
        allowed: impl Fn(u64) -> bool,
        mut lock: impl FnMut(&Numbering) -> Result<bool, E>,
    ) -> Result<Taken, E> {
        let place = self.place_of(want.layout)?;
        let mut busy: Vec<u64> = Vec::new();
        for _ in 0..TRIES_MAX {
            let found = self.free(want, place, |id| allowed(id) && !busy.contains(&id), count)?;
            let ids: Vec<u64> = found.iter().map(|(id, _)| *id).collect();
            let refused = |error: LayoutError| JoinError::Refused(error.to_string());
            let worker_ids = WorkerSet::from_list(ids.iter().copied()).map_err(refused)?;
            let numbering = want.numbering(&worker_ids)?;
            if !lock(&numbering)? {
                busy.extend(ids);
                continue;
            }
            let numbers = |(id, stored): Found| (want.layout.number_in_space(id), stored);
            let found = found.into_iter().map(numbers).collect();
            if let Some(taken) = self.try_take(want, place, (&worker_ids, &numbering), found)? {
                return Ok(taken);
            }
        }
        Err(JoinError::Held(format!("source {:?}: other daemons were faster at each try", want.source))
            .into())
    }

    /// Returns free worker IDs with their keys, the best first: those that this state had, then those never used, then those
    /// whose bound is the longest past.
    fn free(
        &mut self,
        want: Want<'_>,
        place: usize,
        allowed: impl Fn(u64) -> bool,
        count: usize,
    ) -> Result<Vec<Found>, JoinError> {
        let prefix = self.paths.space(place);
        let listed = self.coordinator.list(&prefix)?;
        let number =
            |(key, stored): (String, Stored)| Some((key.strip_prefix(&prefix)?.parse().ok()?, stored));
        let listed: BTreeMap<u64, Stored> = listed.into_iter().filter_map(number).collect();
        let writes = self.own_writes(want);
        let own = self.own(want);
        let stored = |id: u64| listed.get(&want.layout.number_in_space(id));
        let may_lose_writes = self.may_lose_writes();
        let judge = |id: u64| -> Result<Result<Taking, Busy>, JoinError> {
            Ok(want.judge((&want.numbering(&WorkerSet::single(id))?, may_lose_writes), stored(id), &writes))
        };
        let mut found: Vec<u64> = Vec::new();
        for id in own.iter().flat_map(WorkerSet::iter).filter(|&id| allowed(id) && stored(id).is_some()) {
            if judge(id)?.is_ok() {
                found.push(id);
            }
        }
        found.truncate(count);
        let all = || (0..want.layout.workers()).filter(|&id| allowed(id));
        found.extend(all().filter(|&id| stored(id).is_none()).take(count - found.len()));
        let mut busy: Vec<(UnixMicros, String)> = Vec::new();
        if found.len() < count {
            let mut free: Vec<(u64, u64)> = Vec::new();
            for id in all().filter(|id| !found.contains(id)).collect::<Vec<_>>() {
                match judge(id)? {
                    Ok(Taking::Above(bound)) => free.push((bound, id)),
                    Ok(_) => free.push((0, id)),
                    Err(Busy::Held(held)) => {
                        busy.push((held.free_at, format!("{id} by {}", held.key.holder)));
                    }
                    Err(Busy::Unreadable(reason)) => {
                        busy.push((UnixMicros(i64::MAX), format!("{id} ({reason})")))
                    }
                }
            }
            free.sort_unstable();
            found.extend(free.iter().take(count - found.len()).map(|&(_, id)| id));
        }
        if found.len() < count {
            return Err(none_left(want, count, busy));
        }
        Ok(found.into_iter().map(|id| (id, stored(id).cloned())).collect())
    }

    /// Returns this state's note of a source.
    fn known(&self, want: Want<'_>) -> Option<&Note> {
        self.notes.of(want.source, &want.layout.space().to_string())
    }

    /// Returns the writes of this state that may be the last of its numbers' keys. None if it may be an older copy.
    fn own_writes(&self, want: Want<'_>) -> Vec<String> {
        let note = self.known(want).filter(|_| want.is_newest);
        note.map(|note| note.writes.clone()).unwrap_or_default()
    }

    /// Returns the worker IDs that this state had.
    pub fn own(&self, want: Want<'_>) -> Option<WorkerSet> {
        self.known(want)?.worker_ids.parse().ok()
    }

    /// Takes numbers whose keys are as found. `None`: they have changed.
    fn try_take(
        &mut self,
        want: Want<'_>,
        place: usize,
        (worker_ids, numbering): (&WorkerSet, &Numbering),
        found: Vec<Found>,
    ) -> Result<Option<Taken>, JoinError> {
        let writes = self.own_writes(want);
        let noted_floor = self.known(want).map_or(0, |note| note.floor);
        let (mut floor, mut lowest) = (0, 0);
        for (number, stored) in &found {
            match want.judge((numbering, self.may_lose_writes()), stored.as_ref(), &writes) {
                Ok(Taking::New) => {}
                Ok(Taking::Resume) => {
                    lowest = lowest.max(bound_of(stored.as_ref()));
                    floor = floor.max(noted_floor);
                }
                Ok(Taking::Above(bound)) => floor = floor.max(bound),
                Err(busy) => return Err(self.refusal(want, *number, busy)),
            }
        }
        let covered = want.first_bound(numbering, floor, lowest);
        let mut held = self.held(want, place, worker_ids, &found, writes);
        // Until the write is done, the key's last write may be an earlier one of this state, with its own floor.
        held.floor = floor.max(noted_floor);
        let write = held.trying.take().unwrap_or_default();
        let key = NumberKey::new(&self.state, &self.holder, want.source, held.since_unix_s);
        let text = NumberKey { write: write.clone(), id_bound: covered, ..key }.text();
        self.notes.set(held.note());
        let _ = self.notes.save();
        for (chunk, numbers) in found.chunks(SWAPS_MAX).zip(held.numbers.chunks_mut(SWAPS_MAX)) {
            let swap = |(number, stored): &Found| Swap {
                key: self.paths.number(place, *number),
                expected: stored.as_ref().map(|stored| stored.version),
                text: text.clone(),
            };
            match self.coordinator.swap(&chunk.iter().map(swap).collect::<Vec<_>>())? {
                Swapped::Done(version) => {
                    numbers.iter_mut().for_each(|(_, holding)| holding.written(version, &write));
                }
                Swapped::Refused(_) => return Ok(None),
            }
        }
        (held.floor, held.covered, held.acknowledged) = (floor, covered, covered);
        if self.may_lose_writes() {
            held.covered = 0;
        }
        self.notes.set(held.note());
        let _ = self.notes.save();
        self.sources.push(held);
        self.confirm(covered)?;
        Ok(Some(Taken { worker_ids: worker_ids.clone(), floor, covered }))
    }

    /// Writes the bound of the source that was taken last once more, if the coordinator may lose a write.
    fn confirm(&mut self, id_bound: u64) -> Result<(), JoinError> {
        if !self.may_lose_writes() {
            return Ok(());
        }
        let source = self.sources.len() - 1;
        self.sources[source].trying = Some((self.draw)());
        self.write(Bound { source, id_bound }, false).map_err(|stop| match stop {
            Stop::NoAnswer(answer) => JoinError::NoAnswer(answer),
            Stop::Lost(reason) => JoinError::Held(reason),
        })
    }

    /// Returns a source's numbers before their first write, which is drawn and among those that may be the last.
    fn held(
        &self,
        want: Want<'_>,
        place: usize,
        worker_ids: &WorkerSet,
        found: &[Found],
        mut writes: Vec<String>,
    ) -> Held {
        let write = (self.draw)();
        writes.push(write.clone());
        let unseen = || Holding::unseen(writes.clone()).that_may_go_back(self.may_lose_writes());
        Held {
            source: want.source.to_owned(),
            index: want.index,
            space: want.layout.space().to_string(),
            worker_ids: worker_ids.to_string(),
            place,
            numbers: found.iter().map(|(number, _)| (*number, unseen())).collect(),
            since_unix_s: want.wall.0.div_euclid(1_000_000),
            floor: 0,
            covered: 0,
            acknowledged: 0,
            trying: Some(write),
            generation: 0,
        }
    }

    /// Goes on with the worker IDs that this state had, while the coordinator does not answer. Returns `None` if it had
    /// others, or may be an older copy.
    pub fn resume_unseen(&mut self, want: Want<'_>, worker_ids: &WorkerSet) -> Option<Taken> {
        let note = self.known(want).filter(|_| want.is_newest)?.clone();
        if self.own(want).as_ref() != Some(worker_ids) {
            return None;
        }
        let numbers = want.layout.numbers_in_space(worker_ids).into_iter();
        let found: Vec<Found> = numbers.map(|number| (number, None)).collect();
        let mut held = self.held(want, note.place, worker_ids, &found, note.writes);
        (held.floor, held.covered, held.acknowledged) = (note.floor, note.covered, note.covered);
        self.sources.push(held);
        Some(Taken { worker_ids: worker_ids.clone(), floor: note.floor, covered: note.covered })
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
        JoinError::Held(if key.state == self.state {
            format!(
                "source {source:?}: this state or a copy of it holds worker number {number} in the fleet ({holder}), and \
                 no mark in lock_dir since this boot shows that this one is the newest; wait: the number is free from \
                 {free_at} on; or give this source another"
            )
        } else {
            format!(
                "source {source:?}: {holder} holds worker number {number} in the fleet; give this source another, stop \
                 that daemon, or wait: if it no longer runs, the number is free from {free_at} on"
            )
        })
    }
}

fn bound_of(stored: Option<&Stored>) -> u64 {
    stored.and_then(|stored| NumberKey::parse(&stored.text).ok()).map_or(0, |key| key.id_bound)
}

fn none_left(want: Want<'_>, count: usize, mut busy: Vec<(UnixMicros, String)>) -> JoinError {
    /// The most holders that one line names.
    const NAMED_MAX: usize = 5;
    busy.sort();
    let first = busy.first().map(|(free_at, _)| *free_at).filter(|free_at| free_at.0 < i64::MAX);
    let first = first.map_or_else(String::new, |at| {
        format!("; if its holder no longer runs, the first one is free from {} on", at.rfc3339(0))
    });
    let holders: Vec<&str> = busy.iter().take(NAMED_MAX).map(|(_, holder)| holder.as_str()).collect();
    let more = busy.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    JoinError::Held(format!(
        "source {:?}: the fleet has fewer than {count} free worker numbers: {}{more} are held{first}",
        want.source,
        holders.join(", ")
    ))
}
