//! A machine: its disk, and its locks.

use std::collections::BTreeMap;
use std::time::Duration;

use snowbank_fleet::rules::{self, Proof};
use snowbank_fleet::{Member, Notes};
use snowbank_id::layout::{Position, WorkerSet};
use snowbank_state::{Fate, Mark};

use super::server::{Link, SlowDisk};
use super::{Worker, Workers};

/// A machine. Its disk outlasts its daemon; its marks last until a boot.
#[derive(Clone, Default)]
pub(crate) struct Machine {
    pub(crate) disk: Disk,
    pub(crate) marks: BTreeMap<Worker, Mark>,
    /// The identity of its boot, new after a restore from a snapshot.
    pub(crate) boot: u64,
    pub(crate) wall_offset_us: i64,
    /// Until this moment, the machine cannot reach the coordinator.
    pub(crate) cut_off_until_us: i64,
    /// `None` if the coordinator picks the worker IDs of each source.
    pub(crate) given: Option<WorkerSet>,
    /// The settings of the machine's daemon.
    pub(crate) horizon: Duration,
    pub(crate) max_ahead: Duration,
    /// The time that a sync of the machine's disk takes.
    pub(crate) sync_time: Duration,
    /// True if the machine's sources are configured for the turned layouts.
    pub(crate) is_turned: bool,
    /// A daemon that waits for a worker ID, and its disk.
    pub(crate) waiting: Option<(Member<Link>, SlowDisk)>,
}

/// A state directory.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) state: String,
    pub(crate) notes: Notes,
    /// The boot in which the notes were written.
    pub(crate) noted_in: u64,
    /// How often the coordinator had been restored when this state last took or released worker
    /// IDs. A later restore may have lost what other daemons wrote after a release.
    pub(crate) written_in: u64,
    /// The local ceilings by worker ID, as ID bounds.
    pub(crate) ceilings: BTreeMap<Worker, u64>,
}

impl Machine {
    /// Returns the proof that the state may continue with these worker IDs, as `Found::proof` does.
    pub(crate) fn proof(&self, workers: &Workers) -> Proof {
        let marks: Vec<Mark> = workers.each().filter_map(|worker| self.marks.get(&worker).cloned()).collect();
        let mut stored = u64::MAX;
        for worker in workers.each() {
            let Some(&ceiling) = self.disk.ceilings.get(&worker) else { return Proof::None };
            stored = stored.min(ceiling);
        }
        rules::proof(&marks, workers.ids.len(), &self.disk.state, stored)
    }

    pub(crate) fn mark(&mut self, workers: &Workers, id_bound: u64) {
        let mark = Mark::granted(id_bound, &self.disk.state);
        self.marks.extend(workers.each().map(|worker| (worker, mark.clone())));
    }

    /// Marks worker IDs as returned to the fleet, at a clean stop.
    pub(crate) fn mark_returned(&mut self, workers: &Workers, id_bound: u64) {
        let mark = Mark { fate: Fate::Returned, ..Mark::granted(id_bound, &self.disk.state) };
        self.marks.extend(workers.each().map(|worker| (worker, mark.clone())));
    }

    /// Marks worker IDs as returned to the fleet by a start that ends before it serves.
    pub(crate) fn mark_given_back(&mut self, workers: &Workers) {
        for worker in workers.each() {
            let own = self.marks.get_mut(&worker).filter(|mark| mark.state == self.disk.state);
            own.into_iter().for_each(|mark| mark.fate = Fate::Returned);
        }
    }

    /// Stores a local ceiling. Like the shipped store, it never lowers a ceiling.
    pub(crate) fn store(&mut self, workers: &Workers, id_bound: u64) {
        for worker in workers.each() {
            let stored = self.disk.ceilings.entry(worker).or_default();
            *stored = id_bound.max(*stored);
        }
    }

    /// Lowers a local ceiling, at a clean stop.
    pub(crate) fn trim(&mut self, workers: &Workers, id_bound: u64) {
        self.disk.ceilings.extend(workers.each().map(|worker| (worker, id_bound)));
    }

    /// Drops the records of worker IDs that the coordinator assigned to a source earlier, once the
    /// coordinator has the bounds of these worker IDs.
    pub(crate) fn let_go(&mut self, workers: &Workers, member: &mut Member<Link>) {
        if self.given.is_some() {
            return;
        }
        let layout = workers.of.layout();
        let is_earlier = |worker: &Worker| worker.of == workers.of && !workers.ids.contains(worker.id);
        let earlier: Vec<Worker> = self.disk.ceilings.keys().copied().filter(is_earlier).collect();
        for worker in earlier {
            let number = layout.number_in_space(worker.id);
            if member.holds(workers.of.source, &[number], self.disk.ceilings[&worker]) == Ok(true) {
                self.disk.ceilings.remove(&worker);
            }
        }
    }

    /// Returns `start`, or the end of the marks if that is higher, as a start does. Returns `None`
    /// if the state is an older copy.
    pub(crate) fn above_marks(&self, workers: &Workers, start: Position) -> Option<Position> {
        let numbering = workers.numbering();
        let mut above = start;
        for mark in workers.each().filter_map(|worker| self.marks.get(&worker)) {
            let end = numbering.position_from(mark.id_bound);
            if end > start && mark.state == self.disk.state && self.given.is_some() {
                return None;
            }
            above = above.max(end);
        }
        Some(above)
    }

    /// Boots the machine. `boot` is an identity that no boot of any machine had.
    pub(crate) fn boot(&mut self, boot: u64) {
        self.boot = boot;
        self.waiting = None;
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
