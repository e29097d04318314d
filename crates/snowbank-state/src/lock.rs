//! One locked file for each worker ID of a layout. Only one daemon of a machine can hold a worker
//! ID, even if each daemon has a state directory of its own.
//!
//! `lock_names.rs` makes the names of the files. A layout of another ID space can make the same
//! IDs, so a start also checks the locks that other daemons hold (`neighbours.rs`). A ticket
//! counter has one lock.
//!
//! The first line of a worker ID's file names the holder. The second line is the [`Mark`] of the
//! worker ID: the bound up to which its IDs were granted.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::holder::HOLDER_BYTES;
use super::lock_names::{Listing, lock_paths, name_of};
use super::locked_file::{FileLockError, LockedFile, PAUSE};
use super::mark::{Fate, Mark, MarkError};
use super::neighbours::{HeldIds, Locks, neighbours, refused};
use super::source_kind::kind_of;
use super::store::Record;
use super::writers::{Untrusted, Writers, check_above, check_usable, closing, open_file};
use super::{Cause, Owner, StateError, new_identity};
use snowbank_core::grant::TakenOver;
use snowbank_id::layout::Space;
use snowbank_id::numbering::Numbering;

/// The mode of a lock directory that the daemon makes: only its user has access. The package makes
/// a lock directory to which root and a group have access.
const DIRECTORY_MODE: u32 = 0o700;
/// More than the length of any mark.
const MARK_BYTES_MAX: usize = 128;

/// The locks of a source's worker IDs, held until this value is dropped.
#[derive(Debug)]
pub struct WorkerLocks {
    files: Vec<LockedFile>,
    /// The marks in the locks of the same counter under other increments and offsets.
    kin: Vec<(PathBuf, Mark)>,
    /// The marks of other layouts' worker IDs that can make the same IDs.
    colliding: Vec<(PathBuf, Mark)>,
    /// The readable marks of other ID spaces.
    beside: Vec<Beside>,
    /// The identity of the state whose grants are marked. If it is `None`, grants are not marked.
    state: Option<String>,
    /// True once the marks say that the counter is unknown. From then on, grants are not marked.
    is_unknown: bool,
}

impl WorkerLocks {
    /// Returns an empty set of locks, for a source whose numbers the daemons of a fleet share.
    pub fn none() -> Self {
        WorkerLocks::over(Vec::new())
    }

    fn over(files: Vec<LockedFile>) -> Self {
        let (kin, colliding, beside) = Default::default();
        WorkerLocks { files, kin, colliding, beside, state: None, is_unknown: false }
    }

    /// Returns whether these are the locks of exactly this numbering's worker IDs.
    pub fn are_of(&self, numbering: &Numbering) -> bool {
        let names: BTreeSet<String> =
            kind_of(numbering).lock_names().into_iter().map(|(_, name)| name).collect();
        let held: BTreeSet<String> = self.files.iter().map(|file| name_of(&file.path).to_owned()).collect();
        held == names
    }

    /// Checks that this process still holds all of the locks.
    ///
    /// # Errors
    /// Another process could hold a worker ID, because a lock's file was removed or replaced.
    pub fn still_ours(&self) -> Result<(), TakenOver> {
        self.files.iter().try_for_each(LockedFile::still_ours)
    }

    /// Makes later marks name the state of this owner.
    pub fn mark_for(&mut self, owner: &Owner) {
        self.state = Some(owner.state.clone());
    }

    /// Marks all of the worker IDs as granted below this ID. Each mark is a small write without a
    /// sync, because a mark need not survive a boot.
    ///
    /// # Errors
    /// Some worker IDs could not be marked, and keep their old marks.
    pub fn mark_granted(&self, id_bound: u64) -> io::Result<()> {
        let Some(state) = self.state.as_ref().filter(|_| !self.is_unknown) else { return Ok(()) };
        self.mark(&Mark::granted(id_bound, state))
    }

    /// Marks the counter as unknown beyond the bound that its mark has, once. Every later start is
    /// then refused until `snowbank ticket set` or the machine's next boot. Unlike the state's disk,
    /// the lock directory is in memory by default, so this does not wait.
    ///
    /// # Errors
    /// The mark could not be written, or the old mark is unreadable, which refuses a start too.
    pub fn mark_unknown(&mut self) -> Result<(), StateError> {
        if std::mem::replace(&mut self.is_unknown, true) {
            return Ok(());
        }
        let own = self.own_marks()?;
        let id_bound = own.iter().map(|mark| mark.id_bound).max().unwrap_or(0);
        let state = self.state.clone().unwrap_or_else(new_identity);
        let marked = self.mark(&Mark { id_bound, state, fate: Fate::Unknown });
        marked.map_err(|error| StateError::storage(format!("cannot mark the counter's lock: {error}")))
    }

    /// Gives this state's marks of worker IDs of the fleet another fate, and leaves their bounds:
    ///
    /// - [`Fate::Returned`]: they go back. A copy of the state may have a note that it holds them.
    /// - [`Fate::Lost`]: they are lost, or may be. The next start asks the coordinator.
    /// - [`Fate::Granted`]: nothing shows that they are lost.
    ///
    /// Unlike the state's disk, the lock directory is in memory by default, so this does not wait.
    ///
    /// # Errors
    /// A mark could not be read or written. Then the worker IDs must not be given back.
    pub fn mark_as(&self, fate: Fate) -> Result<(), StateError> {
        let Some(state) = &self.state else { return Ok(()) };
        for file in &self.files {
            let own = mark_of(file)?.filter(|mark| mark.state == *state);
            let Some(mark) = own.filter(|mark| matches!(mark.fate, Fate::Granted | Fate::Lost)) else {
                continue;
            };
            let text = Mark { fate, ..mark }.to_string();
            let marked = file.file.write_all_at(text.as_bytes(), HOLDER_BYTES);
            marked
                .map_err(|error| StateError::storage(format!("cannot mark a worker ID's lock: {error}")))?;
        }
        Ok(())
    }

    /// Marks all of the worker IDs.
    ///
    /// # Errors
    /// Some worker IDs could not be marked, and keep their old marks.
    pub fn mark(&self, mark: &Mark) -> io::Result<()> {
        let text = mark.to_string();
        // If one file cannot be marked, the other files still are.
        let marked = self.files.iter().map(|file| file.file.write_all_at(text.as_bytes(), HOLDER_BYTES));
        marked.fold(Ok(()), Result::and)
    }

    /// Marks all of the worker IDs as granted below the mark's bound, whatever the marks said before.
    /// A counter may also have locks under other increments and offsets. A mark there that forbids a
    /// start or has a higher bound is replaced, too. Those locks are free, because no other daemon
    /// can hold one of them while this process holds the lock of the counter itself.
    ///
    /// # Errors
    /// As [`mark`](WorkerLocks::mark).
    pub fn mark_anew(&self, mark: &Mark) -> io::Result<()> {
        let text = mark.to_string();
        let contrary = |old: &Mark| old.forbids() || old.id_bound > mark.id_bound;
        let marked = self.kin.iter().filter(|(_, old)| contrary(old)).map(|(path, _)| {
            let file = open_file(path, OpenOptions::new().write(true))?;
            file.write_all_at(text.as_bytes(), HOLDER_BYTES)
        });
        // If one file cannot be marked, the other files still are.
        marked.fold(self.mark(mark), Result::and)
    }

    /// Returns the marks in the locks of the worker IDs themselves.
    ///
    /// # Errors
    /// A mark cannot be read, so it is unknown how far IDs were granted.
    pub fn own_marks(&self) -> Result<Vec<Mark>, StateError> {
        self.files.iter().filter_map(|locked| mark_of(locked).transpose()).collect()
    }

    /// Returns all marks that bind the worker IDs, whichever states wrote them.
    ///
    /// # Errors
    /// As [`own_marks`](WorkerLocks::own_marks).
    pub fn marks(&self) -> Result<Vec<Mark>, StateError> {
        let mut marks = self.marks_of_source()?;
        marks.extend(self.colliding.iter().map(|(_, mark)| mark.clone()));
        Ok(marks)
    }

    /// Returns the marks of the worker IDs themselves, or of the counter under any increment and
    /// offset.
    ///
    /// # Errors
    /// As [`own_marks`](WorkerLocks::own_marks).
    pub fn marks_of_source(&self) -> Result<Vec<Mark>, StateError> {
        let mut marks = self.own_marks()?;
        marks.extend(self.kin.iter().map(|(_, mark)| mark.clone()));
        Ok(marks)
    }

    /// Returns the lock file with the highest mark that binds the worker IDs.
    pub fn furthest(&self) -> &Path {
        let own = self.files.iter().map(|file| {
            let mark = mark_of(file).ok().flatten();
            (mark.map(|mark| mark.id_bound), &*file.path)
        });
        let others = self.others().map(|(path, mark)| (Some(mark.id_bound), &**path));
        own.chain(others).max_by_key(|(bound, _)| *bound).map_or(Path::new(""), |(_, path)| path)
    }

    /// Returns true if this path is the lock file of another increment, offset or layout.
    pub fn is_of_kin(&self, path: &Path) -> bool {
        self.others().any(|(other, _)| other == path)
    }

    /// Returns the ID space of another layout if, since the machine's boot, it was granted IDs at or
    /// above `id_bound` that this source's numbering can make, too. Such a layout has an epoch years
    /// apart, or does not grow alike. So its locks do not bind the source: both may be right, each for
    /// a table of its own. Layouts that do not grow alike are taken for one table's if the other one
    /// has no daemon now.
    pub fn made_before(&self, numbering: &Numbering, id_bound: u64) -> Option<String> {
        let (layout, workers) = numbering.snowflake()?;
        let numbers = layout.numbers_in_space(workers);
        let space = layout.space();
        let repeated = self.beside.iter().find(|beside| {
            let may_repeat = if space.grows_like(&beside.space) {
                space.collision(&numbers, &beside.space, &[beside.number]).is_some()
            } else {
                !beside.is_held
            };
            may_repeat && beside.mark.id_bound > id_bound
        });
        repeated.map(|beside| beside.space.to_string())
    }

    fn others(&self) -> impl Iterator<Item = &(PathBuf, Mark)> {
        self.kin.iter().chain(&self.colliding)
    }
}

/// Locks all worker IDs of a numbering.
///
/// # Errors
/// Another process holds a worker ID, or one that may make the same IDs. Or a file in the directory
/// cannot be locked or read.
pub fn lock_workers(directory: &Path, numbering: &Numbering) -> Result<WorkerLocks, StateError> {
    Ok(lock_all(directory, &[numbering])?.pop().unwrap_or_else(WorkerLocks::none))
}

/// Locks all worker IDs of sources that start together, and returns their locks in the same order.
/// The directory is listed once.
///
/// # Errors
/// As [`lock_workers`].
pub fn lock_all(directory: &Path, numberings: &[&Numbering]) -> Result<Vec<WorkerLocks>, StateError> {
    lock_but(false, directory, numberings, PAUSE)
}

/// Locks all worker IDs of a numbering for a simulation, which waits for no other process.
///
/// # Errors
/// As [`lock_workers`].
pub fn lock_workers_at_once(directory: &Path, numbering: &Numbering) -> Result<WorkerLocks, StateError> {
    Ok(lock_but(false, directory, &[numbering], Duration::ZERO)?.pop().unwrap_or_else(WorkerLocks::none))
}

/// Locks all worker IDs of records. Returns the locks in the order of the records. If several
/// records have the same worker ID, the record with the highest bound gets the lock of that worker
/// ID.
///
/// # Errors
/// As [`lock_workers`].
pub fn lock_records(directory: &Path, records: &[Record]) -> Result<Vec<WorkerLocks>, StateError> {
    let mut furthest_first: Vec<(usize, &Record)> = records.iter().enumerate().collect();
    furthest_first.sort_by_key(|(_, record)| std::cmp::Reverse(record.id_bound));
    let numberings: Vec<&Numbering> = furthest_first.iter().map(|(_, record)| &record.numbering).collect();
    let locked = lock_but(true, directory, &numberings, PAUSE)?;
    let mut locks: Vec<_> = furthest_first.into_iter().map(|(index, _)| index).zip(locked).collect();
    locks.sort_by_key(|&(index, _)| index);
    Ok(locks.into_iter().map(|(_, record_locks)| record_locks).collect())
}

/// Locks the worker IDs of each numbering, then lists the directory and reads the other locks. If
/// `are_shared`, several numberings may have the same worker IDs, which the first of them gets.
fn lock_but(
    are_shared: bool,
    directory: &Path,
    numberings: &[&Numbering],
    pause: Duration,
) -> Result<Vec<WorkerLocks>, StateError> {
    if numberings.is_empty() {
        return Ok(Vec::new());
    }
    let writers = make_directory(directory)?;
    let mut locked: HashSet<PathBuf> = HashSet::new();
    let mut files = Vec::with_capacity(numberings.len());
    for numbering in numberings {
        let kind = kind_of(numbering);
        let mut own = Vec::new();
        for (worker, path) in lock_paths(directory, numbering) {
            if are_shared && !locked.insert(path.clone()) {
                continue;
            }
            if let Ok(found) = fs::symlink_metadata(&path) {
                check_names(&found).map_err(|error| StateError::mark_unreadable(&path, &error))?;
            }
            let line = kind.holders_line(worker);
            let file = LockedFile::lock(&path, writers, pause).map_err(|error| match error {
                FileLockError::Held { holder } => kind.held(worker, holder),
                FileLockError::Obstructed(error) => StateError::lock_obstructed(&path, &error),
                FileLockError::Refused(error) => StateError::lock_refused(&path, &error),
            })?;
            // Before the holder's line makes it look whole.
            check_whole(&file.file).map_err(|error| StateError::mark_unreadable(&path, &error))?;
            file.describe(&line).map_err(|error| StateError::lock_refused(&path, &error))?;
            own.push(file);
        }
        files.push(own);
    }
    let listing = Listing::of(directory).map_err(|error| refused(directory, &error))?;
    let mut all = Vec::with_capacity(numberings.len());
    for (numbering, files) in numberings.iter().zip(files) {
        let is_other =
            |path: &&PathBuf| !locked.contains(*path) && files.iter().all(|file| file.path != **path);
        let neighbours = neighbours(listing.beside(numbering).filter(is_other))?;
        let beside = marks_of(&neighbours, writers);
        let colliding = kind_of(numbering).check_neighbours(neighbours)?;
        let kin = listing.kin(numbering).filter(is_other).cloned().collect();
        all.push(WorkerLocks {
            kin: free_marks(kin, writers)?,
            colliding: free_marks(colliding, writers)?,
            beside,
            ..WorkerLocks::over(files)
        });
    }
    Ok(all)
}

/// The mark of a worker ID of another ID space.
#[derive(Debug)]
struct Beside {
    number: u64,
    space: Space,
    mark: Mark,
    /// Whether a daemon holds the worker ID.
    is_held: bool,
}

/// Returns the readable marks of worker IDs.
fn marks_of(locks: &Locks, writers: Writers) -> Vec<Beside> {
    let free =
        locks.free.iter().map(|(number, space, path)| (*number, space, free_mark(path, writers), false));
    let held = locks.held.iter().filter_map(|(ids, file)| match ids {
        HeldIds::Worker(number, space) => Some((*number, space, read_mark(file), true)),
        HeldIds::Counter(_) => None,
    });
    let marks = free.chain(held).filter_map(|(number, space, mark, is_held)| {
        Some(Beside { number, space: space.clone(), mark: mark.ok()??, is_held })
    });
    marks.collect()
}

fn free_marks(paths: Vec<PathBuf>, writers: Writers) -> Result<Vec<(PathBuf, Mark)>, StateError> {
    let mut marks = Vec::new();
    for path in paths {
        match free_mark(&path, writers) {
            Ok(mark) => marks.extend(mark.map(|mark| (path, mark))),
            Err(error) => return Err(StateError::mark_unreadable(&path, &error)),
        }
    }
    Ok(marks)
}

/// Reads the mark of a lock that this process does not hold. Ignores a mark that other users could
/// have written.
pub(super) fn free_mark(path: &Path, writers: Writers) -> io::Result<Option<Mark>> {
    let file = match open_file(path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    check_names(&metadata)?;
    if writers.alone_wrote(&metadata) { read_mark(&file) } else { Ok(None) }
}

/// Checks that a lock's file has no second name. A daemon would replace such a file, and lose its
/// mark.
fn check_names(found: &Metadata) -> io::Result<()> {
    if !found.is_file() || found.nlink() <= 1 {
        return Ok(());
    }
    let text = format!("it has {} names (hard links), allowed: one; remove the others first", found.nlink());
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

/// Makes the directory if it is missing. Returns the users who may write its files.
fn make_directory(directory: &Path) -> Result<Writers, StateError> {
    writers_of_made(directory).map_err(|untrusted| not_trusted(directory, untrusted))
}

/// Checks that this process could make or use a lock directory. Makes and locks nothing.
///
/// # Errors
/// The errors of [`lock_workers`] that concern the directory itself.
pub fn check_lock_dir(directory: &Path) -> Result<(), StateError> {
    check_usable(directory, false).map_err(|untrusted| not_trusted(directory, untrusted))
}

/// Returns the error for a directory that other users could replace, or that cannot be used.
fn not_trusted(directory: &Path, untrusted: Untrusted) -> StateError {
    match untrusted {
        Untrusted::NotSeen(error) => StateError::lock_refused(directory, &error),
        Untrusted::Foreign(error) => StateError::lock_obstructed(directory, &error),
        Untrusted::NoDirectory(error) => {
            let reason = format!(
                "cannot lock worker IDs at {}: {error}; set lock_dir to a directory that all daemons of this machine share",
                directory.display()
            );
            StateError::new(Cause::Setting, reason)
        }
        Untrusted::Open(open, mode) => {
            let reason = format!(
                "every user can write {} (mode {mode:o}), and so replace the lock directory {} and make IDs repeat; only its \
                 owner and its group may write there: stop the daemons that use it, and {}give all daemons of this machine another lock_dir",
                open.display(),
                directory.display(),
                closing(mode)
            );
            StateError::new(Cause::Setting, reason)
        }
    }
}

fn writers_of_made(directory: &Path) -> Result<Writers, Untrusted> {
    match writers_of(directory) {
        Err(Untrusted::NotSeen(error)) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    directory.parent().map_or(Ok(()), fs::create_dir_all).map_err(Untrusted::NotSeen)?;
    match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Untrusted::NotSeen(error)),
        // This process made the directory, or another process made it at the same time.
        _ => writers_of(directory),
    }
}

/// Returns the users who may write the files of a lock directory.
pub(super) fn writers_of(directory: &Path) -> Result<Writers, Untrusted> {
    let writers = Writers::of(directory, false)?;
    check_above(directory)?;
    Ok(writers)
}

fn mark_of(locked: &LockedFile) -> Result<Option<Mark>, StateError> {
    read_mark(&locked.file).map_err(|error| StateError::mark_unreadable(&locked.path, &error))
}

/// Checks that the file's first line is whole. An empty file has no mark yet: its maker was killed.
fn check_whole(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    if (1..HOLDER_BYTES).contains(&length) {
        let text = format!("it has {length} bytes, and snowbank writes at least {HOLDER_BYTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(())
}

/// Returns the mark in a lock's file. Returns `None` if the file has no mark yet.
fn read_mark(file: &File) -> io::Result<Option<Mark>> {
    let mut bytes = [0; MARK_BYTES_MAX];
    match file.read_at(&mut bytes, HOLDER_BYTES)? {
        0 => check_whole(file).map(|()| None),
        count => {
            let text = std::str::from_utf8(&bytes[..count]).map_err(|_| MarkError::Foreign);
            let mark = text.and_then(Mark::parse).map_err(|error| match error {
                MarkError::Foreign => io::Error::new(io::ErrorKind::InvalidData, error),
                MarkError::Form(_) => io::Error::new(io::ErrorKind::Unsupported, error),
            })?;
            Ok(Some(mark))
        }
    }
}

#[cfg(test)]
mod tests;
