//! Ceilings on disk: one file in the state directory, which one process has.
//!
//! - `record`: what is kept of a source.
//! - `plan`: where sources start over what is stored.
//! - `directory`: the state directory and its lock.
//! - `file`: making the state file, and raising it in place.
//! - `image`: reading it without trusting it.
//! - `moved`: taking it to another machine.

mod directory;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod image;
mod moved;
mod plan;
mod record;

use std::time::Duration;

pub use directory::{StateDir, StateLock, holder, read};
pub use moved::{Export, ImportError, export, merge, write};
pub use plan::{Claimant, Plan, PlanError, When, plan, plan_beside};
pub use record::{Record, id_bound, position_from};

pub(super) use self::file::{FileId, file_id, give_to_owner_of};

use self::file::{NamedFile, StateFile};
use super::identity::{Owner, Place};
use super::{CeilingStore, Newcomer, StoreError, TakenOver};
use snowbank_client::layout::{Numbering, Position, UnixMicros};

/// The record of another machine, if there is one among these. Where a machine does not know itself, nobody can tell.
pub fn foreign<'a>(records: &'a [Record], here: &Place) -> Option<&'a Record> {
    let is_foreign = |record: &&Record| matches!((&record.machine, &here.machine), (Some(there), Some(here)) if there != here);
    records.iter().find(is_foreign)
}

/// Ceilings in a state directory.
#[derive(Debug)]
pub struct DiskStore {
    directory: StateDir,
    /// What the daemon's sources have, by their index. Never below what the file has.
    kept: Vec<Kept>,
    /// What stays as it is.
    retired: Vec<Record>,
    /// Who keeps them, and where.
    owner: Owner,
    place: Place,
    /// The file in place; `None` after a failure, until it was made anew.
    file: Option<StateFile>,
    /// Which file was last given the name; `None` before the first.
    named: Option<NamedFile>,
}

#[derive(Debug)]
struct Kept {
    record: Record,
    numbering: Numbering,
}

impl DiskStore {
    /// A store over a locked directory, for sources (by index) of these names and numberings. Nothing is written yet:
    /// the first [`raise`](CeilingStore::raise) makes the file, so that one sync makes all first ceilings durable.
    ///
    /// `starts` are the sources' first positions; no stored ceiling will be below them.
    pub fn new<'a>(
        directory: StateDir,
        sources: impl IntoIterator<Item = (&'a str, &'a Numbering, Position)>,
        retired: Vec<Record>,
        owner: &Owner,
        place: &Place,
    ) -> Self {
        let kept = sources.into_iter().map(|(name, numbering, start)| Kept {
            record: Record::new(name, numbering, start, owner, place),
            numbering: numbering.clone(),
        });
        let kept = kept.collect();
        let (owner, place) = (owner.clone(), place.clone());
        DiskStore { directory, kept, retired, owner, place, file: None, named: None }
    }

    /// The record of a source at another ceiling.
    fn record_at(&self, index: usize, ceiling: Position) -> Option<(usize, Record)> {
        let kept = self.kept.get(index)?;
        Some((index, kept.record.at(&kept.numbering, ceiling)))
    }

    /// Makes the records durable: in place, or after a failure in a new file.
    fn store(&mut self, next: Vec<(usize, Record)>) -> Result<(), StoreError> {
        match &self.file {
            Some(file) => {
                let records: Vec<&Record> = next.iter().map(|(_, record)| record).collect();
                // On failure the file is left at once: what it holds is not known before it was read again.
                file.replace(&records).inspect_err(|_| self.file = None)?;
            }
            None => self.file = Some(self.make_anew(&next)?),
        }
        for (index, record) in next {
            self.kept[index].record = record;
        }
        Ok(())
    }

    fn make_anew(&mut self, next: &[(usize, Record)]) -> Result<StateFile, StoreError> {
        self.make_anew_with(next, &[])
    }

    /// The file of all that is kept, with `next` in place of what those sources had, and of newcomers.
    fn make_anew_with(
        &mut self,
        next: &[(usize, Record)],
        newcomers: &[Kept],
    ) -> Result<StateFile, StoreError> {
        let mut records: Vec<&Record> = self.retired.iter().collect();
        records.extend(self.kept.iter().enumerate().map(|(index, kept)| {
            next.iter().find(|(of, _)| *of == index).map_or(&kept.record, |(_, record)| record)
        }));
        // The last of one key stays, and a newcomer's ceiling is above what is stored of it.
        records.extend(newcomers.iter().map(|kept| &kept.record));
        let named = &mut self.named;
        StateFile::create(self.directory.path(), &records, &mut |file| *named = Some(file))
    }

    /// After a failure: what does the file hold? A commit may have reached it although it failed, and the next must not
    /// be lower.
    fn read_back(&mut self) -> Result<(), StoreError> {
        self.still_ours().map_err(|taken_over| StoreError(taken_over.to_string()))?;
        let stored = match file::read(self.directory.path()) {
            Ok(Some(bytes)) => image::records(bytes),
            Ok(None) => return Ok(()),
            Err(error) => return Err(StoreError(format!("cannot read the state file back: {error}"))),
        };
        // If it was damaged, memory has all that it said: the lock kept everyone else away.
        for record in stored.unwrap_or_default() {
            let key = record.key();
            if let Some(kept) = self.kept.iter_mut().find(|kept| kept.record.key() == key)
                && record.ceiling > kept.record.ceiling
            {
                kept.record = record;
            }
        }
        Ok(())
    }

    /// Whether the next write makes a new file in place of one that failed.
    fn is_recovering(&self) -> bool {
        self.file.is_none() && self.named.is_some()
    }
}

impl CeilingStore for DiskStore {
    fn starts(
        &self,
        newcomers: &[Claimant<'_>],
        wall: UnixMicros,
    ) -> Result<Vec<Option<Position>>, PlanError> {
        // How far a running source may be ahead was decided when it started.
        let max_ahead = Duration::ZERO;
        let running = self.kept.iter().map(|kept| Claimant {
            name: &kept.record.name,
            numbering: &kept.numbering,
            max_ahead,
        });
        let running: Vec<_> = running.collect();
        Ok(plan_beside(&running, &self.retired, newcomers, wall)?.starts)
    }

    /// Makes the file anew, as a start does. If that fails before the new file has the name, the old one is used on: a
    /// full disk has room to raise what is in it, and perhaps none for another.
    fn add(&mut self, newcomers: &[Newcomer<'_>], wall_minus_boot_us: i64) -> Result<(), StoreError> {
        if self.is_recovering() {
            self.read_back()?;
        }
        let joins = |newcomer: &Newcomer<'_>| {
            let Newcomer { name, numbering, ceiling } = *newcomer;
            let record = Record::new(name, numbering, ceiling, &self.owner, &self.place);
            Kept { record: Record { wall_minus_boot_us, ..record }, numbering: numbering.clone() }
        };
        let joining: Vec<Kept> = newcomers.iter().map(joins).collect();
        let named_before = self.named.as_ref().map(|named| named.id);
        match self.make_anew_with(&[], &joining) {
            Ok(file) => {
                self.file = Some(file);
                // In the file the newcomer's record has taken this one's place.
                let is_replaced = |key: &str| joining.iter().any(|kept| kept.record.key() == key);
                self.retired.retain(|record| !is_replaced(&record.key()));
                self.kept.extend(joining);
                Ok(())
            }
            Err(error) => {
                if self.named.as_ref().map(|named| named.id) != named_before {
                    self.file = None;
                }
                Err(error)
            }
        }
    }

    fn raise(&mut self, raises: &[(usize, Position)], wall_minus_boot_us: i64) -> Result<(), StoreError> {
        if self.is_recovering() {
            self.read_back()?;
        }
        let next = raises.iter().filter_map(|&(index, ceiling)| {
            let stored = self.kept.get(index)?.record.ceiling;
            let (index, record) = self.record_at(index, ceiling.max(stored))?;
            Some((index, Record { wall_minus_boot_us, clean: false, ..record }))
        });
        let next = next.collect();
        self.store(next)
    }

    fn trim(&mut self, trims: &[(usize, Position)]) -> Result<(), StoreError> {
        if self.is_recovering() {
            self.read_back()?;
        }
        let next = trims.iter().filter_map(|&(index, cursor)| {
            let (index, record) = self.record_at(index, cursor)?;
            Some((index, Record { clean: true, ..record }))
        });
        let next = next.collect();
        self.store(next)
    }

    fn still_ours(&self) -> Result<(), TakenOver> {
        self.directory.still_ours()?;
        let path = file::path(self.directory.path());
        if let Some(named) = &self.named {
            super::lock::same_file(&path, named.id, "state file")?;
        }
        match &self.file {
            Some(file) if !file.is_untouched() => Err(TakenOver(format!(
                "the state file {} was written by somebody else while this daemon had it",
                path.display()
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
