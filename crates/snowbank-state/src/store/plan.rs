//! The rules of a start: no source starts so low that it could repeat an ID that was ever granted.

use std::collections::HashSet;
use std::time::Duration;

use super::record::{Moment, Record};
use crate::source_kind::by_name;
use crate::{Cause, StateError};
use snowbank_core::clock;
use snowbank_core::source::Kind;
use snowbank_id::layout::{Position, UnixMicros};
use snowbank_id::numbering::Numbering;

/// A configured source that wants to start.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its numbering.
    pub numbering: &'a Numbering,
    /// The distance that its ID clock may run ahead of the wall clock.
    pub max_ahead: Duration,
    /// If its start is ahead of the wall clock by at most this time, the source hands out IDs at
    /// once.
    pub catch_up: Duration,
    /// True if a fleet's coordinator has the bounds of the source's worker IDs, or has its counter.
    pub in_fleet: bool,
    /// The options of the commands that refusals name: the directories of the state and the locks.
    pub options: &'a str,
}

impl Claimant<'_> {
    fn kind(&self) -> Kind {
        Kind::of(self.numbering, self.in_fleet)
    }
}

/// Returns the command that stores the record that a start of this counter needs. `options` are
/// those of a [`Claimant`].
pub fn set_command(name: &str, numbering: &Numbering, options: &str) -> String {
    let mut command = format!("`snowbank ticket set {name} VALUE");
    // The command names increment and offset, because another daemon of this machine may count
    // under the same name with another offset.
    if let Some(counter) = numbering.ticket()
        && (counter.increment() != 1 || counter.offset() != 1)
    {
        command += &format!(" --increment {} --offset {}", counter.increment(), counter.offset());
    }
    command + options + "`"
}

/// What follows from a counter's name if the state has other counters: the source may have been
/// renamed.
const NAMES_COUNT: &str = "; another name is another counter: the others of this state stay where they are, and a source that \
     gets an earlier name back goes on there, below the numbers that it handed out since";

/// Where a claimant may start, by the records that bind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The lowest ID that the claimant may use. If it claims nothing, a clean stop stores this
    /// bound again. So the bound rises only if IDs are handed out.
    pub id_bound: u64,
    /// True if IDs were handed out right up to this bound, as a clean stop has recorded. After a
    /// crash, nothing shows how far below the bound the last ID is.
    pub is_clean: bool,
}

/// The starts of all claimants, and the records to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// For each claimant, where it may start; `None` if no stored record binds the claimant.
    pub starts: Vec<Option<Start>>,
    /// For each claimant, the furthest of the records that bind only the order of its IDs and are
    /// too far ahead for a catch-up. The claimant may start below that record.
    pub passed_over: Vec<Option<Record>>,
    /// The records that no claimant's new record replaces.
    pub retired: Vec<Record>,
}

impl StateError {
    /// Returns the error for a source whose worker IDs, or whose counter, were moved away. `options`
    /// are those of its [`Claimant`].
    pub fn released(name: &str, numbering: &Numbering, options: &str) -> StateError {
        let import = format!("`snowbank state import FILE{options}`");
        let reason = match numbering.snowflake() {
            Some((layout, workers)) => format!(
                "source {name:?}: `snowbank state export` moved {} of layout {} away; give this source worker IDs that no \
                 daemon uses, or bring these back: stop the daemon that has them now, and import its export here (or, if no daemon got \
                 them, the same export) with {import}",
                workers.in_words(),
                by_name(layout)
            ),
            None => format!(
                "source {name:?}: `snowbank state export` moved its counter away; to bring it back, stop the daemon that has \
                 it now, and import its export here (or, if no daemon got it, the same export) with {import}"
            ),
        };
        StateError::new(Cause::Released, reason)
    }

    /// Returns the error for a ticket counter that has none of these stored records.
    fn no_counter(claimant: &Claimant<'_>, records: &[Record]) -> StateError {
        let Claimant { name, numbering, options, .. } = *claimant;
        let command = set_command(name, numbering, options);
        let reason = format!(
            "source {name:?} is a ticket source, and the state has no record of its counter: no clock shows where it may \
             continue; while no daemon uses the state directory, run {command}, with the highest number that was ever handed \
             out, or 0 if none was{}",
            if records.iter().any(|record| record.numbering.ticket().is_some()) { NAMES_COUNT } else { "" }
        );
        StateError::new(Cause::Setting, reason)
    }

    /// Returns the error for a counter whose numbers may have been handed out elsewhere: by another
    /// copy of the machine, or by another daemon that shared the counter.
    pub fn restored(claimant: &Claimant<'_>) -> StateError {
        let Claimant { name, numbering, options, .. } = *claimant;
        let command = set_command(name, numbering, options);
        let reason = format!(
            "source {name:?} is a ticket source, and its record here is not enough: the machine was, or may have been, restored \
             from a snapshot while a daemon ran, or the counter was shared in a fleet, so numbers may have been handed out that \
             are not stored here; stop the daemons that count {name:?}, then run {command}, with the highest number that any \
             of them handed out"
        );
        StateError::new(Cause::Setting, reason)
    }
}

/// Decides where every claimant starts.
///
/// A record binds each claimant that has the same name. It also binds each claimant that can hand
/// out the same IDs at about the same time
/// ([`concurrent_collision`](snowbank_id::layout::Layout::concurrent_collision)). A claimant that
/// no record binds in this way may be a source whose name and worker IDs were changed at the same
/// time. Such a claimant is bound by all records that bind no other claimant and were not released.
/// The start is the first position whose ID is at or above the bounds of all records that bind the
/// claimant.
///
/// A record with the same ID space but other worker IDs is not needed to keep IDs unique. It binds
/// only the order of IDs, and only if it is not too far ahead for a catch-up. A worker ID that was
/// never used starts at the clock, however far ahead another worker ID was. After a crash, such a
/// record binds only up to the ID clock that its own worker IDs had reached
/// ([`Record::order_ceiling`]). Higher positions may have been granted.
///
/// What `snowbank state forget` drops stays as one bound: the highest of the dropped records of all
/// layouts that can make the same IDs. A claimant of another layout, or that lacks a record of one of
/// its worker IDs, starts at this bound or above, because that worker ID may be one of those.
///
/// When a fleet assigns new worker IDs to a source, the source's old worker IDs belong to the fleet
/// again. The record of the old worker IDs is dropped once another record of the source is above
/// all IDs that were handed out under them. That other record keeps the bound of the old worker IDs
/// as its `assigned_bound`. Outside of the fleet, a record with an `assigned_bound` binds its source
/// whatever worker IDs it has now, and every claimant as a forgotten record does. In the fleet, the coordinator knows the bound
/// of each worker ID, even if the worker ID was exported.
///
/// A ticket counter is bound by the record of its name, whatever increment and offset that record
/// has. A counter without such a record is refused, because no clock shows where it may continue. A
/// counter is also refused if the machine was restored from a snapshot, or if a fleet's coordinator
/// had the counter before.
///
/// A start far ahead of the wall clock is no error if the ID space is still the same. The source
/// refuses requests until the clock has caught up. If the ID space was changed, such a start is an
/// error, because it may be years ahead, or above all IDs of the new layout.
///
/// # Errors
/// Returns the first reason why a claimant cannot start.
pub fn plan<'a>(
    records: &[Record],
    claimants: &[Claimant<'_>],
    at: impl Into<Moment<'a>>,
) -> Result<Plan, StateError> {
    plan_beside(records, claimants, &[], at)
}

/// Decides as [`plan`] does, beside configured sources with these names that have no worker ID yet. A
/// record of one of these belongs to no claimant.
///
/// # Errors
/// Returns the first reason why a claimant cannot start.
pub fn plan_beside<'a>(
    records: &[Record],
    claimants: &[Claimant<'_>],
    awaited: &[&str],
    at: impl Into<Moment<'a>>,
) -> Result<Plan, StateError> {
    let at = at.into();
    let mut starts = Vec::with_capacity(claimants.len());
    let mut passed_over = Vec::with_capacity(claimants.len());
    for claimant in claimants {
        if claimant.kind().takes_ranges() {
            // The coordinator decides where the counter continues. The records only show whether
            // the coordinator was restored to an older state.
            let id_bound = above_records(records, claimant.numbering);
            starts.push(Some(Start { id_bound, is_clean: false }));
            passed_over.push(None);
            continue;
        }
        check_not_moved(records, claimant)?;
        let Binding { near, far } = Binding::of(records, claimants, awaited, claimant, at);
        let start = start(near, claimant, records, at.wall)?;
        if start.is_none() && claimant.kind().counts_by_itself() {
            return Err(StateError::no_counter(claimant, records));
        }
        starts.push(start);
        passed_over.push(highest(far));
    }
    let mut retired = records.to_vec();
    retired.retain(|record| !claimants.iter().any(|claimant| is_superseded(record, claimant)));
    Ok(Plan { starts, passed_over, retired })
}

/// Returns the bound that keeps the claimant's IDs unique, if it makes IDs of any instant and not
/// of the present. 0 if no record binds it. The order of IDs does not count. So layouts bind each
/// other however far apart their epochs are.
///
/// # Errors
/// The claimant's worker IDs were moved away.
pub fn unique_from(records: &[Record], claimant: &Claimant<'_>) -> Result<u64, StateError> {
    check_not_moved(records, claimant)?;
    let lacks_records = lacks_records(records, claimant);
    let bounds = records.iter().filter_map(|record| {
        // Of forgotten records that run beside the claimant, `bound_of_ids` knows more.
        let is_known = record.forgotten && record.numbering.runs_beside(claimant.numbering);
        let repeats = !is_known && may_repeat(record, claimant);
        bound_of_ids(record, claimant, lacks_records).max(repeats.then_some(record.id_bound))
    });
    Ok(bounds.max().unwrap_or(0))
}

/// Refuses a claimant whose worker IDs or counter another machine may use.
fn check_not_moved(records: &[Record], claimant: &Claimant<'_>) -> Result<(), StateError> {
    let mut moved = records.iter().filter(|record| record.released && !is_fleets(record, claimant));
    if let Some(record) = moved.find(|record| is_bound(record, claimant.numbering)) {
        return Err(StateError::released(claimant.name, &record.numbering, claimant.options));
    }
    if records.iter().any(|record| record.restored && is_bound(record, claimant.numbering)) {
        return Err(StateError::restored(claimant));
    }
    Ok(())
}

/// Returns the highest bound of all records whose numbering can make the same IDs; 0 without such a
/// record. No source with this numbering starts below this bound, whatever the source's name.
pub fn above_records(records: &[Record], numbering: &Numbering) -> u64 {
    let sharing = records.iter().filter(|record| is_bound(record, numbering));
    sharing.map(|record| record.id_bound).max().unwrap_or(0)
}

/// Returns true if each worker ID of a numbering has one of these records. A forgotten record is
/// none: it stands for all worker IDs that were dropped.
pub fn has_records_of_all<'a>(records: impl IntoIterator<Item = &'a Record>, numbering: &Numbering) -> bool {
    let own = records.into_iter().filter(|record| !record.forgotten);
    let same_space = own.filter(|record| record.numbering.is_of_space(numbering));
    let known: HashSet<u64> = same_space.flat_map(|record| record.numbering.numbers_in_space()).collect();
    numbering.numbers_in_space().iter().all(|number| known.contains(number))
}

/// Returns true if one of the claimant's worker IDs may be one that was dropped.
fn lacks_records(records: &[Record], claimant: &Claimant<'_>) -> bool {
    let given = records.iter().filter(|record| !record.assigned);
    !has_records_of_all(given, claimant.numbering)
}

/// The records that bind a claimant, each with the bound that counts for it.
#[derive(Default)]
struct Binding {
    /// The claimant starts above these.
    near: Vec<Record>,
    /// These bind only the order of IDs, and are too far ahead for a catch-up.
    far: Vec<Record>,
}

impl Binding {
    fn of(
        records: &[Record],
        claimants: &[Claimant<'_>],
        awaited: &[&str],
        claimant: &Claimant<'_>,
        at: Moment<'_>,
    ) -> Self {
        let lacks_records = lacks_records(records, claimant);
        let mut binding = Binding::default();
        for record in records {
            match bound_of_ids(record, claimant, lacks_records) {
                Some(id_bound) => binding.near.push(record.below(id_bound)),
                None if binds_order(record, claimant) => binding.add_order(record, claimant, at),
                None => {}
            }
        }
        // A ticket counter is known by its name: a record with another name belongs to another
        // counter.
        if binding.near.is_empty() && binding.far.is_empty() && !claimant.kind().counts_by_itself() {
            let orphans = records.iter().filter(|record| is_orphan(record, claimants, claimant));
            for record in orphans.filter(|record| !awaited.contains(&&*record.name)) {
                binding.add_order(record, claimant, at);
            }
        }
        binding
    }

    fn add_order(&mut self, record: &Record, claimant: &Claimant<'_>, at: Moment<'_>) {
        let numbering = claimant.numbering;
        if !record.numbering.is_of_space(numbering) {
            return self.near.push(record.clone());
        }
        let record = record.at(record.order_ceiling(at));
        let start = numbering.position_from(record.id_bound);
        let is_near = works_from(numbering, start, claimant.catch_up) <= at.wall;
        if is_near { self.near.push(record) } else { self.far.push(record) }
    }
}

/// Returns the bound that a record sets to keep the claimant's IDs unique; `None` if the record
/// binds their order at most. Records of dropped worker IDs bind each claimant outside of a fleet
/// that lacks a record of a worker ID. A record knows nothing of what another layout dropped. In a
/// fleet, the keys of worker IDs have their bounds.
fn bound_of_ids(record: &Record, claimant: &Claimant<'_>, lacks_records: bool) -> Option<u64> {
    let has_left = record.name == claimant.name && !record.forgotten;
    let is_of_another_layout = !record.numbering.is_of_space(claimant.numbering);
    let may_be_dropped = !claimant.in_fleet
        && (lacks_records || has_left || is_of_another_layout)
        && record.numbering.runs_beside(claimant.numbering);
    let dropped = record.bound_of_dropped().filter(|_| may_be_dropped);
    dropped.max(shares_ids(record, claimant).then_some(record.id_bound))
}

fn binds_order(record: &Record, claimant: &Claimant<'_>) -> bool {
    record.numbering.is_of_kind(claimant.numbering) && record.name == claimant.name && !record.forgotten
}

/// Returns true if the claimant may be the record's source under a new name, because the record
/// belongs to no claimant.
fn is_orphan(record: &Record, claimants: &[Claimant<'_>], claimant: &Claimant<'_>) -> bool {
    let has_gone = !record.released && !record.forgotten && record.numbering.is_of_kind(claimant.numbering);
    has_gone && !claimants.iter().any(|it| binds_order(record, it) || shares_ids(record, it))
}

fn highest(records: Vec<Record>) -> Option<Record> {
    records.into_iter().max_by_key(|record| record.id_bound)
}

/// Returns the wall clock time at which an ID clock reaches a position, if it is ahead of the wall
/// clock by `ahead`.
fn works_from(numbering: &Numbering, position: Position, ahead: Duration) -> UnixMicros {
    let reached = numbering.start_of(numbering.tick_of(position));
    UnixMicros(reached.0.saturating_sub(clock::micros(ahead)))
}

/// Returns the start at the highest bound of the records that bind a claimant.
fn start(
    binding: Vec<Record>,
    claimant: &Claimant<'_>,
    records: &[Record],
    wall: UnixMicros,
) -> Result<Option<Start>, StateError> {
    let numbering = claimant.numbering;
    let leads_to = |record: &Record| numbering.position_from(record.id_bound);
    let Some(first) = binding.iter().map(leads_to).max() else { return Ok(None) };
    let is_clean = binding.iter().filter(|record| leads_to(record) == first).all(Record::ends_at_a_claim);
    let Some(record) = highest(binding) else { return Ok(None) };
    let start = Some(Start { id_bound: record.id_bound, is_clean });
    let Some((stored, _)) = record.numbering.snowflake() else { return Ok(start) };
    let Some((configured, _)) = numbering.snowflake() else { return Ok(start) };
    let works_from = works_from(numbering, first, claimant.max_ahead);
    let is_changed = stored.space() != configured.space();
    let has_ended = first >= numbering.end();
    if !is_changed || (!has_ended && works_from <= wall) {
        return Ok(start);
    }
    // If IDs were granted for a later instant than now, the mistake may be in the clock and not in
    // the layout.
    let may_be_slow = record.instant() > Some(wall);
    let when = if has_ended {
        String::from("all its IDs lie below that")
    } else {
        format!("it gets there at {}", works_from.rfc3339(3))
    };
    let reason = format!(
        "source {:?}: found layout {configured}, whose IDs are at {} now, allowed: one whose IDs are above {}, because layout \
         {stored} may have handed out IDs up to there; {when}. {}Keep layout {stored}, or choose one whose IDs lie higher. {}",
        claimant.name,
        numbering.id_bound(numbering.first_of(numbering.tick_at(wall))),
        record.id_bound,
        if may_be_slow { "Set the clock right if it is slow. " } else { "" },
        if records.iter().any(|record| may_repeat(record, claimant)) {
            STATE_DIR_REPEATS
        } else {
            STATE_DIR_IS_SAFE
        },
        stored = by_name(stored),
        configured = by_name(configured),
    );
    // If the clock is right, waiting is no solution, because the start may be years ahead.
    let cause = if may_be_slow && !has_ended { Cause::ClockBehind } else { Cause::Setting };
    Err(StateError::new(cause, reason))
}

/// The advice if the claimant's IDs are none of the stored records.
const STATE_DIR_IS_SAFE: &str = "Or give it to a daemon of its own, with a --state-dir of its own: its worker IDs make none of \
     the IDs that are recorded here, and it starts at the clock, below them. Do that only if no other machine had these worker IDs in the old layout";

/// The advice if the claimant could make IDs of a stored record.
const STATE_DIR_REPEATS: &str = "With a daemon and a --state-dir of its own it may hand out IDs that are recorded here a second \
     time: do that only for a table that has none of them. Or give it worker IDs that the old layout never had, and start \
     again: this message then says whether they may repeat any";

/// Returns true if the claimant could make, at whatever time, an ID that the record's worker IDs
/// made.
fn may_repeat(record: &Record, claimant: &Claimant<'_>) -> bool {
    let Some((stored, workers)) = record.numbering.snowflake() else { return false };
    let Some((configured, own)) = claimant.numbering.snowflake() else { return false };
    // Layouts that do not grow alike reach the same numbers at unlike times, under any worker IDs.
    // A forgotten record stands for worker IDs that are not known any more.
    record.forgotten
        || !stored.space().grows_like(&configured.space())
        || stored.collision(workers, configured, own).is_some()
}

/// Returns true if a source with this numbering could repeat IDs below the record's bound, and so
/// must start at or above that bound.
fn is_bound(record: &Record, numbering: &Numbering) -> bool {
    record.numbering.shares_ids_with(numbering) || record.numbering.is_part_of(numbering)
}

fn shares_ids(record: &Record, claimant: &Claimant<'_>) -> bool {
    record.numbering.shares_ids_with(claimant.numbering)
}

/// Returns true if the claimant's new record replaces this record. The new record's bound is at
/// least as high, because this record binds the claimant.
fn is_superseded(record: &Record, claimant: &Claimant<'_>) -> bool {
    let numbering = claimant.numbering;
    let is_free = !record.released || is_fleets(record, claimant) || claimant.kind().takes_ranges();
    is_free && !record.forgotten && record.numbering.is_part_of(numbering)
}

/// Returns true if the coordinator of the claimant's fleet decides where the record's worker IDs
/// continue.
fn is_fleets(record: &Record, claimant: &Claimant<'_>) -> bool {
    record.assigned && claimant.in_fleet
}
