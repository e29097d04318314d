//! A worker ID of a layout is held once per machine, whatever the state directories: one locked file for each.
//!
//! The locks are advisory (`flock`), held by the open file, and gone with the process however it ends. The files stay:
//! removing one that another process is about to lock would give the worker ID to both.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::hash::Hasher;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::layout::Numbering;

/// Like `/tmp`: every user of the machine may make files, and nobody may remove another's.
const DIRECTORY_MODE: u32 = 0o1777;
/// Any user's daemon must be able to lock the file that another's has made.
const FILE_MODE: u32 = 0o666;
/// A holder's line is short; what is longer was not written here.
const HOLDER_BYTES_MAX: u64 = 256;

/// The locks of a source's worker IDs, held until this is dropped.
#[derive(Debug)]
pub struct WorkerLocks {
    _files: Vec<File>,
}

/// Locks all worker IDs of a numbering.
///
/// # Errors
/// In one line: a worker ID is held by another process (which one, as far as it said), or the directory does not allow
/// locks. A lock is never skipped.
pub fn lock_workers(directory: &Path, numbering: &Numbering) -> Result<WorkerLocks, String> {
    make_directory(directory).map_err(|error| unusable(directory, &error))?;
    let space = numbering.layout().space();
    let files = numbering.workers().iter().map(|worker| {
        let path = directory.join(format!("{:016x}-{worker}.lock", fingerprint(&space)));
        let mut file = open(&path).map_err(|error| unusable(&path, &error))?;
        match file.try_lock() {
            Ok(()) => {
                describe(&mut file, worker, &space).map_err(|error| unusable(&path, &error))?;
                Ok(file)
            }
            Err(TryLockError::WouldBlock) => Err(format!(
                "worker ID {worker} of layout {} is held by another daemon of this machine{}; \
                 give this one another worker ID, or stop that one",
                numbering.layout(),
                holder(&mut file),
            )),
            Err(TryLockError::Error(error)) => Err(unusable(&path, &error)),
        }
    });
    Ok(WorkerLocks { _files: files.collect::<Result<_, _>>()? })
}

fn unusable(path: &Path, error: &io::Error) -> String {
    format!(
        "cannot lock worker IDs at {}: {error}; without the lock two daemons of this machine could hand out the same \
         IDs: make it writable, or set lock_dir to a directory that all daemons of this machine share",
        path.display()
    )
}

fn make_directory(directory: &Path) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        // The process's umask has taken bits away that other users' daemons need.
        Ok(()) => std::fs::set_permissions(directory, std::fs::Permissions::from_mode(DIRECTORY_MODE)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

fn open(path: &Path) -> io::Result<File> {
    let open = |create| {
        let mut options = OpenOptions::new();
        // A link that another user put into the shared directory is not followed.
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        options.read(true).write(true).create_new(create).mode(FILE_MODE).custom_flags(no_follow).open(path)
    };
    // Not opened with O_CREAT where it exists: Linux denies that for another user's file in a sticky directory.
    match open(false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    match open(true) {
        Ok(file) => {
            file.set_permissions(std::fs::Permissions::from_mode(FILE_MODE))?;
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open(false),
        Err(error) => Err(error),
    }
}

/// Writes who holds the lock, for the message that another daemon gives.
fn describe(file: &mut File, worker: u64, space: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "process {}, worker ID {worker}, {space}", std::process::id())
}

fn holder(file: &mut File) -> String {
    let mut line = String::new();
    // The holder may be writing this very moment; then it is not named.
    let _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut line);
    match line.split_once(',') {
        Some((process, _)) if process.starts_with("process ") => format!(" ({process})"),
        _ => String::new(),
    }
}

/// A name for an ID space that is the same in every process and release: FNV-1a, 64 bits.
fn fingerprint(space: &str) -> u64 {
    let mut hasher = Fnv1a(0xcbf2_9ce4_8422_2325);
    hasher.write(space.as_bytes());
    hasher.finish()
}

struct Fnv1a(u64);

impl Hasher for Fnv1a {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
