//! Ceilings on disk: one file in the state directory, which one process uses.
//!
//! - `record`: the record of a source.
//! - `plan`: the rules of a start.
//! - `directory`: the state directory and its lock.
//! - `file`: writing the state file in place, and replacing it after a failure.
//! - `copies`: the text of its two copies.
//! - `moved`: exports and imports.

mod copies;
mod directory;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod moved;
mod plan;
mod record;

pub use directory::{StateDir, StateLock, holder, read};
pub use moved::{Export, ImportError, export, merge, write};
pub use plan::{Claimant, Plan, PlanError, When, plan, plan_beside};
pub use record::{Record, id_bound, position_from};

use self::file::StateFile;
use super::identity::{HostIdentity, Owner};
use super::{CeilingStore, Newcomer, StoreError, TakenOver};
use snowbank_client::layout::{Numbering, Position};

/// Returns the record of another machine, if there is one among these. A machine without an identity finds none.
pub fn foreign<'a>(records: &'a [Record], here: &HostIdentity) -> Option<&'a Record> {
    let is_foreign = |record: &&Record| matches!((&record.machine, &here.machine), (Some(there), Some(here)) if there != here);
    records.iter().find(is_foreign)
}

/// Ceilings in a state directory.
#[derive(Debug)]
pub struct DiskStore {
    directory: StateDir,
    file: StateFile,
    /// The daemon's sources, by their index, with the ceilings that are durable.
    sources: Vec<StoredSource>,
    /// Records that stay as they are.
    retired: Vec<Record>,
    owner: Owner,
    host: HostIdentity,
}

#[derive(Debug)]
struct StoredSource {
    record: Record,
    numbering: Numbering,
}

impl DiskStore {
    /// Returns a store over a locked directory, for sources (by index) of these names and numberings. Nothing is written
    /// yet: the first [`raise`](CeilingStore::raise) makes all first ceilings durable together.
    ///
    /// `starts` are the sources' first positions; no stored ceiling will be below them.
    pub fn new<'a>(
        directory: StateDir,
        starts: impl IntoIterator<Item = (&'a str, &'a Numbering, Position)>,
        retired: Vec<Record>,
        owner: &Owner,
        host: &HostIdentity,
    ) -> Self {
        let sources = starts.into_iter().map(|(name, numbering, start)| StoredSource {
            record: Record::new(name, numbering, start, owner, host),
            numbering: numbering.clone(),
        });
        let file = StateFile::of(directory.path());
        let (owner, host) = (owner.clone(), host.clone());
        DiskStore { file, sources: sources.collect(), directory, retired, owner, host }
    }

    /// Makes the records of all sources durable, with these changes.
    fn store(
        &mut self,
        changes: &[(usize, Position)],
        change: impl Fn(&StoredSource, Position) -> Record,
    ) -> Result<(), StoreError> {
        let mut records: Vec<Record> = self.sources.iter().map(|source| source.record.clone()).collect();
        for &(index, position) in changes {
            if let Some(source) = self.sources.get(index) {
                records[index] = change(source, position);
            }
        }
        self.file.write(self.retired.iter().chain(&records))?;
        for (source, record) in self.sources.iter_mut().zip(records) {
            source.record = record;
        }
        Ok(())
    }
}

impl CeilingStore for DiskStore {
    fn add(
        &mut self,
        first_index: usize,
        newcomers: &[Newcomer<'_>],
        wall_minus_boot_us: i64,
    ) -> Result<(), StoreError> {
        let given_up = self.sources.drain(first_index.min(self.sources.len())..);
        self.retired.extend(given_up.map(|source| source.record));
        let joins = |newcomer: &Newcomer<'_>| {
            let Newcomer { name, numbering, ceiling } = *newcomer;
            let record = Record::new(name, numbering, ceiling, &self.owner, &self.host);
            StoredSource { record: Record { wall_minus_boot_us, ..record }, numbering: numbering.clone() }
        };
        let joining: Vec<StoredSource> = newcomers.iter().map(joins).collect();
        // The last of one key counts, and a newcomer's ceiling is above the one that is stored of it.
        let sources = self.sources.iter().chain(&joining).map(|source| &source.record);
        self.file.write(self.retired.iter().chain(sources))?;
        let is_replaced = |key: &str| joining.iter().any(|source| source.record.key() == key);
        self.retired.retain(|record| !is_replaced(&record.key()));
        self.sources.extend(joining);
        Ok(())
    }

    fn raise(&mut self, raises: &[(usize, Position)], wall_minus_boot_us: i64) -> Result<(), StoreError> {
        self.store(raises, |StoredSource { record, numbering }, ceiling| {
            let record = record.at(numbering, ceiling.max(record.ceiling));
            Record { wall_minus_boot_us, clean: false, ..record }
        })
    }

    fn trim(&mut self, trims: &[(usize, Position)]) -> Result<(), StoreError> {
        self.store(trims, |StoredSource { record, numbering }, cursor| Record {
            clean: true,
            ..record.at(numbering, cursor)
        })
    }

    fn still_ours(&self) -> Result<(), TakenOver> {
        self.directory.still_ours()?;
        self.file.still_ours()
    }
}

#[cfg(test)]
mod tests;
