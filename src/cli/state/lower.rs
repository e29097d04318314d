//! `snowbank state lower`: lowers the ceilings of a source on purpose, because the stored ones are
//! wrong.

use std::collections::BTreeSet;
use std::io::Write;
use std::slice;

use snowbank_id::layout::{Tick, UnixMicros, WorkerSet};

use super::super::{Failure, Outcome};
use super::{Directories, in_words, mark, open_own, refuse_lower};
use snowbank_state::store::{self, Record};
use snowbank_state::{Fate, Mark, Owner, StateError, WorkerLocks, instant_of, lock_records};

pub(super) const HELP: &str = "\
For a source that refuses with clock_behind for long: the clock was far ahead, so the ceilings are, too, and the clock is right \
again. Stop the daemon first. What is lowered are worker IDs: --worker-id names them if the source had several. INSTANT must \
not be before the time of any ID of these worker IDs that was handed out, under whatever source and in whatever layout: later \
IDs would be repeated. `snowbank decode` shows the time of the highest ID in your tables: add a minute for IDs that clients hold \
and have not stored yet. A worker ID that was never used needs no such promise.

With --forgotten, NAME is the last source of a forgotten bound, as `snowbank state show` names it. That bound stands for all worker IDs that `snowbank state forget` dropped, whatever their source: INSTANT must not be before the time of any of their IDs. \
A worker ID that has started since has its own ceiling above that bound: lower it with --worker-id, too.

In a fleet, free the number with `snowbank fleet release NUMBER --force --lower` too. Worker IDs that a fleet assigned stay as \
they are, and so do ticket counters: `snowbank ticket set --lower` is for them.

Exit codes:
  0  lowered
  1  no state, in use, nothing above INSTANT, several worker IDs and no
     --worker-id, an older copy, another state granted more, moved away,
     or a mark cannot be written
  2  wrong use";

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The source's name
    name: String,
    /// An instant (RFC 3339): no ID of a later time was handed out
    instant: UnixMicros,
    /// Lower only the ceilings of these worker IDs
    #[arg(long, value_name = "N|A-B", conflicts_with = "forgotten")]
    worker_id: Option<WorkerSet>,
    /// Lower what `state forget` left under this name, instead of the source's own ceilings
    #[arg(long)]
    forgotten: bool,
    #[command(flatten)]
    directories: Directories,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let Arguments { name, instant, worker_id, forgotten, directories } = arguments;
    let path = directories.state.path()?;
    let (directory, mut records) = open_own(&path)?;
    let matching = records.extract_if(.., |record| {
        let is_meant = record.name == *name && record.forgotten == *forgotten;
        is_meant && is_named(record, worker_id.as_ref()) && !record.assigned && !record.released
    });
    let matching: Vec<Record> = matching.collect();
    let owner = Owner::after(matching.iter().chain(&records).map(|record| &record.owner));
    // The mark of a worker ID that was dropped and is used again belongs to its own record.
    let is_used_again = |dropped: &Record| {
        let mut own = records.iter().filter(|record| dropped.forgotten && !record.forgotten);
        own.any(|record| record.numbering.shares_ids_with(&dropped.numbering))
    };
    let (bounds, matching): (Vec<Record>, Vec<Record>) = matching.into_iter().partition(is_used_again);
    // The locks keep daemons of this machine from taking the worker IDs before the new ceilings are
    // durable.
    let mut locks = lock_records(&directories.lock_dir, &matching)?;
    locks.extend(bounds.iter().map(|_| WorkerLocks::none()));
    let matching: Vec<Record> = matching.into_iter().chain(bounds).collect();
    let what = format!("the state in {}", path.display());
    let options = directories.options(&path);
    let mut lowered = Vec::new();
    let mut lowered_locks = Vec::new();
    let mut answer = Vec::new();
    let mut worker_ids = BTreeSet::new();
    for (record, locks) in matching.into_iter().zip(locks) {
        let lower = below(&record, *instant, &owner);
        let granted = highest(&record, &locks, &owner.state)?;
        if granted <= lower.id_bound {
            records.push(record);
            continue;
        }
        refuse_other_marks(&lower, &locks, &options)?;
        if record.id_bound != lower.id_bound {
            // Otherwise the record was lowered before, with another lock directory.
            refuse_lower(slice::from_ref(&record), slice::from_ref(&locks), &what, &options)?;
        }
        let until = instant_of(&record.numbering, granted).rfc3339(0);
        let of = in_words(&record);
        let shown = path.display();
        writeln!(
            answer,
            "source {name:?}, {of}: IDs were granted until {until}; goes on from {}, in {shown}",
            instant.rfc3339(0)
        )?;
        worker_ids.insert(of);
        records.push(lower.clone());
        lowered.push(lower);
        lowered_locks.push(locks);
    }
    if lowered.is_empty() {
        return Err(Failure::no(format_args!(
            "source {name:?}: found no ceiling above {} in {}; see `snowbank state show`; a counter is lowered by `snowbank \
             ticket set --lower`, and a forgotten bound, which stands for all worker IDs that were dropped, only with --forgotten",
            instant.rfc3339(0),
            path.display()
        )));
    }
    // What the operator knows of one worker ID says nothing about another one.
    if worker_id.is_none() && !forgotten && worker_ids.len() > 1 {
        let worker_ids: Vec<String> = worker_ids.into_iter().collect();
        return Err(Failure::no(format_args!(
            "source {name:?}: found ceilings above {} of {}, allowed: one of them at a time; name it with --worker-id",
            instant.rfc3339(0),
            worker_ids.join(" and of ")
        )));
    }
    // As at a clean stop: if this is interrupted, no mark is above the state.
    mark(&lowered, &owner.state, &lowered_locks, Fate::Returned).map_err(|error| {
        Failure::no(format_args!("cannot mark the worker IDs' locks: {error}; run the command again"))
    })?;
    store::write(&directory, &records)?;
    Ok(out.write_all(&answer)?)
}

/// Returns true if a record is of a layout, and all of its worker IDs are named, if any are.
fn is_named(record: &Record, named: Option<&WorkerSet>) -> bool {
    let Some((_, worker_ids)) = record.numbering.snowflake() else { return false };
    named.is_none_or(|named| worker_ids.iter().all(|id| named.contains(id)))
}

/// Returns a record whose ceiling is the end of this instant's tick. The bound of worker IDs that a
/// fleet assigned stays, because it may stand for those of other sources. The record names no boot.
/// Otherwise a start in this boot would use the record's clock offsets as if a daemon had stored
/// them.
fn below(record: &Record, instant: UnixMicros, owner: &Owner) -> Record {
    let numbering = &record.numbering;
    let after = numbering.first_of(Tick(numbering.tick_at(instant).0.saturating_add(1)));
    let lower = record.at(after);
    let owner = owner.clone();
    let boot = None;
    let id_minus_boot_us = None;
    Record { owner, boot, id_minus_boot_us, clean: true, untouched: true, ..lower }
}

/// Refuses a lower bound for worker IDs whose marks say more than this state knows. They were moved
/// away, or another state granted IDs above the bound. The operator promises nothing about these.
fn refuse_other_marks(lower: &Record, locks: &WorkerLocks, options: &str) -> Outcome {
    let (name, numbering) = (&lower.name, &lower.numbering);
    for mark in locks.own_marks()? {
        if mark.is_released() {
            return Err(Failure::no(StateError::released(name, numbering, options)));
        }
        if mark.state != lower.owner.state && mark.id_bound > lower.id_bound {
            return Err(Failure::no(format_args!(
                "source {name:?}, {}: another state ({}) was granted IDs until {} since the machine's boot; give an INSTANT after \
                 that, or leave this worker ID to that state",
                in_words(lower),
                mark.state,
                instant_of(numbering, mark.id_bound).rfc3339(0)
            )));
        }
    }
    Ok(())
}

/// Returns the record's bound, or the highest mark that its state left in the locks of its worker
/// IDs, whichever is higher. Such a mark is above the record if the record was lowered with another
/// lock directory. What another state was granted is none of this state's ceilings.
fn highest(record: &Record, locks: &WorkerLocks, state: &str) -> Result<u64, Failure> {
    let marks = locks.own_marks()?;
    let own = marks.iter().filter(|mark: &&Mark| mark.state == state);
    Ok(own.map(|mark| mark.id_bound).max().unwrap_or(0).max(record.id_bound))
}
