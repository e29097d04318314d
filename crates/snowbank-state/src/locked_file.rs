//! A locked file that names its holder, for worker IDs and for state directories.
//!
//! The locks are advisory (`flock`). The open file holds the lock, so the system releases the lock
//! however the process ends. A holder that ends does not remove its file. A second process may
//! already have opened this file. It would lock the file while a third process makes and locks a
//! new one with the same name. If another program removes a file, the holder of its lock notices
//! that ([`still_ours`](LockedFile::still_ours)).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::holder::{HOLDER_BYTES, holder};
use super::writers::{Writers, is_obstructed, open_file};
use snowbank_core::grant::TakenOver;

/// The number of attempts to lock a file. An attempt fails if somebody removes the file meanwhile.
/// It also fails while another process takes the lock only to check whether a daemon holds it.
const ATTEMPTS: usize = 5;
/// The pause between two attempts to lock a file. A process that only checks whether a lock is held
/// keeps that lock for microseconds.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// Device and inode, which identify a file whatever its name.
pub(super) type FileId = (u64, u64);

pub(super) fn file_id(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// If root has just made this file, gives it to the owner of its directory. After an export or an
/// import by root, the daemon, which runs as another user, can then use the files. If the system
/// refuses, the file still belongs to root.
pub(super) fn give_to_owner_of(directory: &Path, file: &File) {
    if let (Ok(directory), Ok(made)) = (fs::metadata(directory), file.metadata())
        && made.uid() == 0
        && directory.uid() != 0
    {
        let _ = fchown(file, Some(directory.uid()), Some(directory.gid()));
    }
}

/// The reason why a file could not be locked.
#[derive(Debug)]
pub(super) enum FileLockError {
    /// Another process has the lock.
    Held {
        /// As [`holder`] returns it.
        holder: String,
    },
    /// The name leads to another user's file, or to something that is no file, or somebody keeps
    /// removing the file.
    Obstructed(io::Error),
    /// The system returned another error.
    Refused(io::Error),
}

impl From<io::Error> for FileLockError {
    fn from(error: io::Error) -> Self {
        FileLockError::Refused(error)
    }
}

/// A file that is locked until this value is dropped, and that names its holder.
#[derive(Debug)]
pub(super) struct LockedFile {
    /// The open file, which holds the lock.
    pub(super) file: File,
    pub(super) path: PathBuf,
    id: FileId,
}

impl LockedFile {
    /// Locks the file. Makes it if it is missing. If other users could have written the file, locks
    /// it, removes it and makes a new one. `pause` is the time between two attempts.
    pub(super) fn lock(path: &Path, writers: Writers, pause: Duration) -> Result<LockedFile, FileLockError> {
        let mut held = None;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                thread::sleep(pause);
            }
            let file = open(path, writers)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    held = Some(file);
                    continue;
                }
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            let metadata = file.metadata()?;
            let locked = LockedFile { id: file_id(&metadata), file, path: path.to_owned() };
            // If somebody removed the file after it was opened and before it was locked, the lock
            // protects nothing.
            if locked.still_ours().is_err() {
                continue;
            }
            if writers.alone_wrote(&metadata) {
                // A user who may read the file could lock it. Only its owner can change that.
                let _ = writers.close(&locked.file);
                return Ok(locked);
            }
            fs::remove_file(path).map_err(FileLockError::Obstructed)?;
        }
        Err(match held {
            Some(file) => FileLockError::Held { holder: holder(&file) },
            None => FileLockError::Obstructed(io::Error::new(
                io::ErrorKind::InvalidInput,
                "somebody keeps removing it",
            )),
        })
    }

    /// Writes into the file which process holds it and `what` the lock protects, so that the error of
    /// another daemon can name the holder.
    pub(super) fn describe(&self, what: &str) -> io::Result<()> {
        let mut line = format!("process {}, {what}", std::process::id()).into_bytes();
        debug_assert!(line.len() < HOLDER_BYTES as usize, "a holder's line that is cut off names no IDs");
        line.resize(HOLDER_BYTES as usize, b' ');
        line[HOLDER_BYTES as usize - 1] = b'\n';
        self.file.write_all_at(&line, 0)
    }

    /// Checks that the name still leads to the locked file.
    pub(super) fn still_ours(&self) -> Result<(), TakenOver> {
        same_file(&self.path, self.id, "lock")
    }

    /// Returns the [`holder`] of the lock; `None` if no process is known to hold it.
    pub(super) fn holder_of(file: &File) -> Option<String> {
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(holder(file)),
            // If this call got the lock, dropping the file releases it.
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }
}

/// Checks that a path still leads to the same file. If the system cannot tell, the file counts as
/// the same.
pub(super) fn same_file(path: &Path, id: FileId, what: &str) -> Result<(), TakenOver> {
    let happened = match fs::symlink_metadata(path) {
        Ok(metadata) if file_id(&metadata) == id => return Ok(()),
        Ok(_) => "replaced",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "removed",
        Err(_) => return Ok(()),
    };
    Err(TakenOver(format!("the {what} {} was {happened} while this daemon had it", path.display())))
}

fn open(path: &Path, writers: Writers) -> Result<File, FileLockError> {
    // An existing file is not opened with O_CREAT: Linux denies that for another user's file in a
    // sticky directory.
    match open_existing(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if is_obstructed(path, &error) => return Err(FileLockError::Obstructed(error)),
        opened => return Ok(opened?),
    }
    match make(path, writers) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(open_existing(path)?),
        made => Ok(made?),
    }
}

fn open_existing(path: &Path) -> io::Result<File> {
    open_file(path, OpenOptions::new().read(true).write(true))
}

fn make(path: &Path, writers: Writers) -> io::Result<File> {
    let mode = writers.file_mode();
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)?;
    if let (Writers::Owner(_), Some(parent)) = (writers, path.parent()) {
        give_to_owner_of(parent, &file);
    }
    // The umask may have removed bits of the mode, and not every directory passes its group on to
    // new files.
    writers.close(&file)?;
    Ok(file)
}
