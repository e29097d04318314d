//! Ticket sources: one lock for a counter.

use std::path::PathBuf;

use super::{Kind, fingerprint};
use crate::errors::{Cause, StateError};
use crate::holder::holder;
use crate::neighbours::{HeldIds, Locks};
use snowbank_id::numbering::TicketCounter;

impl Kind for TicketCounter {
    fn lock_names(&self) -> Vec<(u64, String)> {
        vec![(0, format!("{}-{}-{}.lock", prefix_of(self), self.increment(), self.offset()))]
    }

    fn lock_prefix(&self) -> String {
        prefix_of(self)
    }

    /// A counter of another name counts another table.
    fn is_apart_from(&self, is_of_prefix: bool) -> bool {
        !is_of_prefix
    }

    fn is_kin_of(&self, lock_name: &str) -> bool {
        parse(self.name(), lock_name).is_some_and(|other| other.shares_ids_with(self))
    }

    fn check_neighbours(&self, locks: Locks) -> Result<Vec<PathBuf>, StateError> {
        for (ids, file) in locks.held {
            if let HeldIds::Counter(held) = ids
                && held.shares_ids_with(self)
            {
                return Err(counter_held(self, &held, &holder(&file)));
            }
        }
        Ok(Vec::new())
    }

    fn holders_line(&self, _: u64) -> String {
        self.to_string()
    }

    fn held(&self, _: u64, holder: String) -> StateError {
        counter_held(self, self, &holder)
    }

    /// The key depends only on the name, so a changed increment or offset keeps the record.
    fn record_key(&self, _: &str) -> String {
        format!("{} ticket", self.name())
    }
}

fn counter_held(own: &TicketCounter, held: &TicketCounter, holder: &str) -> StateError {
    let reason = format!(
        "the {own} can hand out the same numbers as the {held}, which is held by another daemon of this machine{holder}; stop \
         that one; or, if it numbers another table, give one of the sources another name; if not, give both the same \
         increment and an offset each"
    );
    StateError::new(Cause::WorkerIdHeld, reason)
}

/// Returns the counter of this name whose lock has this file name.
fn parse(name: &str, lock_name: &str) -> Option<TicketCounter> {
    let start = format!("{:016x}", fingerprint(&format!("ticket {name}")));
    let numbers = lock_name.strip_prefix(&start)?.strip_suffix(".lock")?;
    let (increment, offset) = numbers.strip_prefix('-')?.split_once('-')?;
    TicketCounter::new(name, increment.parse().ok()?, offset.parse().ok()?).ok()
}

/// Returns the text that the lock names of all counters of this name start with.
fn prefix_of(counter: &TicketCounter) -> String {
    format!("{:016x}", fingerprint(&format!("ticket {}", counter.name())))
}
