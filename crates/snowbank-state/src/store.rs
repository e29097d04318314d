//! Ceilings on disk, in one file of the state directory. One process at a time uses the directory.
//!
//! - `record`: the record of a source.
//! - `plan`: the rules of a start.
//! - `directory`: the state directory and its lock.
//! - `file`: writing the state file in place, and replacing it after a failure.
//! - `copies`: the text of the state file's two copies.
//! - `moved`: exports and imports.

mod copies;
mod directory;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod moved;
mod plan;
mod record;

pub use directory::{StateDir, holder, read};
#[doc(hidden)]
pub use file::{Disk, Slots};
pub use moved::{Export, export, merge, write};
pub use plan::{Claimant, Plan, above_records, plan};
pub use record::{Moment, Record};

use self::file::StateFile;
use super::identity::HostIdentity;
use super::{Left, StateError, TakenOver};
use snowbank_id::layout::Position;

/// Returns the first record of another machine, if there is one. If this machine has no identity,
/// returns `None`.
pub fn foreign<'a>(records: &'a [Record], here: &HostIdentity) -> Option<&'a Record> {
    let here = here.machine.as_ref()?;
    records.iter().find(|record| record.machine.as_ref().is_some_and(|machine| machine != here))
}

/// Ceilings in a state directory. Its methods block: only the storage thread calls them.
#[derive(Debug)]
pub struct DiskStore {
    directory: StateDir,
    file: StateFile,
    /// The records of the daemon's sources, by their index, with the ceilings that are durable.
    sources: Vec<Record>,
    /// Records that no source of this daemon has. Their bounds stay.
    retired: Vec<Record>,
    /// Records of worker IDs that belong to the fleet again. They keep the order of IDs, so each is
    /// written until its source's own record is as high.
    let_go: Vec<Record>,
    host: HostIdentity,
}

impl DiskStore {
    /// Returns a store over a locked directory. `sources` are the first records of the daemon's
    /// sources. Nothing is written yet: the first [`raise`](DiskStore::raise) makes all first
    /// ceilings durable together.
    pub fn new(directory: StateDir, sources: Vec<Record>, retired: Vec<Record>, host: &HostIdentity) -> Self {
        let file = StateFile::of(directory.path());
        let retired = retired.into_iter().map(|record| Record { retired: true, ..record }).collect();
        DiskStore { file, sources, directory, retired, let_go: Vec::new(), host: host.clone() }
    }

    /// Adds records that are dropped once their sources' own records are as high. The fleet's
    /// coordinator holds their bounds.
    #[must_use]
    pub fn letting_go(self, records: Vec<Record>) -> Self {
        let let_go = records.into_iter().map(|record| Record { retired: true, ..record }).collect();
        DiskStore { let_go, ..self }
    }

    /// Returns the state directory.
    pub fn path(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Waits until the names of the directory and of the state file are durable. Until then,
    /// nothing that is stored counts.
    ///
    /// # Errors
    /// They may not be durable.
    pub fn await_names(&self) -> Result<(), StateError> {
        self.directory.await_names()
    }

    /// Makes these records of all sources durable. All records of this boot get the current
    /// `wall_minus_boot_us`: a start must not find an older value in a record that is otherwise
    /// unchanged.
    fn store(&mut self, mut records: Vec<Record>, wall_minus_boot_us: i64) -> Result<(), StateError> {
        let mut retired = self.retired.clone();
        let mut let_go = self.let_go.clone();
        let all = retired.iter_mut().chain(&mut let_go).chain(&mut records);
        let of_this_boot = all.filter(|record| record.boot == self.host.boot);
        of_this_boot.for_each(|record| record.wall_minus_boot_us = wall_minus_boot_us);
        self.file.write(retired.iter().chain(still_needed(&let_go, &records)).chain(&records))?;
        (self.retired, self.let_go) = (retired, let_go);
        self.sources = records;
        Ok(())
    }

    /// Makes the ceilings durable for the sources of these indices, all in one write. On success,
    /// and only then, positions below them may be used. A ceiling below the stored one changes
    /// nothing.
    ///
    /// `wall_minus_boot_us` is the wall clock minus the boot clock, as the daemon believes them
    /// now. A start in the same boot compares it with its own clocks, and so notices a step
    /// between.
    ///
    /// # Errors
    /// The ceilings may not be durable. The caller continues under the old ones and tries again.
    pub fn raise(&mut self, raises: &[(usize, Position)], wall_minus_boot_us: i64) -> Result<(), StateError> {
        let mut records = self.sources.clone();
        for &(index, ceiling) in raises {
            let record = &mut records[index];
            let raised = record.at(ceiling.max(record.ceiling));
            *record = Record { clean: false, untouched: false, ..raised };
        }
        self.store(records, wall_minus_boot_us)
    }

    /// Sets an upper bound of the ID clock minus the boot clock, in microseconds. Later writes
    /// record it. It must hold until the write after.
    pub fn note_id_time(&mut self, id_minus_boot_us: i64) {
        for source in &mut self.sources {
            source.id_minus_boot_us = Some(id_minus_boot_us);
        }
    }

    /// Lets every later write record that the state does not know how far the counters of these
    /// sources have got. The next start then refuses the sources.
    pub fn note_unknown(&mut self, indices: &[usize]) {
        for &index in indices {
            self.sources[index].restored = true;
        }
    }

    /// Lowers the ceilings to the first IDs that were not handed out, at a clean stop. Nothing may
    /// be claimed after this call, even if it fails. `wall_minus_boot_us` is that of
    /// [`raise`](DiskStore::raise).
    ///
    /// # Errors
    /// The lower ceilings may not be durable. The old ones may then still stand.
    pub fn trim(&mut self, trims: &[Left], wall_minus_boot_us: i64) -> Result<(), StateError> {
        let mut records = self.sources.clone();
        for left in trims {
            let record = &mut records[left.source];
            *record = Record { clean: true, untouched: left.is_untouched, ..record.below(left.id_bound) };
        }
        self.store(records, wall_minus_boot_us)
    }

    /// Checks that no other process has taken over the state directory or its file. The caller
    /// does this about once a second, and around each write.
    ///
    /// # Errors
    /// Another process could use them now.
    pub fn still_ours(&self) -> Result<(), TakenOver> {
        self.directory.still_ours()?;
        self.file.still_ours()
    }
}

/// Returns the records of `let_go` that a start still needs, because no source's own record keeps
/// their order of IDs.
fn still_needed<'a>(let_go: &'a [Record], sources: &'a [Record]) -> impl Iterator<Item = &'a Record> {
    let_go.iter().filter(|gone| !sources.iter().any(|record| record.keeps_order_of(gone)))
}

#[cfg(test)]
pub(crate) mod tests;
