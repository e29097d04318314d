//! The choice of free worker IDs for a source that has none configured.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::Member;
use super::take::{Found, TRIES_MAX};
use super::want::{Busy, JoinError, Taken, Want};
use crate::fleet::rules::Taking;
use crate::fleet::{Coordinator, Stored};
use crate::numbering::Numbering;
use snowbank_client::layout::{LayoutError, UnixMicros, WorkerSet};

impl<C: Coordinator> Member<C> {
    /// Takes this many free worker IDs of those that are allowed. `lock` locks them on this machine, or returns `false` if
    /// they are in use there.
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
        let place = self.place_of(&want.layout.space().to_string())?;
        let mut busy: Vec<u64> = Vec::new();
        for tried in 0..TRIES_MAX {
            let is_allowed = |id: u64| allowed(id) && !busy.contains(&id);
            let found = self.free(want, place, is_allowed, (count, tried))?;
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

    /// Returns free worker IDs with their keys, the best first: those that this state had and can use at once, then unused
    /// ones, then those whose bound passed longest ago. After tries at which another daemon was faster, unused ones are
    /// searched from another place in each state: of daemons that start together, all but one would lose each time.
    pub(super) fn free(
        &mut self,
        want: Want<'_>,
        place: usize,
        allowed: impl Fn(u64) -> bool,
        (count, tried): (usize, usize),
    ) -> Result<Vec<Found>, JoinError> {
        if let Some(own) = self.own_free(want, place, &allowed, count)? {
            return Ok(own);
        }
        let keys = self.keys(place)?;
        let writes = self.own_writes(want);
        let own = self.own(want);
        let stored = |id: u64| keys.get(&want.layout.number_in_space(id));
        let may_lose_writes = self.may_lose_writes();
        let judge = |id: u64| -> Result<Result<Taking, Busy>, JoinError> {
            Ok(want.judge((&want.numbering(&WorkerSet::single(id))?, may_lose_writes), stored(id), &writes))
        };
        let mut found: Vec<u64> = Vec::new();
        for id in own.iter().flat_map(WorkerSet::iter).filter(|&id| allowed(id) && stored(id).is_some()) {
            let numbering = want.numbering(&WorkerSet::single(id))?;
            if want.is_ready((&numbering, may_lose_writes), stored(id), &writes) {
                found.push(id);
            }
        }
        found.truncate(count);
        let from = self.search_from(want.layout.workers(), tried);
        let all = || (from..want.layout.workers()).chain(0..from).filter(|&id| allowed(id));
        found.extend(all().filter(|&id| stored(id).is_none()).take(count - found.len()));
        if found.len() < count {
            let rest: Vec<u64> = all().filter(|id| !found.contains(id)).collect();
            let (free, busy) = of_others(&rest, judge)?;
            found.extend(free.into_iter().take(count - found.len()));
            if found.len() < count {
                return Err(none_left(want, count, busy));
            }
        }
        Ok(found.into_iter().map(|id| (id, stored(id).cloned())).collect())
    }

    /// Returns the worker ID from which unused ones are searched after this many tries.
    fn search_from(&self, workers: u64, tried: usize) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.state, tried).hash(&mut hasher);
        if tried == 0 { 0 } else { hasher.finish() % workers }
    }

    /// Returns all worker IDs that this state had, if they are wanted and can be used at once. Most starts need no others,
    /// and a start need not wait until the keys of a large fleet are listed.
    fn own_free(
        &mut self,
        want: Want<'_>,
        place: usize,
        allowed: impl Fn(u64) -> bool,
        count: usize,
    ) -> Result<Option<Vec<Found>>, JoinError> {
        let Some(own) = self.own(want).filter(|own| own.len() == count && own.iter().all(allowed)) else {
            return Ok(None);
        };
        let numbers = want.layout.numbers_in_space(&own);
        let keys: Vec<String> = numbers.iter().map(|&number| self.paths.number(place, number)).collect();
        let stored = self.coordinator.read(&keys)?;
        let (writes, may_lose_writes) = (self.own_writes(want), self.may_lose_writes());
        for (id, stored) in own.iter().zip(&stored) {
            let numbering = want.numbering(&WorkerSet::single(id))?;
            let is_ready = want.is_ready((&numbering, may_lose_writes), stored.as_ref(), &writes);
            if stored.is_none() || !is_ready {
                return Ok(None);
            }
        }
        Ok(Some(own.iter().zip(stored).collect()))
    }

    /// Returns the keys of an ID space, by their numbers.
    fn keys(&mut self, place: usize) -> Result<BTreeMap<u64, Stored>, JoinError> {
        let prefix = self.paths.space(place);
        let number =
            |(key, stored): (String, Stored)| Some((key.strip_prefix(&prefix)?.parse().ok()?, stored));
        Ok(self.coordinator.list(&prefix)?.into_iter().filter_map(number).collect())
    }

    /// Returns the worker IDs that this state had.
    pub fn own(&self, want: Want<'_>) -> Option<WorkerSet> {
        self.known(want)?.worker_ids.parse().ok()
    }
}

/// Worker IDs that are not free, with their holders and the instants at which they may become free.
type BusyHolders = Vec<(UnixMicros, String)>;

/// Returns the free worker IDs that others had, the one whose bound passed longest ago first, and those that are not free.
fn of_others(
    ids: &[u64],
    judge: impl Fn(u64) -> Result<Result<Taking, Busy>, JoinError>,
) -> Result<(Vec<u64>, BusyHolders), JoinError> {
    let mut free: Vec<(u64, u64)> = Vec::new();
    let mut busy = BusyHolders::new();
    for &id in ids {
        match judge(id)? {
            Ok(Taking::Above(bound)) => free.push((bound, id)),
            Ok(_) => free.push((0, id)),
            Err(Busy::Held(held)) => busy.push((held.free_at, format!("{id} by {}", held.key.holder))),
            Err(Busy::Unreadable(reason)) => busy.push((UnixMicros(i64::MAX), format!("{id} ({reason})"))),
        }
    }
    free.sort_unstable();
    Ok((free.into_iter().map(|(_, id)| id).collect(), busy))
}

fn none_left(want: Want<'_>, count: usize, mut busy: BusyHolders) -> JoinError {
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
