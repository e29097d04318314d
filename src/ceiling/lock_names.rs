//! The names of lock files: a hash of an ID space with a worker ID's number, or of a ticket counter's name with its increment
//! and offset.

use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

use super::LockError;
use crate::numbering::{Numbering, TicketCounter};

/// Returns the worker IDs of a numbering, each with the path of its lock. A ticket counter has one lock, for worker 0.
pub(super) fn lock_paths(directory: &Path, numbering: &Numbering) -> Vec<(u64, PathBuf)> {
    match numbering {
        Numbering::Snowflake(numbering) => {
            let layout = numbering.layout();
            let space = fingerprint(&layout.space().to_string());
            let path = |worker| {
                let number = layout.number_in_space(worker);
                (worker, directory.join(format!("{space:016x}-{number}.lock")))
            };
            numbering.workers().iter().map(path).collect()
        }
        Numbering::Ticket(counter) => {
            let (increment, offset) = (counter.increment(), counter.offset());
            vec![(0, directory.join(format!("{}-{increment}-{offset}.lock", prefix_of(counter))))]
        }
    }
}

/// Returns a test for locks that cannot share an ID, by their names: other worker IDs of the same ID space, and for a
/// ticket counter all but counters of its name. They need not be read: over time there is a lock for each worker ID that
/// this machine ever had.
pub(super) fn cannot_collide(numbering: &Numbering) -> impl Fn(&Path) -> bool {
    let (prefix, is_of_prefix) = match numbering {
        Numbering::Snowflake(numbering) => {
            (format!("{:016x}", fingerprint(&numbering.layout().space().to_string())), true)
        }
        Numbering::Ticket(counter) => (prefix_of(counter), false),
    };
    move |path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(&prefix) == is_of_prefix)
    }
}

/// Returns the start of the names of all locks of counters of this name.
fn prefix_of(counter: &TicketCounter) -> String {
    format!("{:016x}", fingerprint(&format!("ticket {}", counter.name())))
}

/// Returns the lock files of all counters of this name that can hand out the same numbers, including its own. Their marks
/// bind this counter, although they were left under another increment or offset.
pub(super) fn kin_paths(directory: &Path, numbering: &Numbering) -> Result<Vec<PathBuf>, LockError> {
    let Numbering::Ticket(counter) = numbering else { return Ok(Vec::new()) };
    let refused = |error| LockError::NotLocked { path: directory.to_owned(), error };
    let mut kin = Vec::new();
    for entry in fs::read_dir(directory).map_err(refused)? {
        let path = entry.map_err(refused)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let numbers = name.strip_prefix(&prefix_of(counter)).and_then(|rest| rest.strip_suffix(".lock"));
        let Some((increment, offset)) = numbers.and_then(|rest| rest.strip_prefix('-')?.split_once('-'))
        else {
            continue;
        };
        let (Ok(increment), Ok(offset)) = (increment.parse(), offset.parse()) else { continue };
        let other = TicketCounter::new(counter.name(), increment, offset);
        if other.is_ok_and(|other| other.shares_ids_with(counter)) {
            kin.push(path);
        }
    }
    Ok(kin)
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
