//! Ceilings on disk, in one file of the state directory. One process at a time uses the directory.
//!
//! - `record`: the record of a source.
//! - `plan`: the rules of a start.
//! - `directory`: the state directory and its lock.
//! - `file`: writing the state file in place, and replacing it after a failure.
//! - `copies`: the text of the state file's two copies.
//! - `moved`: exports, imports, and what is forgotten.

mod copies;
mod directory;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod moved;
mod plan;
mod record;

pub use directory::{StateDir, check_usable, holder, read, read_to_write};
pub use file::{Disk, Slots};
pub use moved::{export, forget, merge, parse_export, write};
pub use plan::{
    Claimant, Plan, Start, above_records, has_records_of_all, plan, plan_beside, set_command, unique_from,
};
pub use record::{Moment, Record};

use std::collections::{BTreeMap, HashSet};

use self::file::StateFile;
use super::StateError;
use super::identity::HostIdentity;
use snowbank_core::grant::{Left, TakenOver};
use snowbank_id::layout::Position;

/// Returns the records of other machines. If this machine has no identity, returns none.
pub fn foreign<'a>(records: &'a [Record], here: &HostIdentity) -> impl Iterator<Item = &'a Record> {
    let here = here.machine.clone();
    records.iter().filter(move |record| here.is_some() && record.machine.is_some() && record.machine != here)
}

/// Sources that begin, with all that a start decided about the records of other sources.
#[derive(Clone, Debug, Default)]
pub struct Beginning {
    /// The first record of each source, and the source's index.
    pub sources: Vec<(usize, Record)>,
    /// The first ceilings of these sources.
    pub ceilings: Vec<(usize, Position)>,
    /// Records of numberings that no source with a grant has. They stay in the file with their bounds.
    pub retired: Vec<Record>,
    /// Records of worker IDs that belong to the fleet again. Each of them is dropped once the
    /// current record of the same source is as high. The coordinator has the bounds of these worker
    /// IDs.
    pub let_go: Vec<Record>,
    /// The sources whose counters other daemons use too: a state alone does not know how far they
    /// have counted.
    pub unknown: Vec<usize>,
    /// The value for [`DiskStore::record_id_time`].
    pub id_minus_boot_us: i64,
}

/// A store of ceilings in a state directory. Its methods wait for the disk, so a running daemon
/// calls them on the storage thread.
#[derive(Debug)]
pub struct DiskStore {
    directory: StateDir,
    file: StateFile,
    /// The records of the daemon's sources by index. Their ceilings are durable.
    sources: BTreeMap<usize, Record>,
    /// Records of numberings that no source with a grant has. They stay in the file with their bounds.
    retired: Vec<Record>,
    /// Records of worker IDs that belong to the fleet again. They still bind the order of IDs, so
    /// each is written until the current record of the same source is as high.
    let_go: Vec<Record>,
    host: HostIdentity,
}

impl DiskStore {
    /// Returns a store over a locked directory, which has these records. No source has begun yet.
    pub fn new(directory: StateDir, records: Vec<Record>, host: &HostIdentity) -> Self {
        let file = StateFile::of(directory.path());
        let sources = BTreeMap::new();
        DiskStore { file, sources, directory, retired: records, let_go: Vec::new(), host: host.clone() }
    }

    /// Keeps the record of a source from the next write on. [`raise`](DiskStore::raise) then makes
    /// the source's first ceiling durable.
    pub fn keep(&mut self, source: usize, record: Record) {
        self.sources.insert(source, record);
    }

    /// Returns the records that bind the next source that begins beside the `running` ones. A counter
    /// that is lost and still runs binds no other source. A removed source may still be among the
    /// sources here, if the disk hung when it ended.
    pub fn records(&self, running: &[usize]) -> Vec<Record> {
        let sources = self.sources.iter().map(|(index, record)| Record {
            restored: record.restored && !running.contains(index),
            ..record.clone()
        });
        sources.chain(self.retired.iter().cloned()).collect()
    }

    /// Makes the first ceilings of sources durable, all in one write.
    ///
    /// # Errors
    /// The ceilings may not be durable, and the sources have not begun. If the file has their
    /// records nevertheless, their bounds are not lower than those that the sources began at.
    pub fn begin(&mut self, beginning: Beginning, wall_minus_boot_us: i64) -> Result<(), StateError> {
        let Beginning { sources, ceilings, retired, let_go, unknown, id_minus_boot_us } = beginning;
        // An earlier start under this index may have begun here, although it was given up because the
        // disk was late. If this start fails, its end must not lower that one's record.
        for (index, _) in &sources {
            let given_up = self.sources.remove(index);
            self.retired.extend(given_up.map(|record| Record { retired: true, ..record }));
        }
        let before = (self.sources.clone(), self.retired.clone(), self.let_go.clone());
        // A source that was removed while the disk hung may not have ended here. It has its worker
        // IDs or its counter again, at or above its old bound, and this record would soon be stale.
        let begun: HashSet<String> = sources.iter().map(|(_, record)| record.key()).collect();
        self.sources.retain(|_, record| !begun.contains(&record.key()));
        self.sources.extend(sources);
        self.retired = retired;
        self.let_go.extend(let_go.into_iter().map(|record| Record { retired: true, ..record }));
        self.record_unknown(&unknown);
        // The bound that was recorded for the sources that run holds until their next write.
        let running = self.sources.values().filter_map(|record| record.id_minus_boot_us).max();
        self.record_id_time(running.max(Some(id_minus_boot_us)));
        let begun = self.raise(&ceilings, wall_minus_boot_us).and_then(|()| self.await_names());
        if begun.is_err() {
            (self.sources, self.retired, self.let_go) = before;
        }
        begun
    }

    /// Ends sources: lowers their ceilings to the first IDs that were not handed out, as
    /// [`trim`](DiskStore::trim) does. Keeps their records for a later start. If a reload has
    /// removed them, the records say that the last run did not have these sources to its end.
    ///
    /// # Errors
    /// The lower ceilings may not be durable.
    pub fn end(
        &mut self,
        ends: &[Left],
        are_removed: bool,
        wall_minus_boot_us: i64,
    ) -> Result<(), StateError> {
        for left in ends {
            // Those that run on may write nothing for long.
            self.sources.entry(left.source).and_modify(|record| record.retired |= are_removed);
        }
        let trimmed = self.trim(ends, wall_minus_boot_us);
        let ended = ends.iter().filter_map(|left| self.sources.remove(&left.source));
        self.retired.extend(ended);
        trimmed
    }

    /// Gives these sources other names, which the next write makes durable. A name binds only the
    /// order of IDs.
    pub fn rename(&mut self, names: Vec<(usize, String)>) {
        for (index, name) in names {
            if let Some(record) = self.sources.get_mut(&index) {
                record.name = name;
            }
        }
    }

    /// Returns the state directory.
    pub fn path(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Waits until the names of the directory and of the state file are durable. Until then, a
    /// power failure may remove all that was stored.
    ///
    /// # Errors
    /// The names may not be durable.
    pub fn await_names(&self) -> Result<(), StateError> {
        self.directory.await_names()
    }

    /// Makes these records of all sources durable. All records of this boot get the current
    /// `wall_minus_boot_us`: a start must not find an older value in a record that is otherwise
    /// unchanged.
    fn store(
        &mut self,
        mut records: BTreeMap<usize, Record>,
        wall_minus_boot_us: i64,
    ) -> Result<(), StateError> {
        let mut retired = self.retired.clone();
        let mut let_go = self.let_go.clone();
        let all = retired.iter_mut().chain(&mut let_go).chain(records.values_mut());
        let this_boot = all.filter(|record| record.boot == self.host.boot);
        this_boot.for_each(|record| record.wall_minus_boot_us = wall_minus_boot_us);
        // Of records with one key the last one counts. A worker ID may have been taken again since
        // it was let go.
        self.file.write(still_needed(&let_go, &records).chain(&retired).chain(records.values()))?;
        (self.retired, self.let_go) = (retired, let_go);
        self.sources = records;
        Ok(())
    }

    /// Makes new ceilings of the sources with these indices durable, all in one write. Positions
    /// below a new ceiling may be used only after this call has succeeded. This call never lowers a
    /// ceiling.
    ///
    /// `wall_minus_boot_us` is the wall clock minus the boot clock, as the daemon believes them
    /// now. A start in the same boot compares this difference with its own clocks. So the start
    /// notices a step of the wall clock since the write.
    ///
    /// # Errors
    /// The ceilings may not be durable. The caller continues with the old ceilings, and calls this
    /// again later.
    pub fn raise(&mut self, raises: &[(usize, Position)], wall_minus_boot_us: i64) -> Result<(), StateError> {
        let mut records = self.sources.clone();
        for &(index, ceiling) in raises {
            let record = records.get_mut(&index);
            let record = record.expect("a source whose ceiling rises has had its first ceiling stored");
            let raised = record.at(ceiling.max(record.ceiling()));
            assert!(raised.id_bound >= record.id_bound, "a raise never lowers a bound");
            *record = Record { clean: false, untouched: false, ..raised };
        }
        self.store(records, wall_minus_boot_us)
    }

    /// Sets an upper bound of the ID clock minus the boot clock, in microseconds. Every later write
    /// records the bound that was set last. A recorded bound must hold until the next write. `None`:
    /// none is known.
    pub fn record_id_time(&mut self, id_minus_boot_us: Option<i64>) {
        for source in self.sources.values_mut() {
            source.id_minus_boot_us = id_minus_boot_us;
        }
    }

    /// Makes every later write record that the state does not know how far these sources have
    /// counted. The next start then refuses the sources.
    pub fn record_unknown(&mut self, indices: &[usize]) {
        for &index in indices {
            if let Some(record) = self.sources.get_mut(&index) {
                record.restored = true;
            }
        }
    }

    /// At a clean stop, lowers the ceilings to the first IDs that were not handed out. Nothing may
    /// be claimed after this call, even if it fails. `wall_minus_boot_us` has the same meaning as
    /// for [`raise`](DiskStore::raise).
    ///
    /// # Errors
    /// The lower ceilings may not be durable. Then the file may still have the old ceilings.
    pub fn trim(&mut self, trims: &[Left], wall_minus_boot_us: i64) -> Result<(), StateError> {
        let mut records = self.sources.clone();
        for left in trims {
            // A start that failed may have stored no first ceiling.
            let Some(record) = records.get_mut(&left.source) else { continue };
            // Of a shared counter, the coordinator has the bound.
            assert!(
                record.restored || left.id_bound <= record.id_bound,
                "nothing was handed out above the bound that the state has"
            );
            *record = Record { clean: true, untouched: left.is_untouched, ..record.below(left.id_bound) };
        }
        self.store(records, wall_minus_boot_us)
    }

    /// Checks that no other process has taken over the state directory or its file. The caller
    /// repeats this check about once a second while a source is in use, and around each raise.
    ///
    /// # Errors
    /// Another process could be using the directory or the file now.
    pub fn still_ours(&self) -> Result<(), TakenOver> {
        self.directory.still_ours()?;
        self.file.still_ours()
    }
}

/// Returns the records of `let_go` that a later start still needs. A record is needed until the
/// record of a current source [keeps its order](Record::keeps_order_of).
fn still_needed<'a>(
    let_go: &'a [Record],
    sources: &'a BTreeMap<usize, Record>,
) -> impl Iterator<Item = &'a Record> {
    let_go.iter().filter(|gone| !sources.values().any(|record| record.keeps_order_of(gone)))
}

#[cfg(test)]
pub(crate) mod tests;
