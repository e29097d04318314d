//! A machine: its disk, and its locks.

use std::collections::BTreeMap;

use snowbank::ceiling::{Fate, Mark};
use snowbank::fleet::rules::{self, Proof};
use snowbank::fleet::{Member, Notes, Tried};
use snowbank_client::layout::Position;

use super::numbering;
use super::server::Link;

/// A machine. Its disk outlasts its daemon; its marks last until a boot.
#[derive(Clone, Default)]
pub(crate) struct Machine {
    pub(crate) disk: Disk,
    /// The marks by worker ID.
    pub(crate) marks: BTreeMap<u64, Mark>,
    /// Its boot, a new one after a restore from a snapshot.
    pub(crate) boot: u64,
    pub(crate) wall_offset_us: i64,
    /// The moment until which it reaches no coordinator.
    pub(crate) cut_off_until_us: i64,
    /// `None` if the coordinator picks its number.
    pub(crate) given: Option<u64>,
    /// The tries of a daemon that waits for a number.
    pub(crate) tried: Option<Tried>,
}

/// A state directory.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) state: String,
    pub(crate) notes: Notes,
    /// The boot in which the notes were written.
    pub(crate) noted_in: u64,
    /// The local ceilings by worker ID, as ID bounds.
    pub(crate) ceilings: BTreeMap<u64, u64>,
}

impl Machine {
    /// Returns the proof that the state may continue with a number, as `Found::proof` does.
    pub(crate) fn proof(&self, worker: u64) -> Proof {
        let marks: Vec<Mark> = self.marks.get(&worker).cloned().into_iter().collect();
        let stored = self.disk.ceilings.get(&worker);
        stored.map_or(Proof::None, |&stored| rules::proof(&marks, 1, &self.disk.state, stored))
    }

    pub(crate) fn mark(&mut self, worker: u64, id_bound: u64) {
        self.marks.insert(worker, Mark::granted(id_bound, &self.disk.state));
    }

    /// Marks a number as returned to the fleet, at a clean stop.
    pub(crate) fn mark_returned(&mut self, worker: u64, id_bound: u64) {
        self.marks.insert(worker, Mark { fate: Fate::Returned, ..Mark::granted(id_bound, &self.disk.state) });
    }

    /// Stores a local ceiling. Like the store, it never lowers one.
    pub(crate) fn store(&mut self, worker: u64, id_bound: u64) {
        let stored = self.disk.ceilings.entry(worker).or_default();
        *stored = id_bound.max(*stored);
    }

    /// Lowers a local ceiling, at a clean stop.
    pub(crate) fn trim(&mut self, worker: u64, id_bound: u64) {
        self.disk.ceilings.insert(worker, id_bound);
    }

    /// Drops the records of numbers that it was assigned earlier, once the coordinator holds their
    /// bounds.
    pub(crate) fn let_go(&mut self, worker: u64, member: &mut Member<Link>) {
        let earlier =
            self.disk.ceilings.iter().filter(|(number, _)| self.given.is_none() && **number != worker);
        let earlier: Vec<_> = earlier.map(|(&number, &bound)| (vec![number], bound)).collect();
        let held = member.holds(0, &earlier).unwrap_or_default();
        for ((numbers, _), _) in earlier.iter().zip(held).filter(|(_, held)| *held) {
            self.disk.ceilings.remove(&numbers[0]);
        }
    }

    /// Returns where a source starts by the marks, as a start does. `None` if the state is an older
    /// copy.
    pub(crate) fn above_marks(&self, worker: u64, start: Position) -> Option<Position> {
        let Some(mark) = self.marks.get(&worker) else { return Some(start) };
        let end = numbering(worker).position_from(mark.id_bound);
        let is_older = end > start && mark.state == self.disk.state && self.given.is_some();
        (!is_older).then_some(start.max(end))
    }

    /// Boots. `boot` is an identity that no machine had.
    pub(crate) fn boot(&mut self, boot: u64) {
        self.boot = boot;
        self.tried = None;
        self.marks.clear();
    }

    /// Reads the notes, as a start does.
    pub(crate) fn read_notes(&mut self) -> Notes {
        if self.disk.noted_in != self.boot {
            self.disk.notes.forget();
        }
        self.disk.noted_in = self.boot;
        self.disk.notes.clone()
    }
}
