//! Starts and ends of a process: kills, stops, boots, copies of the state.

use std::sync::Arc;
use std::time::Duration;

use snowbank_core::clock::{Now, Remembered, Wall};
use snowbank_core::grant::{CeilingRule, Grant, Left, TakenOver};
use snowbank_core::keeper::{Keeper, ManagedSource, Outcome, Reach};
use snowbank_core::source::Source;
use snowbank_id::layout::{Position, Tick};
use snowbank_state::store::Record;
use snowbank_state::{Marked, WorkerLocks, compare, instant_of, lock_workers};

use super::daemon::{Daemon, Renewal};
use super::disk::StateFile;
use super::storage::{State, owner};
use super::world::World;
use super::{SHARDS, STEP_RULE, shards};
use crate::support::directory;

impl World {
    /// Starts a process by the shipped rules: at or above the stored ceiling, or above the current
    /// tick if no ceiling is stored, and above the marks of this boot. An older copy of the state
    /// is refused.
    pub(crate) fn start(&mut self) {
        let reading = self.machine.read();
        let is_ticket = self.numbering.ticket().is_some();
        if !is_ticket && self.numbering.tick_at(reading.wall) >= self.numbering.tick_of(self.numbering.end())
        {
            // A layout whose life has ended is refused.
            return;
        }
        let stored = self.read();
        let ceiling = stored.as_ref().map(Record::ceiling);
        let granted = ceiling.map(|ceiling| self.instant(ceiling));
        let remembered = match (self.storage.state.wall_minus_boot_us, granted) {
            (Some(offset_us), _) => Remembered::Offset(offset_us),
            (None, Some(granted)) => Remembered::GrantedUntil(granted),
            (None, None) => Remembered::Nothing,
        };
        let wall = Arc::new(Wall::new(STEP_RULE, reading, remembered));
        let now = wall.believe(reading);
        let above_now = self.numbering.first_of(Tick(self.numbering.tick_at(now.wall).0 + 1));
        let first = if is_ticket { self.set_counter() } else { above_now };
        let start = ceiling.unwrap_or(first);
        let mut locks = lock_workers(self.locks.path(), &self.numbering).expect("no other daemon has them");
        let Some(start) = self.above_marks(stored, start, &locks, now) else { return };
        locks.mark_for(&owner(&self.storage.state));
        let tick = Duration::from_millis(self.numbering.tick_ms());
        let rule = CeilingRule { horizon: self.horizon(), max_ahead: self.rules.max_ahead, tick };
        let grant = Grant::new(Position(0));
        let name = String::from("simulated");
        let source = Arc::new(Source::new(name, self.numbering.clone(), self.rules, grant, start, now));
        let mut managed = ManagedSource::new(Arc::clone(&source), rule, start, now);
        let ceiling = managed.first_ceiling(now);
        if !self.store_first(ceiling, wall.carried_us()) {
            // The daemon does not start. The service manager retries.
            return;
        }
        locks.mark_granted(self.numbering.id_bound(ceiling)).expect("marks can be written");
        managed.grant(ceiling);
        self.newest = None;
        self.daemon = Some(Daemon {
            shards: shards(SHARDS, &[Arc::clone(&source)], self.order, self.seed, now),
            keeper: Keeper::new(vec![managed], &vec![Reach::Local; self.writers], Arc::clone(&wall), reading),
            locks,
            source,
            wall,
            last_ids: [0; SHARDS],
            last_of_all: 0,
            waiting: (0..SHARDS).map(|_| None).collect(),
            paused: None,
            renewal: Renewal {
                generation: 0,
                last: vec![0; self.writers],
                last_before: vec![0; self.writers],
                is_done: vec![true; self.writers],
            },
        });
    }

    /// Makes the first ceiling durable with every writer. Returns whether that succeeded.
    pub(crate) fn store_first(&mut self, ceiling: Position, wall_minus_boot_us: i64) -> bool {
        self.storage.state.files.resize_with(self.writers, StateFile::new);
        (0..self.writers).all(|writer| {
            let failure = self.storage.failure(&mut self.rng);
            self.storage.raise(writer, ceiling, wall_minus_boot_us, failure)
        })
    }

    /// Reads the state as a start does. The stored ceiling must be above all IDs handed out, unless
    /// the state is an older copy or is new.
    pub(crate) fn read(&mut self) -> Option<Record> {
        let seed = self.seed;
        let read = self.storage.read();
        let stored = read.unwrap_or_else(|error| panic!("seed {seed}: the state cannot be read: {error}"))?;
        if let Some((_, &end)) = self.handed_out.last_key_value()
            && self.newest.is_none()
        {
            let ceiling = stored.ceiling().0;
            assert!(ceiling >= end, "seed {seed}: the state is at {ceiling}, {end} was handed out");
        }
        Some(stored)
    }

    /// Ends the process, whatever it was doing.
    pub(crate) fn kill(&mut self) {
        self.daemon = None;
        self.storage.cut_short(&mut self.rng);
    }

    /// Returns `start`, or the end of the marks if that is higher. Returns `None` if the marks show
    /// an older copy. The start is then refused, and the operator does what the message says.
    pub(crate) fn above_marks(
        &mut self,
        stored: Option<Record>,
        start: Position,
        locks: &WorkerLocks,
        now: Now,
    ) -> Option<Position> {
        let records: Vec<Record> = stored.into_iter().collect();
        let marks = locks.marks().expect("marks can be read");
        match compare(&marks, &self.numbering, self.numbering.id_bound(start), &records) {
            Marked::Below => Some(start),
            Marked::ByAnother(end) => Some(self.numbering.position_from(end)),
            found @ (Marked::Released | Marked::Unknown) => {
                panic!("seed {}: {found:?}, but nothing was exported or restored", self.seed)
            }
            Marked::SinceThisCopy(end) => {
                assert!(
                    self.newest.is_some(),
                    "seed {}: the newest state is taken for an older copy",
                    self.seed
                );
                match self.rng.u8(..4) {
                    0 => self.lose(),
                    1 => self.put_newest_back(),
                    _ if instant_of(&self.numbering, end) <= now.wall => {
                        return Some(self.numbering.position_from(end));
                    }
                    _ => {}
                }
                None
            }
        }
    }

    /// Does one of two things: makes a backup, or ends the daemon and replaces the state by a
    /// backup.
    pub(crate) fn back_up_or_restore(&mut self) {
        if self.backups.is_empty() || self.rng.bool() {
            self.backups.push(self.storage.state.back_up());
            return;
        }
        if self.rng.bool() {
            self.stop();
        }
        self.kill();
        let copy = self.backups[self.rng.usize(..self.backups.len())].clone();
        let replaced = self.storage.state.clone();
        self.newest.get_or_insert(replaced);
        self.storage.state = copy;
    }

    pub(crate) fn put_newest_back(&mut self) {
        if let Some(newest) = self.newest.take() {
            self.storage.state = newest;
        }
    }

    /// Loses the state. The next state is new.
    pub(crate) fn lose(&mut self) {
        self.lost += 1;
        self.newest = None;
        self.storage.state = State { identity: self.lost, ..State::default() };
    }

    /// Stops cleanly. The trim may fail. Nothing is handed out afterwards, not even blocks claimed
    /// earlier.
    pub(crate) fn stop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else {
            return;
        };
        let trims = daemon.keeper.seal();
        assert_eq!(daemon.source.cursor(), None, "nothing may be claimed once a trim is tried");
        // A writer usually ends its write before the trim. If a write hangs, the stop does not wait
        // for it, and trims nothing.
        let hangs = !self.storage.in_flight.is_empty() && self.rng.bool();
        self.storage.cut_short(&mut self.rng);
        for Left { id_bound, .. } in trims {
            let cursor = daemon.source.numbering().position_from(id_bound);
            daemon.locks.mark_granted(id_bound).expect("marks can be written");
            for writer in (0..self.writers).filter(|_| !hangs) {
                let failure = self.storage.failure(&mut self.rng);
                if !self.storage.trim(writer, cursor, failure) {
                    break;
                }
            }
        }
        self.expect_silence(&mut daemon);
        for writer in 0..self.writers {
            // The outcome of any write may come after the seal.
            let outcome = Outcome { writer, number: self.rng.u64(1..20), failure: None };
            let now = daemon.wall.believe(self.machine.read());
            daemon.keeper.written(outcome, now, |_, _| panic!("marked after the trim"));
        }
        self.expect_silence(&mut daemon);
    }

    /// Lets the keeper find that another daemon has the worker IDs or the state. Checks that
    /// nothing is handed out or written from then on.
    pub(crate) fn take_over(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.keeper.lose(TakenOver(String::from("another daemon has it")));
            let reading = self.machine.read();
            for _ in 0..2 {
                self.expect_silence(&mut daemon);
                let polled = daemon.keeper.poll(reading);
                assert!(polled.taken_over.is_some());
                assert!(
                    polled.writes.is_empty(),
                    "seed {}: the daemon writes the state of another daemon",
                    self.seed
                );
                for outcome in self.storage.advance(i64::MAX) {
                    let now = daemon.wall.believe(reading);
                    daemon
                        .keeper
                        .written(outcome, now, |_, _| panic!("marked the worker IDs of another daemon"));
                }
            }
        }
    }

    /// Lets the kernel report a restore from a snapshot: the grant is taken away, whatever is in
    /// flight.
    pub(crate) fn restore(&mut self) {
        if self.numbering.ticket().is_some() {
            return self.restore_counter();
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.source.grant().revoke();
            daemon.renewal.record(daemon.source.grant().generation());
        }
    }

    /// Boots the machine again, maybe after a power failure. The new boot knows nothing of the
    /// earlier clocks.
    pub(crate) fn reboot(&mut self) {
        self.kill();
        self.machine.boot_at_us = self.machine.true_us;
        // A boot clears the marks, which reveal an older copy.
        self.put_newest_back();
        self.backups.clear();
        if self.rng.bool() {
            self.storage.lose_power(&mut self.rng);
        }
        self.locks = directory();
        self.storage.state.wall_minus_boot_us = None;
    }

    /// Checks that no shard hands out an ID.
    pub(crate) fn expect_silence(&self, daemon: &mut Daemon) {
        let now = daemon.wall.believe(self.machine.read());
        for shard in &mut daemon.shards {
            let mut runs = Vec::new();
            shard.wake(now);
            let (lane, rng) = shard.lane(0);
            let taken = lane.take(1, || 0, rng, &mut runs);
            assert_eq!(taken, Err(1), "seed {}: {runs:?} handed out after the end", self.seed);
        }
    }
}
