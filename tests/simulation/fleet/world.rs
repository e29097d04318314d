//! The world of the daemons, and its events.

use std::collections::HashSet;
use std::time::Duration;

use snowbank_core::clock::{BootMicros, Reading};
use snowbank_fleet::{FleetLimits, Marker, NUMBERS_MAX, Notes, NumberKey, Paths, Swap};
use snowbank_id::layout::{UnixMicros, WorkerSet};

use super::copies::Saved;
use super::daemon::{Daemon, Starting};
use super::machine::{Disk, Machine};
use super::server::{Keys, Link, Server};
use super::{FLEET, HORIZON, MAX_AHEAD, OTHER_HORIZON, SECOND, SETTINGS, SourceLayout, new_identity};

/// The worker IDs of a source in fleets with many of them.
const MANY_WORKERS: u64 = NUMBERS_MAX as u64 / 2;

/// All machines, the coordinator, and the IDs that were handed out.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) rng: fastrand::Rng,
    pub(crate) link: Link,
    pub(crate) true_us: i64,
    /// The number of sources of a daemon.
    pub(crate) sources_each: usize,
    /// The number of worker IDs of a source.
    pub(crate) workers_each: usize,
    /// The number of worker IDs that daemons use for each of their sources, from 0.
    pub(crate) workers: u64,
    /// True if an operator replaces the ID space.
    changes_space: bool,
    /// True if a daemon may have other settings than the machine's last one.
    pub(crate) changes_settings: bool,
    /// The fleet's limits, by its operator.
    pub(crate) limits: FleetLimits,
    /// True while the fleet has the ID space of the turned layouts.
    pub(crate) is_turned: bool,
    pub(crate) machines: Vec<Machine>,
    pub(crate) machines_max: usize,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) starting: Vec<Starting>,
    /// The number of starts.
    pub(crate) lives: u64,
    pub(crate) saved: Option<Saved>,
    /// A copy of a machine's state directory.
    pub(crate) copied: Option<(usize, Disk)>,
    pub(crate) boots: u64,
    pub(crate) handed_out: HashSet<u64>,
    /// How often the coordinator was restored.
    pub(crate) restores: u64,
    /// The saved keys of the coordinator.
    pub(crate) backup: Option<Keys>,
    /// True if the coordinator may be restored. Clocks then differ by at most `max_ahead`.
    pub(crate) may_go_back: bool,
    /// True if a second restore follows each restore, once a daemon has started at the floor of the
    /// first restore and is cut off.
    pub(crate) goes_back_twice: bool,
    /// True from the first restore until the second restore.
    is_between_restores: bool,
    /// True if daemons often take the worker IDs of others, and restores lose that.
    changes_hands: bool,
    /// True while a scenario runs in which the coordinator always answers.
    is_answering: bool,
}

impl World {
    /// Makes a small fleet, where collisions are most likely.
    pub(crate) fn new(seed: u64) -> World {
        World::of(seed, 4, 2)
    }

    /// Makes a fleet of this many machines, with worker IDs for this many daemons.
    pub(crate) fn of(seed: u64, machines: usize, places: u64) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        let server = Server::new(seed % 2 == 1, rng.fork());
        let workers_each = if seed / 64 % 16 == 3 { MANY_WORKERS } else { 1 + seed / 4 % 2 };
        // Every fourth machine has only the first worker ID of its place.
        let given = |index: usize| {
            let first = index as u64 % places * workers_each;
            let count = if index % 4 == 3 { 1 } else { workers_each };
            WorkerSet::from_list(first..first + count).expect("a set")
        };
        let mut sync_time = || Duration::from_millis(if rng.bool() { 0 } else { rng.u64(..4_500) });
        let mut machine = |index: usize| Machine {
            disk: Disk { state: format!("state-{index}"), ..Disk::default() },
            boot: index as u64,
            horizon: HORIZON,
            max_ahead: MAX_AHEAD,
            given: (index % 4 > 1).then(|| given(index)),
            sync_time: sync_time(),
            ..Machine::default()
        };
        let machines_before: Vec<Machine> = (0..machines).map(&mut machine).collect();
        let mut world = World {
            seed,
            sources_each: 1 + seed as usize / 2 % 2,
            workers_each: workers_each as usize,
            workers: places * workers_each,
            changes_space: seed / 8 % 2 == 1,
            changes_settings: seed / 32 % 2 == 1,
            limits: FleetLimits::new(HORIZON, MAX_AHEAD),
            is_turned: false,
            link: Link::to(server),
            true_us: 1_800_000_000 * SECOND,
            machines_max: machines + 6,
            machines: machines_before,
            daemons: Vec::new(),
            starting: Vec::new(),
            lives: 0,
            saved: None,
            copied: None,
            boots: machines as u64,
            handed_out: HashSet::new(),
            restores: 0,
            backup: None,
            may_go_back: seed.is_multiple_of(3),
            goes_back_twice: false,
            is_between_restores: false,
            changes_hands: false,
            is_answering: false,
            rng,
        };
        world.prepare();
        world
    }

    /// Returns true if each daemon has as many worker IDs as a daemon may have.
    pub(crate) fn has_many_workers(&self) -> bool {
        self.workers_each as u64 == MANY_WORKERS
    }

    /// Makes a small fleet whose coordinator is restored twice in a row.
    pub(crate) fn restored_twice(seed: u64) -> World {
        World { may_go_back: true, goes_back_twice: true, ..World::new(seed) }
    }

    /// Makes a small fleet with worker IDs for one daemon. They change hands often, and restores of
    /// the coordinator lose that.
    pub(crate) fn contested(seed: u64) -> World {
        World { may_go_back: true, changes_hands: true, ..World::of(seed, 4, 1) }
    }

    /// Prepares the coordinator, as an operator does who knows the highest ID that was handed out.
    pub(crate) fn prepare(&mut self) {
        // The sources differ by a constant, which counts as a part of the worker ID.
        let layout = SourceLayout { source: 0, is_turned: self.is_turned }.layout();
        let mut marker = Marker::new(&new_identity(), vec![layout.space().to_string()], self.limits);
        if let Some(highest) = self.handed_out.iter().max() {
            marker.raise_floor(snowbank_fleet::above(&layout, *highest));
        }
        let mut server = self.link.server();
        server.late.clear();
        server.apply(&[Swap::write(Paths::of(FLEET).marker(), None, marker.text())]);
        server.older = server.keys.clone();
    }

    pub(crate) fn layouts(&self, is_turned: bool) -> Vec<SourceLayout> {
        (0..self.sources_each).map(|source| SourceLayout { source, is_turned }).collect()
    }

    pub(crate) fn reading(&self, machine: usize) -> Reading {
        let wall = UnixMicros(self.true_us + self.machines[machine].wall_offset_us);
        Reading { wall, boot: BootMicros(self.true_us) }
    }

    pub(crate) fn boot(&mut self, machine: usize) {
        self.boots += 1;
        self.machines[machine].boot(self.boots);
    }

    /// Draws one event. With more machines, events of the whole fleet are rarer, and time runs more
    /// slowly.
    pub(crate) fn step(&mut self) {
        let machines = self.machines.len();
        let machine = self.rng.usize(..machines);
        let at = self.rng.usize(..self.daemons.len().max(1));
        let is_there = at < self.daemons.len();
        self.true_us += self.rng.i64(0..SECOND) * 4 / machines.max(4) as i64;
        match self.rng.u8(..100) {
            0 if self.goes_back_twice && !self.link.server().keys.is_empty() => self.back_up_or_go_back(),
            event @ 0..8 if self.changes_hands && is_there => {
                self.is_answering = true;
                if event < 4 {
                    self.take_over(at)
                } else {
                    self.lose_raises(at)
                }
                self.is_answering = false;
                self.link.server().is_reliable = false;
            }
            0 if self.may_go_back && is_there && self.rng.bool() => self.take_over(at),
            0 if self.may_go_back && is_there => self.lose_raises(at),
            1..5 if self.is_between_restores => self.go_back_again(),
            0..15 if !self.daemons.iter().any(|daemon| daemon.machine == machine) => self.start(machine),
            15..45 if is_there => self.keep(at),
            45..82 if is_there => self.claim(at),
            82..84 if is_there => self.kill(at),
            84..86 if is_there => self.stop(at),
            86 if is_there && (self.saved.is_none() || self.rng.bool()) => self.save(at),
            87 if machines < self.machines_max => self.resume(),
            88 => {
                let max_aheads = self.machines.iter().map(|machine| machine.max_ahead);
                let shortest_us = max_aheads.min().unwrap_or_default().as_micros() as i64;
                let furthest_us = if self.may_go_back { shortest_us / 2 } else { 90 * SECOND };
                self.machines[machine].wall_offset_us = self.rng.i64(-furthest_us..=furthest_us);
            }
            event if self.rng.usize(..machines) < 4 => self.happen(event, machine),
            _ => {}
        }
    }

    /// Makes an event of the whole fleet happen.
    fn happen(&mut self, event: u8, machine: usize) {
        match event {
            89 if self.changes_space && self.rng.bool() => self.change_space(),
            89 if self.changes_settings && self.rng.bool() => self.change_limits(),
            89..91 => self.true_us += self.rng.i64(0..40) * SECOND,
            91 if self.rng.bool() => self.copy(machine),
            91 => self.put_back(machine),
            92 if self.rng.bool() => self.cut_off(machine, 0),
            92..94 => self.link.server().is_away = true,
            94..96 => self.link.server().is_away = false,
            96 => self.link.server().change_leader(),
            97..99 => self.do_late(),
            99 if self.rng.u8(..4) == 0 => self.lose_data(),
            _ if self.link.server().keys.is_empty() => self.prepare_again(),
            _ if !self.may_go_back => {}
            _ => self.back_up_or_go_back(),
        }
    }

    /// Cuts a machine off from the coordinator, perhaps for so long that the clocks pass a floor.
    fn cut_off(&mut self, machine: usize, shortest_us: i64) {
        let longest_us = 4 * OTHER_HORIZON.as_micros() as i64;
        self.machines[machine].cut_off_until_us = self.true_us + self.rng.i64(shortest_us..longest_us);
    }

    /// Makes the next calls to the coordinator come from this machine.
    pub(crate) fn call_from(&self, machine: usize) {
        let mut server = self.link.server();
        server.is_cut_off = !self.is_answering && self.machines[machine].cut_off_until_us > self.true_us;
        server.is_away &= !self.is_answering;
        server.is_reliable = self.is_answering;
    }

    /// Saves the coordinator's keys, or restores the saved keys. The same keys may be restored
    /// again later.
    fn back_up_or_go_back(&mut self) {
        if self.backup.is_none() || self.rng.bool() {
            self.backup = Some(self.link.server().keys.clone());
        } else {
            self.go_back();
            self.start_after_restore();
        }
    }

    /// Saves the keys while a worker ID is free. Another daemon may take it before a restore.
    pub(crate) fn back_up_after_release(&mut self) {
        if self.goes_back_twice && !self.is_between_restores {
            self.backup = Some(self.link.server().keys.clone());
        }
    }

    /// Starts a daemon right after a restore. This daemon may take the worker ID of a daemon that
    /// is cut off. The other daemons notice the restore while the start pauses.
    fn start_after_restore(&mut self) {
        let is_idle = |machine: &usize| {
            self.daemons.iter().all(|daemon| daemon.machine != *machine)
                && self.starting.iter().all(|starting| starting.machine != *machine)
        };
        let idle: Vec<usize> = (0..self.machines.len()).filter(is_idle).collect();
        let Some(machine) = self.rng.choice(idle) else { return };
        let Some(starting) = self.begin_again(machine) else { return };
        if self.rng.bool() {
            // No daemon has noticed the restore yet, unless the pause lasts long enough.
            self.settle(starting);
            (0..2 * self.daemons.len()).for_each(|at| self.claim(at % self.daemons.len()));
            return;
        }
        // The loop begins with the last daemon, because daemons that notice the restore are
        // removed.
        for at in (0..self.daemons.len()).rev() {
            let daemon = &self.daemons[at];
            if starting.took_from(daemon) {
                self.cut_off(daemon.machine, 0);
            } else {
                self.write_to_fleet(at, self.now(daemon));
            }
        }
        self.settle(starting);
    }

    /// Begins a start, which may be stopped in its pause and begun again.
    fn begin_again(&mut self, machine: usize) -> Option<Starting> {
        let starting = self.begin(machine)?;
        if self.rng.u8(..4) > 0 {
            return Some(starting);
        }
        self.stop_start(starting);
        self.begin(machine)
    }

    /// Kills or suspends a daemon. Another daemon takes its worker ID when its bound is near, and hands
    /// out IDs. A restore of the coordinator loses this. Then the other daemon notices the loss, or
    /// the suspended one stops cleanly, and the first daemon starts again.
    fn take_over(&mut self, at: usize) {
        let killed = self.daemons.swap_remove(at);
        let machine = killed.machine;
        let until_us = killed.until_us();
        let most = if self.is_answering || self.rng.bool() { 1 } else { 3 };
        let near_us = self.rng.i64(0..=most * MAX_AHEAD.as_micros() as i64);
        self.true_us = self.true_us.max(until_us - near_us);
        self.backup = Some(self.link.server().keys.clone());
        let others: Vec<usize> = (0..self.machines.len()).filter(|&other| other != machine).collect();
        let Some(taker) = self.rng.choice(others) else { return };
        if self.daemons.iter().all(|daemon| daemon.machine != taker) {
            self.starting.retain(|starting| starting.machine != taker);
            if let Some(starting) = self.begin(taker) {
                self.settle(starting);
            }
        }
        let of = |world: &World| world.daemons.iter().position(|daemon| daemon.machine == taker);
        for _ in 0..4 {
            let Some(at) = of(self) else { break };
            self.keep(at);
            if let Some(at) = of(self) {
                self.claim(at);
            }
        }
        self.go_back();
        let longest_us = if self.is_answering { SECOND } else { 8 * SECOND };
        self.true_us += self.rng.i64(0..longest_us);
        if !killed.is_copy() && self.rng.bool() {
            self.daemons.push(killed);
            self.stop(self.daemons.len() - 1);
        } else if let Some(at) = of(self) {
            self.write_to_fleet(at, self.now(&self.daemons[at]));
        }
        if self.changes_settings && self.rng.bool() {
            // The operator tries other settings.
            let settings = SETTINGS[self.rng.usize(..SETTINGS.len())];
            (self.machines[machine].horizon, self.machines[machine].max_ahead) = settings;
        }
        self.start(machine);
        // Its clock passes the bound at which the other daemon started.
        for _ in 0..8 {
            let Some(at) = self.daemons.iter().position(|daemon| daemon.machine == machine) else { break };
            self.claim(at);
            self.keep(at);
            self.true_us += self.rng.i64(0..2 * SECOND);
        }
    }

    /// Restores the coordinator to keys that are older than the bounds of a running daemon. By these
    /// keys its worker IDs are free, and another daemon takes one.
    fn lose_raises(&mut self, at: usize) {
        let machine = self.daemons[at].machine;
        let until_us = self.daemons[at].until_us() - self.rng.i64(0..=MAX_AHEAD.as_micros() as i64);
        self.backup = Some(self.link.server().keys.clone());
        let of = |world: &World, machine| world.daemons.iter().position(|daemon| daemon.machine == machine);
        while self.true_us < until_us {
            self.true_us += 3 * SECOND;
            let Some(at) = of(self, machine) else { return };
            self.keep(at);
        }
        self.go_back();
        let others: Vec<usize> =
            (0..self.machines.len()).filter(|&other| of(self, other).is_none()).collect();
        let Some(taker) = self.rng.choice(others) else { return };
        let Some(starting) = self.begin_again(taker) else { return };
        self.settle(starting);
        for _ in 0..5 {
            for machine in [machine, taker] {
                of(self, machine).into_iter().for_each(|at| self.claim(at));
            }
            // If no daemon has noticed the loss yet, the holder's clock passes the taker's start first.
            if self.link.server().lost_writes {
                self.true_us += SECOND;
            }
        }
    }

    pub(crate) fn do_late(&mut self) {
        let mut server = self.link.server();
        if let Some(swaps) = server.late.pop() {
            server.apply(&swaps);
        }
    }

    pub(crate) fn lose_data(&mut self) {
        let mut server = self.link.server();
        server.keys.clear();
        server.older.clear();
        server.find_losses();
        drop(server);
        self.backup = None;
    }

    pub(crate) fn prepare_again(&mut self) {
        if self.link.server().keys.is_empty() && self.daemons.is_empty() {
            (self.saved, self.copied) = (None, None);
            self.starting.clear();
            // The operator stops all daemons, and removes the notes, because with them a daemon
            // continues without asking the coordinator.
            for machine in &mut self.machines {
                (machine.disk.notes, machine.waiting) = (Notes::default(), None);
            }
            self.prepare();
        }
    }

    /// Restores the coordinator once more, if a daemon has started so far ahead that it must wait
    /// for its clock. That daemon is cut off for longer than a horizon, so it hands out all that it
    /// was granted.
    fn go_back_again(&mut self) {
        let is_far = |daemon: &&Daemon| {
            let now = self.now(daemon);
            daemon.sources.iter().any(|served| !served.source.unavailable_for(now).is_zero())
        };
        let Some(machine) = self.daemons.iter().find(is_far).map(|daemon| daemon.machine) else { return };
        self.cut_off(machine, OTHER_HORIZON.as_micros() as i64);
        self.go_back();
        (self.is_between_restores, self.backup) = (false, None);
    }

    /// Restores the coordinator to the saved keys.
    fn go_back(&mut self) {
        let Some(keys) = self.backup.clone() else { return };
        self.restores += 1;
        self.end_copies();
        self.is_between_restores = self.goes_back_twice;
        if !self.goes_back_twice && self.rng.bool() {
            self.backup = None;
        }
        let mut server = self.link.server();
        let number = |keys: &Keys, key: &String| keys.get(key).and_then(|text| NumberKey::parse(text).ok());
        for key in server.keys.keys().cloned().collect::<Vec<_>>() {
            let restored = number(&keys, &key).map_or(0, |key| key.id_bound);
            if let Some(lost) = number(&server.keys, &key).filter(|lost| lost.id_bound > restored) {
                server.lost_terms.push(lost.term);
                server.lost_writes = true;
            }
        }
        // If a raised floor is lost, the earlier loss must be noticed again.
        let marker = Paths::of(FLEET).marker();
        let floor =
            |keys: &Keys| keys.get(&marker).map(|text| Marker::parse(text).map(|marker| marker.floor()));
        server.lost_writes |= floor(&server.keys) != floor(&keys);
        server.late.clear();
        server.older.clone_from(&keys);
        server.keys = keys;
    }
}
