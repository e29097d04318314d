//! The differences between the kinds of source: their locks and the keys of their records. Each
//! kind implements [`Kind`].

mod snowflake;
mod ticket;

use std::path::PathBuf;

use super::StateError;
use super::neighbours::Locks;
use snowbank_id::numbering::Numbering;

pub(super) use self::snowflake::by_name;

/// The locks and the record keys of a kind of source.
pub(super) trait Kind {
    /// Returns the source's worker IDs, each with the name of its lock file. A ticket counter has
    /// one lock, for worker 0.
    fn lock_names(&self) -> Vec<(u64, String)>;

    /// Returns the text that the names of all locks of the source's ID space, or of its counter,
    /// start with.
    fn lock_prefix(&self) -> String;

    /// Returns true if another lock certainly protects no ID of this source. `is_of_prefix` says
    /// whether its name starts with [`lock_prefix`](Kind::lock_prefix). A start does not read such
    /// locks, because a machine keeps a lock for each worker ID that it ever had.
    fn is_apart_from(&self, is_of_prefix: bool) -> bool;

    /// Returns true if the lock with this name belongs to the source's own counter. Any increment
    /// and offset that can make the same numbers count. The mark in such a lock binds the source.
    fn is_kin_of(&self, lock_name: &str) -> bool;

    /// Checks that no held lock protects IDs that the source can make. Returns the free locks of
    /// other layouts whose marks count for the source.
    ///
    /// # Errors
    /// Names the first held lock that protects IDs that the source can make.
    fn check_neighbours(&self, locks: Locks) -> Result<Vec<PathBuf>, StateError>;

    /// Returns the part of a holder's line that names the IDs of this worker ID.
    fn holders_line(&self, worker: u64) -> String;

    /// Returns the error for a worker ID that another process holds.
    fn held(&self, worker: u64, holder: String) -> StateError;

    /// Returns the key of a source's record.
    fn record_key(&self, source: &str) -> String;
}

pub(super) fn kind_of(numbering: &Numbering) -> &dyn Kind {
    match numbering {
        Numbering::Snowflake(numbering) => numbering,
        Numbering::Ticket(counter) => counter,
    }
}

/// Returns a hash of an ID space or a counter's name, FNV-1a with 64 bits. The hash function is the
/// same in every release, so that daemons of two releases lock the same files.
fn fingerprint(space: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in space.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}
