//! Storage: what survives a process, and the writes in flight.

use std::ops::Range;

use snowbank_core::keeper::{Outcome, Write};
use snowbank_id::layout::Position;
use snowbank_id::numbering::Numbering;
use snowbank_state::store::Record;
use snowbank_state::{HostIdentity, Owner};

use super::disk::{Failure, StateFile};
use super::{MS, SECOND};

/// A state directory, and the file of the second writer if there is one. A backup of these files
/// has this type, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// One file for each writer.
    pub(crate) files: Vec<StateFile>,
    /// The last process's wall clock minus its boot clock, if that process ran in this boot of the
    /// machine.
    pub(crate) wall_minus_boot_us: Option<i64>,
    /// The state's identity: the number of states that were lost before it.
    pub(crate) identity: u128,
}

impl State {
    /// Returns the ceiling below which IDs may be used: every writer has stored it.
    pub(crate) fn granted(&self) -> Option<Position> {
        self.files.iter().map(StateFile::granted).min().flatten()
    }

    pub(crate) fn back_up(&self) -> Self {
        State { files: self.files.iter().map(StateFile::back_up).collect(), ..*self }
    }
}

/// Storage: what survives the process, how often writes fail, and the writes in flight.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) state: State,
    pub(crate) numbering: Numbering,
    /// One in this many writes fails. With 0, no write fails.
    pub(crate) fails_one_in: u32,
    /// One in this many writes takes long. With 0, no write takes long.
    pub(crate) is_slow_one_in: u32,
    /// The time that a write takes if it is not slow.
    pub(crate) usual_us: Range<i64>,
    pub(crate) in_flight: Vec<InFlight>,
}

#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) write: Write,
    /// The time when the write ends. A write that hangs ends an hour after its start.
    pub(crate) ends_us: i64,
    /// The time when the writer reports this write as failed. The write continues, and is reported
    /// again at its end.
    pub(crate) abandoned_us: Option<i64>,
    /// True once the writer has reported this write as failed.
    pub(crate) is_abandoned: bool,
    pub(crate) failure: Option<Failure>,
}

impl InFlight {
    pub(crate) fn outcome(&self, fails: bool) -> Outcome {
        let Write { writer, number, .. } = self.write;
        Outcome { writer, number, failure: fails.then(|| String::from("the disk failed")) }
    }
}

impl Storage {
    /// Draws whether a write fails, and how.
    pub(crate) fn failure(&self, rng: &mut fastrand::Rng) -> Option<Failure> {
        (self.fails_one_in > 0 && rng.u32(..self.fails_one_in) == 0).then(|| Failure::random(rng))
    }

    pub(crate) fn record(&self, ceiling: Position) -> Record {
        Record::new("simulated", &self.numbering, ceiling, &owner(&self.state), &HostIdentity::default())
    }

    /// Raises a writer's ceiling. Returns whether that succeeded.
    pub(crate) fn raise(
        &mut self,
        writer: usize,
        ceiling: Position,
        wall_minus_boot_us: i64,
        failure: Option<Failure>,
    ) -> bool {
        if failure.is_none_or(Failure::lasts) {
            self.state.wall_minus_boot_us = Some(wall_minus_boot_us);
        }
        let record = self.record(self.state.files[writer].raised(ceiling));
        self.state.files[writer].write(&record, failure)
    }

    /// Lowers a writer's ceiling. Returns whether that succeeded.
    pub(crate) fn trim(&mut self, writer: usize, cursor: Position, failure: Option<Failure>) -> bool {
        let record = self.record(cursor);
        self.state.files[writer].write(&record, failure)
    }

    /// Returns the record that a start uses. It is the one with the lowest ceiling, because at a
    /// real start the records of other writers may be missing. Returns an error if a file cannot be
    /// read although its last write succeeded.
    pub(crate) fn read(&mut self) -> Result<Option<Record>, String> {
        let mut lowest: Option<Record> = None;
        for writer in 0..self.state.files.len() {
            let found = match (self.state.files[writer].read(), self.state.files[writer].granted()) {
                (Err(error), Some(granted)) => {
                    let record = self.record(granted);
                    self.state.files[writer].repair(&record).then_some(Some(record)).ok_or(error)?
                }
                (found, _) => found?,
            };
            lowest = lowest.into_iter().chain(found).min_by_key(Record::ceiling);
        }
        Ok(lowest)
    }

    /// Cuts the machine's power. Unsynced writes may be lost, and one copy may be damaged.
    pub(crate) fn lose_power(&mut self, rng: &mut fastrand::Rng) {
        self.state.files.iter_mut().for_each(|file| file.lose_power(rng));
        let damaged = rng.usize(..3);
        self.state.files.get_mut(damaged).into_iter().for_each(|file| file.damage(rng));
    }

    pub(crate) fn begin(&mut self, write: Write, now_us: i64, rng: &mut fastrand::Rng) {
        let failure = self.failure(rng);
        let is_slow = self.is_slow_one_in > 0 && rng.u32(..self.is_slow_one_in) == 0;
        let takes_us = match rng.u8(..8) {
            _ if !is_slow => rng.i64(self.usual_us.clone()),
            0 => 3_600 * SECOND,
            1..4 => rng.i64(0..6 * SECOND),
            _ => rng.i64(0..500 * MS),
        };
        let abandoned_us = (is_slow && rng.bool()).then(|| now_us + rng.i64(0..3 * SECOND));
        let ends_us = now_us + takes_us;
        let is_abandoned = false;
        self.in_flight.push(InFlight { write, ends_us, abandoned_us, is_abandoned, failure });
    }

    /// Returns the outcomes until now.
    pub(crate) fn advance(&mut self, now_us: i64) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for in_flight in &mut self.in_flight {
            if in_flight.abandoned_us.take_if(|abandoned_us| *abandoned_us <= now_us).is_some() {
                in_flight.is_abandoned = true;
                outcomes.push(in_flight.outcome(true));
            }
        }
        let (mut ended, going_on): (Vec<_>, Vec<_>) =
            self.in_flight.drain(..).partition(|in_flight| in_flight.ends_us <= now_us);
        self.in_flight = going_on;
        ended.sort_by_key(|in_flight| in_flight.ends_us);
        for in_flight in ended {
            let succeeded = self.keep(&in_flight, in_flight.failure);
            outcomes.push(in_flight.outcome(!succeeded));
        }
        outcomes
    }

    /// Makes the write. Returns whether it succeeded.
    pub(crate) fn keep(&mut self, in_flight: &InFlight, failure: Option<Failure>) -> bool {
        let Write { writer, ceilings, wall_minus_boot_us, .. } = &in_flight.write;
        let stored = self.state.wall_minus_boot_us.filter(|_| in_flight.is_abandoned);
        // A write that was abandoned may end after later writes. It changes nothing that the later
        // writes stored, neither the ceiling nor this difference.
        let wall_minus_boot_us = stored.unwrap_or(*wall_minus_boot_us);
        ceilings.iter().all(|(_, durable)| self.raise(*writer, durable.ceiling, wall_minus_boot_us, failure))
    }

    /// Ends the process. Each write in flight may have made some of its calls on the disk, all, or
    /// none.
    pub(crate) fn cut_short(&mut self, rng: &mut fastrand::Rng) {
        for in_flight in std::mem::take(&mut self.in_flight) {
            if rng.bool() {
                let cut_off = rng.bool().then(|| Failure::random(rng));
                self.keep(&in_flight, cut_off);
            }
        }
    }
}

/// Returns the owner of a state. Of the owner's fields, only the identity matters.
pub(crate) fn owner(state: &State) -> Owner {
    Owner { instance: String::new(), pid: 0, state: format!("{:032x}", state.identity) }
}
