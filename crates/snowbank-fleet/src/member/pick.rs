//! The choice of free worker IDs for a source without configured worker IDs.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::Member;
use super::want::{Busy, Found, Own, Taken, Want};
use crate::rules::Taking;
use crate::{Coordinator, FleetError, NUMBERS_MAX};
use snowbank_core::clock::BootMicros;
use snowbank_id::layout::{UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;

/// A start first looks through at most this many worker IDs for allowed ones, and reads the keys of
/// the first [`NUMBERS_MAX`] that are allowed. If too few of these are unused, it lists all keys, and
/// looks through all worker IDs.
const LOOKED_THROUGH_MAX: usize = 1 << 16;

/// Free worker IDs, which the caller may lock before it takes them.
#[derive(Debug)]
pub struct Free {
    worker_ids: WorkerSet,
    numbering: Numbering,
    /// The index of the ID space in the marker.
    place: usize,
    /// The keys as they were found.
    found: Vec<Found>,
    /// An instant before the keys were read.
    read_at: BootMicros,
}

impl Free {
    /// Returns the worker IDs.
    pub fn worker_ids(&self) -> &WorkerSet {
        &self.worker_ids
    }

    /// Returns the numbering of the source's layout with these worker IDs.
    pub fn numbering(&self) -> &Numbering {
        &self.numbering
    }
}

/// The request for worker IDs in one try.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pick<'a> {
    pub(super) want: Want<'a>,
    /// The index of the ID space in the marker.
    pub(super) place: usize,
    pub(super) count: usize,
    /// Worker IDs that the state had. They count only if it has no note.
    pub(super) had: Option<&'a WorkerSet>,
    /// How many tries came before this one.
    pub(super) tried: usize,
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Finds `count` free worker IDs that `allowed` accepts. Prefers worker IDs that the state had.
    /// `tried` is the number of tries before this one.
    ///
    /// # Errors
    /// Too few worker IDs are free, or the coordinator did not answer.
    pub fn find_free(
        &mut self,
        want: Want<'_>,
        count: usize,
        had: Option<&WorkerSet>,
        allowed: impl Fn(u64) -> bool,
        tried: usize,
    ) -> Result<Free, FleetError> {
        self.check_count(count)?;
        let want = Want { clocks: self.set_clocks(want.clocks), ..want };
        // Another source may run already, and must soon notice a loss.
        self.poll_if_due()?;
        let place = self.place_for(want)?;
        let read_at = self.coordinator.as_mut().now();
        let (ids, found): (Vec<u64>, _) =
            self.free(Pick { want, place, count, had, tried }, allowed)?.into_iter().unzip();
        let worker_ids = WorkerSet::from_list(ids);
        let worker_ids = worker_ids.map_err(|error| FleetError::Refused(error.to_string()))?;
        let numbering = want.numbering(&worker_ids)?;
        Ok(Free { worker_ids, numbering, place, found, read_at })
    }

    /// Takes worker IDs that were free. Returns `None` if one of them is taken by now, or if another
    /// daemon has changed the marker.
    ///
    /// # Errors
    /// The marker allows the ID space no longer, the coordinator did not answer, or a number is lost.
    pub fn take_free(&mut self, want: Want<'_>, free: Free) -> Result<Option<Taken>, FleetError> {
        let want = Want { clocks: self.set_clocks(want.clocks), ..want };
        self.poll_if_due()?;
        let Free { numbering, place, found, read_at, .. } = free;
        // The daemon may know another marker by now, and the write compares that one.
        self.check_space(&want.space())?;
        self.try_take(want, place, &numbering, found, read_at)
    }

    /// Returns free worker IDs with their keys, in this order: worker IDs that this state had and
    /// can use at once, unused worker IDs, and free worker IDs with the earliest bounds. From the
    /// second try on, each state begins its search for unused worker IDs at a place of its own.
    /// Otherwise daemons that start together would all choose the same worker ID at each try.
    ///
    /// The values may be old: a key is written only if it still has the value that was read.
    pub(super) fn free(
        &mut self,
        pick: Pick<'_>,
        allowed: impl Fn(u64) -> bool,
    ) -> Result<Vec<(u64, Found)>, FleetError> {
        let want = pick.want;
        let mut free = self.own_ready(pick, &allowed)?;
        if free.len() == pick.count {
            return Ok(free);
        }
        let own: Vec<u64> = free.iter().map(|(id, _)| *id).collect();
        let workers = want.layout.workers();
        let missing = pick.count - own.len();
        let from = self.search_from(workers, pick.tried);
        let ids = (from..workers).chain(0..from);
        let is_wanted = |id: &u64| allowed(*id) && !own.contains(id);
        // In a small fleet one read finds enough unused worker IDs. At etcd, this read is one
        // transaction.
        let first = ids.clone().take(LOOKED_THROUGH_MAX).filter(is_wanted).take(NUMBERS_MAX);
        let first: Vec<u64> = first.collect();
        let mut unused = self.found(want, pick.place, &first)?;
        unused.retain(|(_, found)| found.text.is_none());
        if unused.len() >= missing {
            free.extend(unused.into_iter().take(missing));
            return Ok(free);
        }
        self.poll_if_due()?;
        let (others, busy) = self.listed(pick, ids.filter(is_wanted), missing)?;
        free.extend(others);
        if free.len() < pick.count {
            return Err(none_left(want, pick.count, busy));
        }
        Ok(free)
    }

    /// Lists all keys. Returns at most `missing` free worker IDs of `ids`: unused worker IDs first,
    /// then those with the earliest bounds. If fewer are free, also returns the holders of the
    /// worker IDs that are not free.
    fn listed(
        &mut self,
        pick: Pick<'_>,
        ids: impl Iterator<Item = u64>,
        missing: usize,
    ) -> Result<(Vec<(u64, Found)>, BusyHolders), FleetError> {
        let want = pick.want;
        let prefix = self.paths.space(pick.place);
        let keys: HashMap<String, String> = self.coordinator.as_mut().list(&prefix)?.into_iter().collect();
        let mut free = Vec::new();
        let mut used = Vec::new();
        for id in ids {
            let number = want.layout.number_in_space(id);
            let found = Found::new(number, keys.get(&self.paths.number(pick.place, number)).cloned());
            let place = if found.text.is_some() { &mut used } else { &mut free };
            place.push((id, found));
            if free.len() == missing {
                return Ok((free, BusyHolders::new()));
            }
        }
        let (others, busy) = split_used(want, &self.own_of(want), used)?;
        free.extend(others);
        free.truncate(missing);
        Ok((free, busy))
    }

    /// Returns the worker ID at which the search for unused worker IDs begins after this many
    /// tries.
    fn search_from(&self, workers: u64, tried: usize) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.state, tried).hash(&mut hasher);
        if tried == 0 { 0 } else { hasher.finish() % workers }
    }

    /// Returns the allowed worker IDs that this state had and can use at once, at most as many as
    /// the pick wants. Most starts need no other worker IDs.
    fn own_ready(
        &mut self,
        pick: Pick<'_>,
        allowed: impl Fn(u64) -> bool,
    ) -> Result<Vec<(u64, Found)>, FleetError> {
        let want = pick.want;
        let own = self.own(want).or_else(|| pick.had.cloned());
        let own: Vec<u64> = own.iter().flat_map(WorkerSet::iter).filter(|&id| allowed(id)).collect();
        let found = self.found(want, pick.place, &own)?;
        let keys: Vec<Found> = found.iter().map(|(_, found)| found.clone()).collect();
        self.notice(want, pick.place, &keys)?;
        let own = self.own_of(want);
        let mut ready = Vec::new();
        for (id, found) in found {
            if want.judge(&want.numbering(&WorkerSet::single(id))?, &found, &own).is_ok() {
                ready.push((id, found));
            }
        }
        ready.truncate(pick.count);
        Ok(ready)
    }

    /// Reads the keys of these worker IDs. Returns them in the same order.
    fn found(&mut self, want: Want<'_>, place: usize, ids: &[u64]) -> Result<Vec<(u64, Found)>, FleetError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.poll_if_due()?;
        let numbers: Vec<u64> = ids.iter().map(|&id| want.layout.number_in_space(id)).collect();
        let keys: Vec<String> = numbers.iter().map(|&number| self.paths.number(place, number)).collect();
        let mut found = Vec::new();
        for ((&id, &number), text) in ids.iter().zip(&numbers).zip(self.coordinator.as_mut().read(&keys)?) {
            found.push((id, Found::new(number, text)));
        }
        Ok(found)
    }

    /// Gives the source the note of these worker IDs, if it had another name: a note belongs to its
    /// numbers, as their keys and marks do.
    pub fn claim_note(&mut self, want: Want<'_>, worker_ids: &WorkerSet) {
        let numbers = want.layout.numbers_in_space(worker_ids);
        self.notes.claim(&self.fleet, want.source, &want.space(), &numbers);
    }

    /// Returns the worker IDs that this state had.
    pub fn own(&self, want: Want<'_>) -> Option<WorkerSet> {
        self.known(want)?.worker_ids.parse().ok()
    }
}

/// The holders of worker IDs that are not free, each with the instant at which the worker ID may
/// become free. The instant comes first, for the order.
type BusyHolders = Vec<(UnixMicros, String)>;

/// Splits used worker IDs into two lists: the free worker IDs, the earliest bound first, and the
/// holders of the worker IDs that are not free.
fn split_used(
    want: Want<'_>,
    own: &Own,
    used: Vec<(u64, Found)>,
) -> Result<(Vec<(u64, Found)>, BusyHolders), FleetError> {
    let mut free = Vec::new();
    let mut busy = BusyHolders::new();
    for (id, found) in used {
        match want.judge(&want.numbering(&WorkerSet::single(id))?, &found, own) {
            Ok(Taking::Above(bound)) => free.push((bound, (id, found))),
            Ok(_) => free.push((0, (id, found))),
            Err(Busy::Held(held)) => busy.push((held.free_at, format!("{id} by {}", held.key.holder))),
            Err(Busy::Unreadable(error)) => busy.push((UnixMicros(i64::MAX), format!("{id} ({error})"))),
        }
    }
    free.sort_by_key(|(bound, (id, _))| (*bound, *id));
    Ok((free.into_iter().map(|(_, free)| free).collect(), busy))
}

fn none_left(want: Want<'_>, count: usize, mut busy: BusyHolders) -> FleetError {
    /// The most holders that the message names.
    const NAMED_MAX: usize = 5;
    busy.sort();
    let first = busy.first().map(|(free_at, _)| *free_at).filter(|free_at| free_at.0 < i64::MAX);
    let first = first.map_or_else(String::new, |at| {
        format!("; if its holder no longer runs, the first of them is free from {} on", at.rfc3339(0))
    });
    let holders: Vec<&str> = busy.iter().take(NAMED_MAX).map(|(_, holder)| holder.as_str()).collect();
    let more = busy.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let held = match holders.join(", ") {
        none if none.is_empty() => String::from("worker_ids and the locks of this machine leave no others"),
        holders => format!("held: {holders}{more}{first}"),
    };
    let missing = match count {
        1 => String::from("no free worker ID"),
        _ => format!("fewer than {count} free worker IDs"),
    };
    FleetError::Held(format!(
        "source {:?}: the fleet has {missing}; {held}; start fewer daemons, or allow more worker_ids",
        want.source
    ))
}

#[cfg(test)]
mod tests;
