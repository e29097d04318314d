//! One locked file for each worker ID of a layout: only one daemon of a machine holds it, whatever its state directory.
//!
//! `lock_names.rs` has the files' names. Layouts of other ID spaces can make the same IDs, so the other locks that are held
//! are checked too (`neighbours.rs`). A ticket counter has one lock.
//!
//! The first line of a worker ID's file names the holder. The second is its [`Mark`]: the bound up to which its IDs were
//! granted.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::lock_names::{cannot_collide, kin_paths, lock_paths};
use super::locked_file::{FileLockError, HOLDER_BYTES, LockedFile, PAUSE};
use super::mark::{Fate, Mark};
use super::neighbours::check_neighbours;
use super::store::Record;
use super::writers::{Untrusted, Writers, open_file};
use super::{LockError, Owner, TakenOver};
use crate::numbering::Numbering;

/// For this user alone. The package's directory is for root and its group.
const DIRECTORY_MODE: u32 = 0o700;
/// More than the length of a mark. No program of this project writes a longer line.
const MARK_BYTES_MAX: usize = 128;

/// The locks of a source's worker IDs, held until this is dropped.
#[derive(Debug)]
pub struct WorkerLocks {
    files: Vec<LockedFile>,
    /// The marks that counters of the same name with another increment or offset have left.
    of_kin: Vec<(PathBuf, Mark)>,
    /// The state whose grants are marked. `None`: grants are not marked.
    state: Option<String>,
}

impl WorkerLocks {
    /// Returns no locks, for a source whose numbers the daemons of a fleet share.
    pub fn none() -> Self {
        WorkerLocks { files: Vec::new(), of_kin: Vec::new(), state: None }
    }

    /// Checks that this process still holds all of them.
    ///
    /// # Errors
    /// Another process could hold a worker ID, because a lock's file was removed or replaced.
    pub fn still_ours(&self) -> Result<(), TakenOver> {
        self.files.iter().try_for_each(LockedFile::still_ours)
    }

    /// Marks grants from now on as grants of the owner's state.
    pub fn mark_for(&mut self, owner: &Owner) {
        self.state = Some(owner.state.clone());
    }

    /// Marks all of the worker IDs as granted below this ID. Each mark is a small write without a sync: a boot forgets it.
    ///
    /// # Errors
    /// Some could not be marked and keep their old marks.
    pub fn mark_granted(&self, id_bound: u64) -> io::Result<()> {
        let Some(state) = &self.state else { return Ok(()) };
        self.mark(&Mark::granted(id_bound, state))
    }

    /// Marks all of the worker IDs as granted below this ID, and returned to the fleet.
    ///
    /// # Errors
    /// As [`mark_granted`](WorkerLocks::mark_granted).
    pub fn mark_returned(&self, id_bound: u64) -> io::Result<()> {
        let Some(state) = &self.state else { return Ok(()) };
        self.mark(&Mark { fate: Fate::Returned, ..Mark::granted(id_bound, state) })
    }

    /// Marks all of the worker IDs.
    ///
    /// # Errors
    /// Some could not be marked: theirs are as they were.
    pub fn mark(&self, mark: &Mark) -> io::Result<()> {
        let text = mark.to_string();
        // A failure of one does not keep the others from being marked.
        let marked = self.files.iter().map(|file| file.file.write_all_at(text.as_bytes(), HOLDER_BYTES));
        marked.fold(Ok(()), Result::and)
    }

    /// Returns the marks of the worker IDs, of all states.
    ///
    /// # Errors
    /// A mark cannot be read, so it is unknown how far IDs were granted.
    pub fn marks(&self) -> Result<Vec<Mark>, LockError> {
        let own = self.files.iter().filter_map(|locked| mark_of(locked).transpose());
        let mut marks = own.collect::<Result<Vec<Mark>, LockError>>()?;
        // True for a counter that was moved away under another increment, and has returned under this one.
        let is_back = |moved: &Mark| {
            let is_past = |mark: &Mark| !mark.is_released() && mark.id_bound >= moved.id_bound;
            moved.is_released() && marks.iter().any(is_past)
        };
        let of_kin: Vec<Mark> =
            self.of_kin.iter().map(|(_, mark)| mark).filter(|mark| !is_back(mark)).cloned().collect();
        marks.extend(of_kin);
        Ok(marks)
    }

    /// Returns the lock file with the highest mark.
    pub fn furthest(&self) -> &Path {
        let bound = |file: &&LockedFile| mark_of(file).ok().flatten().map(|mark| mark.id_bound);
        self.files.iter().max_by_key(bound).map_or(Path::new(""), |file| &file.path)
    }
}

/// Locks all worker IDs of a numbering.
///
/// # Errors
/// A worker ID is held by another process, or the directory does not allow locks. A lock is never skipped.
pub fn lock_workers(directory: &Path, numbering: &Numbering) -> Result<WorkerLocks, LockError> {
    lock_workers_but(&HashSet::new(), directory, numbering, PAUSE)
}

/// Locks all worker IDs of a numbering for a simulation, which waits for no other process.
///
/// # Errors
/// As [`lock_workers`].
pub fn lock_workers_at_once(directory: &Path, numbering: &Numbering) -> Result<WorkerLocks, LockError> {
    lock_workers_but(&HashSet::new(), directory, numbering, Duration::ZERO)
}

/// Locks all worker IDs of records. Returns the locks in the order of the records. A worker ID that records share is locked
/// for the record with the highest bound.
///
/// # Errors
/// As [`lock_workers`].
pub fn lock_records(directory: &Path, records: &[Record]) -> Result<Vec<WorkerLocks>, LockError> {
    let mut furthest_first: Vec<(usize, &Record)> = records.iter().enumerate().collect();
    furthest_first.sort_by_key(|(_, record)| std::cmp::Reverse(record.id_bound));
    let mut locked = HashSet::new();
    let lock = |(index, record): (usize, &Record)| {
        let locks = lock_workers_but(&locked, directory, &record.numbering, PAUSE)?;
        locked.extend(locks.files.iter().map(|file| file.path.clone()));
        Ok((index, locks))
    };
    let mut locks: Vec<_> = furthest_first.into_iter().map(lock).collect::<Result<_, LockError>>()?;
    locks.sort_by_key(|&(index, _)| index);
    Ok(locks.into_iter().map(|(_, locks)| locks).collect())
}

fn lock_workers_but(
    locked: &HashSet<PathBuf>,
    directory: &Path,
    numbering: &Numbering,
    pause: Duration,
) -> Result<WorkerLocks, LockError> {
    let writers = make_directory(directory)?;
    let files = lock_paths(directory, numbering).into_iter().filter(|(_, path)| !locked.contains(path));
    let files = files.map(|(worker, path)| {
        LockedFile::lock(&path, writers, &held_line(numbering, worker), pause).map_err(|error| match error {
            FileLockError::Held { holder } => held(numbering, worker, holder),
            FileLockError::Obstructed(error) => LockError::Obstructed { path, error },
            FileLockError::Refused(error) => LockError::NotLocked { path, error },
        })
    });
    let files: Vec<LockedFile> = files.collect::<Result<_, _>>()?;
    let own: HashSet<&Path> =
        files.iter().map(|file| &*file.path).chain(locked.iter().map(|path| &**path)).collect();
    let cannot_collide = cannot_collide(numbering);
    check_neighbours(directory, &|path| own.contains(path) || cannot_collide(path), numbering)?;
    let is_free = |path: &PathBuf| !own.contains(&**path);
    let kin: Vec<PathBuf> = kin_paths(directory, numbering)?.into_iter().filter(is_free).collect();
    let of_kin = kin.into_iter().filter_map(|path| free_mark(path, writers).transpose());
    let of_kin = of_kin.collect::<Result<_, _>>()?;
    Ok(WorkerLocks { files, of_kin, state: None })
}

/// Returns the part of a holder's line that names the IDs.
fn held_line(numbering: &Numbering, worker: u64) -> String {
    match numbering {
        Numbering::Snowflake(numbering) => {
            let layout = numbering.layout();
            format!("worker ID {}, {}", layout.number_in_space(worker), layout.space())
        }
        Numbering::Ticket(counter) => counter.to_string(),
    }
}

fn held(numbering: &Numbering, worker: u64, holder: String) -> LockError {
    match numbering {
        Numbering::Snowflake(numbering) => {
            LockError::Held { worker, layout: Box::new(numbering.layout().clone()), holder }
        }
        Numbering::Ticket(counter) => {
            LockError::CounterHeld { own: Box::new(counter.clone()), held: Box::new(counter.clone()), holder }
        }
    }
}

/// Reads the mark of a lock that no daemon holds. A mark that other users could have written does not count.
fn free_mark(path: PathBuf, writers: Writers) -> Result<Option<(PathBuf, Mark)>, LockError> {
    let damaged = |error| LockError::MarkDamaged { path: path.clone(), error };
    let file = match open_file(&path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(damaged)?,
    };
    if !writers.alone_wrote(&file.metadata().map_err(damaged)?) {
        return Ok(None);
    }
    Ok(read_mark(&file).map_err(damaged)?.map(|mark| (path, mark)))
}

/// Makes the directory if it is missing. Returns the users who may write its files.
fn make_directory(directory: &Path) -> Result<Writers, LockError> {
    let path = directory.to_owned();
    let refused = |error| LockError::NotLocked { path: path.clone(), error };
    match writers_of(directory) {
        Err(Untrusted::NotSeen(error)) if error.kind() == io::ErrorKind::NotFound => {
            directory.parent().map_or(Ok(()), fs::create_dir_all).map_err(refused)?;
            match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refused(error)),
                // Made by this process, or by another at the same time.
                _ => writers_of(directory),
            }
        }
        found => found,
    }
    .map_err(|untrusted| match untrusted {
        Untrusted::NotSeen(error) => refused(error),
        Untrusted::NoDirectory(error) => LockError::NoDirectory { path: path.clone(), error },
        Untrusted::Foreign(error) => LockError::Obstructed { path: path.clone(), error },
        Untrusted::Open(mode) => LockError::OpenToAll { path: path.clone(), mode },
    })
}

/// Returns the users who may write the files of a lock directory.
pub(super) fn writers_of(directory: &Path) -> Result<Writers, Untrusted> {
    Writers::of(directory, |_| false)
}

fn mark_of(locked: &LockedFile) -> Result<Option<Mark>, LockError> {
    read_mark(&locked.file).map_err(|error| LockError::MarkDamaged { path: locked.path.clone(), error })
}

/// Returns the mark in a lock's file. `None` if the file is new, or if a program without marks wrote it.
pub(super) fn read_mark(file: &File) -> io::Result<Option<Mark>> {
    let mut bytes = [0; MARK_BYTES_MAX];
    match file.read_at(&mut bytes, HOLDER_BYTES)? {
        0 => Ok(None),
        count => match std::str::from_utf8(&bytes[..count]).ok().and_then(Mark::parse) {
            None => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "its second line is no mark of snowbank's"))
            }
            mark => Ok(mark),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::ceiling::HostIdentity;
    use snowbank_client::layout::{Layout, WorkerSet};

    fn numbering() -> Numbering {
        Numbering::new(Layout::resolve("twitter").unwrap(), WorkerSet::single(1)).unwrap()
    }

    fn only_lock(directory: &Path) -> PathBuf {
        fs::read_dir(directory).unwrap().next().unwrap().unwrap().path()
    }

    #[test]
    fn a_removed_or_replaced_lock_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let locks = lock_workers(directory.path(), &numbering()).unwrap();
        assert_eq!(locks.still_ours(), Ok(()));
        let path = only_lock(directory.path());
        fs::remove_file(&path).unwrap();
        let lost = locks.still_ours().unwrap_err();
        assert!(lost.to_string().contains("was removed"), "{lost}");
        let _other = lock_workers(directory.path(), &numbering()).unwrap();
        let lost = locks.still_ours().unwrap_err();
        assert!(lost.to_string().contains("was replaced"), "{lost}");
    }

    /// A lock file that every user can write is removed under its lock. So a thread may lock a removed file whose name
    /// another thread's new file already has.
    #[test]
    fn an_open_lock_file_is_made_again_and_held_once() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            drop(lock_workers(directory.path(), &numbering()).unwrap());
            let open = fs::Permissions::from_mode(0o666);
            fs::set_permissions(only_lock(directory.path()), open).unwrap();
            let all_begin = std::sync::Barrier::new(4);
            let locked = std::thread::scope(|threads| {
                let lock = || {
                    all_begin.wait();
                    lock_workers(directory.path(), &numbering()).ok()
                };
                let threads: Vec<_> = (0..4).map(|_| threads.spawn(lock)).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            assert!(locked.len() <= 1, "{locked:?}");
            assert!(locked.iter().all(|locks| locks.still_ours().is_ok()), "{locked:?}");
        }
    }

    /// In time a machine has a lock for each number that a fleet lent it.
    #[test]
    fn locks_of_other_worker_ids_of_its_space_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let [beside, other_space] = ["twitter", "sonyflake"].map(|layout| {
            let other = Numbering::new(Layout::resolve(layout).unwrap(), WorkerSet::single(5)).unwrap();
            lock_workers(directory.path(), &other).unwrap()
        });
        let make_unreadable = |locks: &WorkerLocks| fs::write(locks.furthest(), "held\n").unwrap();
        make_unreadable(&beside);
        drop(lock_workers(directory.path(), &numbering()).unwrap());
        make_unreadable(&other_space);
        let refused = lock_workers(directory.path(), &numbering()).unwrap_err();
        assert!(matches!(refused, LockError::UnknownHeld { .. }), "{refused}");
    }

    fn marked(id_bound: u64, owner: &Owner) -> Mark {
        Mark::granted(id_bound, &owner.state)
    }

    #[test]
    fn a_mark_outlives_its_holders_and_comes_down_when_told() {
        let directory = tempfile::tempdir().unwrap();
        let owner = Owner::new();
        let lock = || lock_workers(directory.path(), &numbering()).unwrap();
        let mut locks = lock();
        assert_eq!(locks.marks().unwrap(), []);
        locks.mark_granted(7).unwrap();
        assert_eq!(locks.marks().unwrap(), [], "a daemon without a state leaves none");
        for id_bound in [7, u64::MAX, 3] {
            locks.mark_for(&owner);
            locks.mark_granted(id_bound).unwrap();
            drop(locks);
            locks = lock();
            assert_eq!(locks.marks().unwrap(), [marked(id_bound, &owner)]);
        }
        let text = fs::read_to_string(only_lock(directory.path())).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
    }

    #[test]
    fn records_that_share_worker_ids_are_locked_and_marked_by_the_furthest() {
        let directory = tempfile::tempdir().unwrap();
        let owner = Owner::new();
        let record = |name: &str, workers: &str, tick: u64| {
            let layout = Layout::resolve("twitter").unwrap();
            let numbering = Numbering::new(layout, workers.parse().unwrap()).unwrap();
            let ceiling = numbering.first_of(snowbank_client::layout::Tick(tick));
            Record::new(name, &numbering, ceiling, &owner, &HostIdentity::default())
        };
        let records = [record("old", "0-2", 500), record("new", "2-3", 900), record("older", "1,2", 100)];
        let locks = lock_records(directory.path(), &records).unwrap();
        let counts: Vec<usize> = locks.iter().map(|locks| locks.files.len()).collect();
        assert_eq!(counts, [2, 2, 0]);
        for (record, locks) in records.iter().zip(&locks) {
            locks.mark(&marked(record.id_bound, &owner)).unwrap();
        }
        drop(locks);
        let marks = lock_workers(directory.path(), &records[2].numbering).unwrap().marks().unwrap();
        assert_eq!(marks, [marked(records[0].id_bound, &owner), marked(records[1].id_bound, &owner)]);
    }

    #[test]
    fn a_holders_line_has_room_for_the_longest_id_space() {
        let fields: String = (0..30).map(|at| format!(",r{at}:1:random,c{at}:1:constant(1)")).collect();
        let layout = format!("time:1,sequence:1{fields};tick=86400000ms;epoch=-9000000000000");
        let space = Layout::resolve(&layout).unwrap().space();
        let longest = format!("process {}, worker ID {}, {space}\n", u32::MAX, u64::MAX);
        assert!(longest.len() > 512 && longest.len() <= HOLDER_BYTES as usize, "{}", longest.len());
    }

    #[test]
    fn a_held_lock_names_its_holder() {
        let directory = tempfile::tempdir().unwrap();
        let _locks = lock_workers(directory.path(), &numbering()).unwrap();
        let refused = lock_workers(directory.path(), &numbering()).unwrap_err();
        assert!(refused.to_string().contains(&format!("(process {})", std::process::id())), "{refused}");
    }
}
