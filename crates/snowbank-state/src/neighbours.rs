//! Locks of other daemons on this machine that protect the same IDs under another name.
//!
//! A lock is named after an ID space. Two layouts with different field widths or slightly different
//! epochs lock different files, and may still make the same IDs. Each lock file names the worker ID
//! and the ID space that it protects. A daemon first locks its own files. Then it reads the other
//! lock files, except those whose names show that they protect other IDs. If another daemon holds a
//! lock that protects the same IDs, this daemon does not start. If such a lock is free, its mark
//! binds this daemon. If two daemons start at the same time, each writes its own files before it
//! reads the other daemon's files. So at least one of them notices the other.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::errors::{Cause, StateError};
use super::holder::HOLDER_BYTES;
use super::holder::{holder, line};
use super::writers::{is_obstructed, open_file};
use snowbank_id::layout::Space;
use snowbank_id::numbering::TicketCounter;

/// The IDs that a lock protects, according to the line of its holder.
pub(super) enum HeldIds {
    /// The IDs of a worker ID: its number, and its ID space.
    Worker(u64, Space),
    /// The numbers of a ticket counter.
    Counter(TicketCounter),
}

#[derive(Default)]
pub(super) struct Locks {
    /// The held locks: the IDs that each protects, and its file.
    pub(super) held: Vec<(HeldIds, File)>,
    /// The free locks of worker IDs: the number, the ID space, and the path of each lock.
    pub(super) free: Vec<(u64, Space, PathBuf)>,
}

/// Reads these locks.
///
/// # Errors
/// Names the first lock that cannot be read, or that is held with a line that this release does not
/// know.
pub(super) fn neighbours<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> Result<Locks, StateError> {
    let mut locks = Locks::default();
    for path in paths {
        let read = read_lock(path).map_err(|error| refused(path, &error))?;
        let Some((line, file, is_held)) = read else { continue };
        let ids = read_line(&line);
        if !is_held {
            match ids {
                Some(HeldIds::Worker(number, space)) => locks.free.push((number, space, path.clone())),
                Some(HeldIds::Counter(_)) => {}
                None if file.metadata().is_ok_and(|found| found.len() <= HOLDER_BYTES) => {}
                None => {
                    let reason = format!(
                        "{} has a mark, and describes its IDs in a form that this release does not know; run the release that \
                         wrote it, or remove the file once the clock is past every ID handed out",
                        path.display()
                    );
                    return Err(StateError::new(Cause::Damaged, reason));
                }
            }
            continue;
        }
        match ids {
            Some(ids) => locks.held.push((ids, file)),
            // The holder is writing its line at this moment. After that the holder reads our locks,
            // so it will notice a collision.
            None if !line.contains('\n') => {}
            None => {
                let reason = format!(
                    "{} is held by another daemon of this machine{}, and describes that daemon's IDs in a form that this \
                     release does not know; stop that daemon, or run the same release",
                    path.display(),
                    holder(&file)
                );
                return Err(StateError::new(Cause::WorkerIdHeld, reason));
            }
        }
    }
    Ok(locks)
}

pub(super) fn refused(path: &Path, error: &io::Error) -> StateError {
    if is_obstructed(path, error) {
        StateError::lock_obstructed(path, error)
    } else {
        StateError::lock_refused(path, error)
    }
}

/// Returns the holder's line in a lock file, the open file, and true if a process holds the lock.
/// Returns `None` if the path does not lead to a file.
fn read_lock(path: &Path) -> io::Result<Option<(String, File, bool)>> {
    // No daemon locks a file through a link, and no daemon locks a pipe.
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Ok(None);
    }
    let file = match open_file(path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // If the lock was free, dropping the file releases it again.
    let is_held = match file.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => return Err(error),
    };
    Ok(Some((line(&file)?, file, is_held)))
}

/// Returns the IDs that a holder's line names.
fn read_line(line: &str) -> Option<HeldIds> {
    let (_, held) = line.strip_prefix("process ")?.split_once(", ")?;
    let held = held.trim_end();
    let Some(worker) = held.strip_prefix("worker ID ") else {
        return held.parse().ok().map(HeldIds::Counter);
    };
    let (number, space) = worker.split_once(", ")?;
    Some(HeldIds::Worker(number.parse().ok()?, space.parse().ok()?))
}
