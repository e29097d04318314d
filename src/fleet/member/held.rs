//! The numbers that a daemon holds for a source.

use super::{Note, Stop};
use crate::fleet::rules::{Holding, Loss};

/// The numbers of one source.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) source: String,
    /// The source's index in the daemon.
    pub(super) index: usize,
    /// Its ID space.
    pub(super) space: String,
    /// Its worker IDs, in text form.
    pub(super) worker_ids: String,
    /// The place of its ID space in the marker.
    pub(super) place: usize,
    pub(super) numbers: Vec<(u64, Holding)>,
    /// False if this process went on without asking, until it has written the keys.
    pub(super) is_claimed: bool,
    /// The instant since which it has them, for people.
    pub(super) since_unix_s: i64,
    /// The bound at which the source started. Its keys never go below it.
    pub(super) floor: u64,
    /// The bound that may be granted.
    pub(super) covered: u64,
    /// The bound that was acknowledged last. It is higher than `covered` after a release or a loss.
    pub(super) acknowledged: u64,
    /// The write that is being tried, if its outcome is not known.
    pub(super) trying: Option<String>,
    /// The number of connections that were opened so far when the last identity of a write was drawn.
    pub(super) drawn_on: u64,
    /// The generation of the grants when that write was drawn.
    pub(super) generation: u64,
}

impl Held {
    /// Returns the loss of a number in words.
    pub(super) fn lost(&self, at: usize, loss: &Loss) -> Stop {
        let (number, source) = (self.numbers[at].0, &self.source);
        Stop::Lost(format!("worker number {number} of source {source:?}: {loss}"))
    }

    /// Returns the writes that may be the last of one of its keys.
    fn writes(&self) -> Vec<String> {
        let mut writes: Vec<String> = Vec::new();
        for write in self.numbers.iter().flat_map(|(_, holding)| holding.writes()) {
            if !writes.contains(write) {
                writes.push(write.clone());
            }
        }
        writes
    }

    pub(super) fn note(&self) -> Note {
        Note {
            source: self.source.clone(),
            space: self.space.clone(),
            place: self.place,
            worker_ids: self.worker_ids.clone(),
            numbers: self.numbers.iter().map(|(number, _)| *number).collect(),
            writes: self.writes(),
            floor: self.floor,
            covered: self.covered,
        }
    }
}
