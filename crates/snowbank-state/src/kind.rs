//! What differs between the kinds of source in their locks and in the keys of their records. Each
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

    /// Returns true if a lock of this name certainly protects other IDs. A start does not read such
    /// locks: over time there is one for each worker ID that this machine ever had.
    fn is_apart_from(&self, lock_name: &str) -> bool;

    /// Returns true if the mark in a lock of this name binds the source, even if the lock belongs
    /// to another increment or offset.
    fn is_kin_of(&self, lock_name: &str) -> bool;

    /// Checks that no held lock protects IDs that the source can make. Returns the free locks whose
    /// marks count for the source.
    ///
    /// # Errors
    /// The first held lock that protects such IDs.
    fn check_neighbours(&self, locks: Locks) -> Result<Vec<PathBuf>, StateError>;

    /// Returns the part of a holder's line that names the IDs of a worker.
    fn holders_line(&self, worker: u64) -> String;

    /// Returns the error of a worker ID that another process holds.
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
