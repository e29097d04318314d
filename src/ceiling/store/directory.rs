//! The state directory: private, and locked by one process.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::copies::{self, CopyError};
use super::file::{self, FILE_NAME};
use super::record::Record;
use crate::ceiling::TakenOver;
use crate::ceiling::locked_file::{LockError, LockedFile};

const DIRECTORY_MODE: u32 = 0o700;
/// The state file of programs from before `ceilings`. None of them was released.
const FILE_NAME_BEFORE: &str = "ceilings.redb";
/// The file whose lock is the directory's. The state file cannot serve, because a new one may replace it.
const LOCK_NAME: &str = "lock";
const LOCK_MODE: u32 = 0o600;

/// A state directory that this process alone uses until this is dropped.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    lock: StateLock,
}

/// The lock of a state directory, held until the last of these is dropped.
#[derive(Clone, Debug)]
pub struct StateLock(Arc<LockedFile>);

impl StateLock {
    /// Checks that it is still this process's. Reads only the file that the lock's name leads to.
    ///
    /// # Errors
    /// When another could have it.
    pub fn still_ours(&self) -> Result<(), TakenOver> {
        self.0.still_ours()
    }
}

impl StateDir {
    /// Makes the directory if it is missing, and locks it.
    ///
    /// # Errors
    /// In one line: another process has it, or the system does not allow it.
    pub fn lock(path: &Path) -> Result<StateDir, String> {
        let shown = path.display();
        make(path).map_err(|error| {
            format!(
                "cannot create the state directory or make its name durable: {shown}: {error}; make it writable, choose \
                 another (--state-dir DIR), or do without (--state-dir none)"
            )
        })?;
        let lock = LockedFile::lock(&path.join(LOCK_NAME), LOCK_MODE, "state directory").map_err(|error| match error {
            LockError::Held { holder } => format!(
                "the state directory {shown} is in use{holder}; give this daemon another (--state-dir DIR), or stop \
                 that one"
            ),
            LockError::Unusable(error) => {
                let is_full = error.kind() == io::ErrorKind::StorageFull;
                let mend = if is_full { "make room" } else { "make it writable" };
                format!(
                    "cannot lock the state directory {shown}: {error}; {mend}, choose another (--state-dir DIR), or do \
                     without (--state-dir none)"
                )
            }
        })?;
        Ok(StateDir { path: path.to_owned(), lock: StateLock(Arc::new(lock)) })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its records; none if there is no state file yet.
    ///
    /// # Errors
    /// In one line: the file cannot be read or trusted, and what to do.
    pub fn read(&self) -> Result<Vec<Record>, String> {
        read(&self.path)
    }

    /// Returns its lock, for a thread that checks it while another writes here.
    pub fn state_lock(&self) -> &StateLock {
        &self.lock
    }

    /// Checks that the lock is still this process's.
    ///
    /// # Errors
    /// When another could have it.
    pub fn still_ours(&self) -> Result<(), TakenOver> {
        self.lock.still_ours()
    }
}

/// Returns the records of a directory, locked or not; none if there is no state file.
///
/// A daemon may be writing the file. One of its copies is whole at every moment, but perhaps none while both are read.
/// Therefore a file without a whole copy is read again.
///
/// # Errors
/// In one line: the file cannot be read or trusted, and what to do.
pub fn read(directory: &Path) -> Result<Vec<Record>, String> {
    const ATTEMPTS: usize = 10;
    /// Several times longer than it takes to read a file.
    const PAUSE: Duration = Duration::from_millis(1);

    let shown = directory.join(FILE_NAME);
    let shown = shown.display();
    for attempt in 1.. {
        let bytes = file::read(directory)
            .map_err(|error| format!("cannot read the state file {shown}: {error}; make it readable"))?;
        let Some(bytes) = bytes else { break };
        match copies::read(&bytes) {
            Ok(stored) => return Ok(stored.records),
            Err(CopyError::Corrupt(_)) if attempt < ATTEMPTS => thread::sleep(PAUSE),
            Err(CopyError::Corrupt(reason)) => {
                return Err(format!(
                    "the state file {shown} is corrupt: {reason}; put no older one in its place; once the clock is right \
                     and every ID handed out lies in the past, move it away: a start without it begins above now"
                ));
            }
            Err(newer) => return Err(format!("the state file {shown} cannot be used: {newer}")),
        }
    }
    let before = directory.join(FILE_NAME_BEFORE);
    match before.exists() {
        true => Err(format!(
            "{} was written by an older program, and this one does not read it: run `snowbank state export` of the \
             program that wrote it, move the file away, and then run `snowbank state import` of this one",
            before.display()
        )),
        false => Ok(Vec::new()),
    }
}

/// Makes the directory and those above it that are missing, and makes their names durable. It also makes the name of the lowest
/// existing one durable: an interrupted start may have made it without a sync.
fn make(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        // The root has no name.
        None => return Ok(()),
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    };
    if path.is_dir() {
        return sync_name(path, parent);
    }
    make(parent)?;
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Ok(()) => file::sync_directory(parent),
        // Another daemon made it at the same time, and may not have synced it yet.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
            sync_name(path, parent)
        }
        Err(error) => Err(error),
    }
}

/// Makes the name of an existing directory durable.
fn sync_name(path: &Path, parent: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem};
    match file::sync_directory(parent) {
        // This user may not open the one above, or its file system syncs no directories. Then the file system of the directory
        // itself is synced, and with it the name, unless it is a mount point.
        Err(error) if matches!(error.kind(), PermissionDenied | InvalidInput | ReadOnlyFilesystem) => {
            Ok(rustix::fs::syncfs(File::open(path)?)?)
        }
        synced => synced,
    }
}

/// Returns the process that has the directory, if it is known; `None` if none has.
pub fn holder(directory: &Path) -> Option<String> {
    LockedFile::holder_of(&File::open(directory.join(LOCK_NAME)).ok()?)
}
