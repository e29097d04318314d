//! Locks that other daemons of this machine hold, and that stand for the same IDs under another name.
//!
//! A lock is named after an ID space. Two layouts with other field widths or slightly different epochs therefore lock different
//! files, and may still make the same IDs. Each lock's file names its worker ID and space. A daemon that has locked its own reads
//! all others that are held. If two start at once, each writes its own before it reads, so at least one of them sees the other.

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

use super::LockError;
use super::holder::{holder, line};
use super::writers::{is_obstructed, open_file};
use snowbank_client::layout::{Numbering, Space};

/// Checks that no held lock in this directory, except `own`, stands for IDs that this numbering can make.
///
/// # Errors
/// The first lock that does, or that cannot be read.
pub(super) fn check_neighbours(
    directory: &Path,
    own: &dyn Fn(&Path) -> bool,
    numbering: &Numbering,
) -> Result<(), LockError> {
    let (space, workers) = (numbering.layout().space(), numbering.workers());
    let numbers = numbering.layout().numbers_in_space(workers);
    for (other, held) in by_space(held_locks(directory, own)?) {
        if !space.runs_beside(&other) {
            continue;
        }
        let others: Vec<u64> = held.iter().map(|(number, _)| *number).collect();
        if let Some((mine, theirs)) = space.collision(&numbers, &other, &others) {
            let (number, holder) = held[theirs].clone();
            let worker = workers.iter().nth(mine).unwrap_or_default();
            let (layout, colliding) = (Box::new(numbering.layout().clone()), (number, Box::new(other)));
            return Err(LockError::CollidingHeld { worker, layout, colliding, holder });
        }
    }
    Ok(())
}

/// A held lock: the number, its space, and ` (process 123)`.
type Held = (u64, Space, String);

fn by_space(held: Vec<Held>) -> Vec<(Space, Vec<(u64, String)>)> {
    let mut spaces: Vec<(Space, Vec<(u64, String)>)> = Vec::new();
    for (number, space, holder) in held {
        match spaces.iter_mut().find(|(known, _)| *known == space) {
            Some((_, numbers)) => numbers.push((number, holder)),
            None => spaces.push((space, vec![(number, holder)])),
        }
    }
    spaces
}

fn held_locks(directory: &Path, own: &dyn Fn(&Path) -> bool) -> Result<Vec<Held>, LockError> {
    let refused = |path: &Path| {
        let path = path.to_owned();
        move |error| match is_obstructed(&path, &error) {
            true => LockError::Obstructed { path, error },
            false => LockError::NotLocked { path, error },
        }
    };
    let mut held = Vec::new();
    for entry in fs::read_dir(directory).map_err(refused(directory))? {
        let path = entry.map_err(refused(directory))?.path();
        if !is_lock(&path) || own(&path) {
            continue;
        }
        let Some((line, holder)) = read_if_held(&path).map_err(refused(&path))? else { continue };
        match read_line(&line) {
            Some((number, space)) => held.push((number, space, holder)),
            // Its holder is writing it at this moment, and reads our locks next.
            None if !line.contains('\n') => {}
            None => return Err(LockError::UnknownHeld { path, holder }),
        }
    }
    Ok(held)
}

/// `0123456789abcdef-5.lock`: the directory may hold other programs' locks.
fn is_lock(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".lock"));
    name.and_then(|name| name.split_once('-')).is_some_and(|(space, number)| {
        let is_fingerprint = space.len() == 16 && space.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_fingerprint && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Returns the line of a held lock, and its holder; `None` if it is free.
fn read_if_held(path: &Path) -> io::Result<Option<(String, String)>> {
    // No daemon holds a lock through a link, or on a pipe.
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Ok(None);
    }
    let file = match open_file(path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // Dropping the file releases a lock that was free.
    match file.try_lock_shared() {
        Ok(()) => return Ok(None),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    Ok(Some((line(&file)?, holder(&file))))
}

/// Returns the number and the space that a holder's line names.
fn read_line(line: &str) -> Option<(u64, Space)> {
    let (_, held) = line.strip_prefix("process ")?.split_once(", worker ID ")?;
    let (number, space) = held.split_once(", ")?;
    Some((number.parse().ok()?, space.trim_end().parse().ok()?))
}
