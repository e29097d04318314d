//! The state directory, locked by one process.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::geteuid;

use super::copies::{self, CopyError, Document};
use super::file::{self, FILE_NAME};
use super::record::Record;
use crate::form::Read;
use crate::locked_file::{FileLockError, LockedFile, PAUSE};
use crate::writers::{Untrusted, Writers, check_above, closing, open_file};
use crate::{Cause, StateError};
use snowbank_core::grant::TakenOver;

const DIRECTORY_MODE: u32 = 0o700;
/// The advice at the end of messages about a directory that cannot be used. Another directory would
/// lack the ceilings of this one, so IDs could repeat.
const MEND: &str = "make it writable, make room if the disk is full; only if no daemon has used it yet, name another one \
     (--state-dir DIR)";
/// The file whose lock protects the directory. A lock on the state file would not be enough,
/// because a new state file may replace the locked one.
const LOCK_NAME: &str = "lock";

/// A state directory that this process alone uses until this value is dropped.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    lock: LockedFile,
    /// The thread that syncs the names of the directory and of its files. `None` after its result
    /// was taken.
    names: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl StateDir {
    /// Makes the directory if it is missing, and locks it. Starts a thread that makes the names of
    /// the directory and its files durable; [`await_names`](StateDir::await_names) waits for it.
    ///
    /// # Errors
    /// Another process holds the directory, another user owns it, or every user can write it. Or it
    /// is a link or a file, or the system returns an error.
    pub fn lock(path: &Path) -> Result<StateDir, StateError> {
        let shown = path.display();
        make(path).map_err(|error| not_made(path, &error))?;
        let writers = writers_of(path)?;
        let locked = LockedFile::lock(&path.join(LOCK_NAME), writers, PAUSE)
            .and_then(|locked| locked.describe("state directory").map(|()| locked).map_err(Into::into));
        let locked = locked.map_err(|error| match error {
            FileLockError::Held { holder } => {
                let advice =
                    "stop that daemon; a further daemon needs a directory (--state-dir DIR) and worker IDs of its own";
                let reason = format!("the state directory {shown} is in use{holder}; {advice}");
                StateError::new(Cause::InUse, reason)
            }
            // The directory belongs to the daemon, so an obstacle is reported like an error of the
            // system.
            FileLockError::Obstructed(error) | FileLockError::Refused(error) => {
                StateError::from_system(&error, format_args!("cannot lock the state directory {shown}"), MEND)
            }
        })?;
        // The syncs begin only when this process holds the lock. Until then, the last holder may
        // rename a file, and may be killed before it syncs the new name.
        let synced = path.to_owned();
        let names = thread::Builder::new()
            .name(String::from("names"))
            .spawn(move || sync_name(&synced).and_then(|()| file::sync_directory(&synced)))
            .map_err(|error| not_made(path, &error))?;
        Ok(StateDir { path: path.to_owned(), lock: locked, names: Mutex::new(Some(names)) })
    }

    /// Waits until the names of the directory and of its files are durable. Until then, nothing
    /// stored in the directory counts: a power failure may remove the state file, or bring an older
    /// one back. The syncs run at the same time as the write of the first copies.
    ///
    /// # Errors
    /// The names may not be durable.
    pub fn await_names(&self) -> Result<(), StateError> {
        let Some(names) = self.names.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        let synced = names.join().unwrap_or_else(|_| Err(io::Error::other("a thread failed")));
        synced.map_err(|error| not_made(&self.path, &error))
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the stored records, or no records if there is no state file yet.
    ///
    /// # Errors
    /// As [`read_to_write`].
    pub fn read(&self) -> Result<Vec<Record>, StateError> {
        read_to_write(&self.path)
    }

    /// Checks that this process still holds the lock.
    ///
    /// # Errors
    /// Another process could hold the lock.
    pub fn still_ours(&self) -> Result<(), TakenOver> {
        self.lock.still_ours()
    }
}

/// Returns the records of a directory for a program that only shows them, or no records if there is
/// no state file. The directory may be locked or not.
///
/// # Errors
/// The file cannot be read, is damaged, or is only for newer programs.
pub fn read(directory: &Path) -> Result<Vec<Record>, StateError> {
    Ok(read_document(directory)?.map_or_else(Vec::new, |document| document.to_read().records))
}

/// Returns the records of a directory, as a start finds them.
///
/// # Errors
/// As [`read`], and if the file has a field that this program would drop.
pub fn read_to_write(directory: &Path) -> Result<Vec<Record>, StateError> {
    let Some(document) = read_document(directory)? else { return Ok(Vec::new()) };
    let document = document.to_write().map_err(|error| unusable(directory, &CopyError::Newer(error)))?;
    Ok(document.records)
}

/// Reads the state file of a directory, if there is one.
///
/// A daemon may be writing the file. At every moment, one of the two copies is whole. But a read
/// takes longer than a moment, so it may find neither copy whole. Then this function reads the file
/// again.
fn read_document(directory: &Path) -> Result<Option<Read<Document>>, StateError> {
    const ATTEMPTS: usize = 10;
    /// Several times longer than it takes to read a file.
    const PAUSE: Duration = Duration::from_millis(1);

    let path = directory.join(FILE_NAME);
    let mut attempt = 1;
    loop {
        let bytes = match file::read(directory) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(error) => {
                let cannot = format_args!("cannot read the state file {}", path.display());
                return Err(StateError::from_system(
                    &error,
                    cannot,
                    "allowed: a regular file that this user can read",
                ));
            }
        };
        match copies::read(&bytes) {
            Ok(stored) => return Ok(Some(stored.document)),
            Err(CopyError::Corrupt(_)) if attempt < ATTEMPTS => thread::sleep(PAUSE),
            Err(error) => return Err(unusable(directory, &error)),
        }
        attempt += 1;
    }
}

/// Returns the error for a state file that cannot be used.
fn unusable(directory: &Path, error: &CopyError) -> StateError {
    let found = match error {
        CopyError::Corrupt(damage) => format!(
            "is corrupt: {damage}; do not put an older file in its place; once the clock is right and past \
             every ID handed out, move the file away: a start without it begins above the clock, and `snowbank ticket set` \
             begins ticket counters; it would also use worker IDs that `snowbank state export` moved away from here, so \
             configure none of those"
        ),
        CopyError::Newer(_) | CopyError::Foreign(_) => format!("cannot be used: {error}"),
    };
    let reason = format!("the state file {} {found}", directory.join(FILE_NAME).display());
    StateError::new(Cause::Damaged, reason)
}

/// Makes the directory, and the missing directories above it with durable names. Also makes the
/// name of the lowest existing directory durable, because an interrupted start may have made that
/// directory without a sync.
fn make(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = parent(path) {
        make(parent)?;
        sync_name(parent)?;
    }
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        // Another daemon made the directory at the same time.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(no_directory(path)),
        made => made,
    }
}

fn no_directory(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, format!("{} is not a directory", path.display()))
}

/// Checks that [`StateDir::lock`] could make or use a directory. Makes and locks nothing.
///
/// # Errors
/// As [`StateDir::lock`], but for another process that holds the directory.
pub fn check_usable(path: &Path) -> Result<(), StateError> {
    // The lock makes the directory before it asks whose it is.
    if path.exists() && !path.is_dir() {
        return Err(not_made(path, &no_directory(path)));
    }
    crate::writers::check_usable(path, geteuid().is_root()).map_err(|untrusted| refused(path, untrusted))
}

/// Returns the users who may write the files of a state directory. If this process runs as root,
/// the directory may belong to another user, because root may export and import the state of that
/// user.
fn writers_of(path: &Path) -> Result<Writers, StateError> {
    let writers = Writers::of(path, geteuid().is_root());
    let writers = writers.and_then(|writers| check_above(path).map(|()| writers));
    writers.map_err(|untrusted| refused(path, untrusted))
}

/// Returns the error for a directory that other users could replace, or that cannot be used.
fn refused(path: &Path, untrusted: Untrusted) -> StateError {
    let shown = path.display();
    let reason = match untrusted {
        Untrusted::NotSeen(error) => return not_made(path, &error),
        Untrusted::Foreign(found) | Untrusted::NoDirectory(found) => format!(
            "cannot use the state directory {shown}: {found}; another user could put another directory in its place, and \
             IDs would repeat: name the directory that has the state and belongs to this user (--state-dir DIR)"
        ),
        Untrusted::Open(open, mode) => format!(
            "every user can write {} (mode {mode:o}), and so replace the state in {shown} and make IDs repeat; only its \
             owner and its group may write there: {}move the state elsewhere",
            open.display(),
            closing(mode)
        ),
    };
    StateError::new(Cause::Setting, reason)
}

/// Returns the error for a directory that cannot be made, or whose name cannot be made durable.
fn not_made(path: &Path, error: &io::Error) -> StateError {
    let shown = path.display();
    if error.kind() == io::ErrorKind::NotADirectory {
        let reason = format!(
            "cannot use the state directory {shown}: {error}; allowed: a directory, or a path where one can be made"
        );
        return StateError::new(Cause::Setting, reason);
    }
    let cannot = format_args!("cannot create the state directory or make its name durable: {shown}");
    StateError::from_system(error, cannot, MEND)
}

/// Returns the parent directory, which contains the name of this directory. Returns `None` for the
/// root.
fn parent(path: &Path) -> Option<&Path> {
    path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// Makes the name of an existing directory durable.
fn sync_name(path: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem};
    match parent(path).map_or(Ok(()), file::sync_directory) {
        // This user may not open the parent, or its file system cannot sync directories: sync the
        // whole file system of the directory itself. This file system has the directory's name,
        // unless the directory is a mount point.
        Err(error) if matches!(error.kind(), PermissionDenied | InvalidInput | ReadOnlyFilesystem) => {
            Ok(rustix::fs::syncfs(File::open(path)?)?)
        }
        synced => synced,
    }
}

/// Returns the process that holds the directory's lock, as the module `holder` names it. Returns
/// `None` if no process is known to hold the lock.
pub fn holder(directory: &Path) -> Option<String> {
    LockedFile::holder_of(&open_file(&directory.join(LOCK_NAME), OpenOptions::new().read(true)).ok()?)
}
