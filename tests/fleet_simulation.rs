//! A deterministic simulation of a fleet: the shipped rules, members, keepers and sources over a simulated coordinator.
//! Answers are lost, writes are done late, reads are old, the coordinator is away or loses its data. Clocks of machines differ
//! by minutes and step. Daemons are killed, stopped, paused for longer than their ceilings reach, and resumed twice from one
//! memory snapshot. Disks are copied to other machines while their daemons run, and older copies are put back. There are more
//! daemons than numbers, so that they collide.
//!
//! One promise is checked: no ID is handed out twice. A second test sees that the fleet hands out IDs at all.
//!
//! A failing seed prints itself: `SNOWBANK_SEED=N cargo test --test fleet_simulation` replays it alone.
//! `SNOWBANK_SEEDS=100000 cargo test --release --test fleet_simulation` runs longer.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use snowbank::ceiling::{CeilingRule, Grant, Left, Mark};
use snowbank::clock::{BootMicros, Now, Reading, Remembered, StepRule, Wall};
use snowbank::fleet::{
    Bound, Coordinator, JoinError, Marker, Member, NoAnswer, Notes, Paths, Raised, Stored, Swap, Swapped,
    Version, Want, rules,
};
use snowbank::keeper::{Keeper, ManagedSource, Outcome, Reach, Write};
use snowbank::numbering::Numbering;
use snowbank::source::{OnStepBack, Rules, SequenceStart, Source};
use snowbank_client::layout::{Layout, Position, Tick, UnixMicros, WorkerSet};

#[path = "support/seeds.rs"]
mod seeds;

const SECOND: i64 = 1_000_000;
const HORIZON: Duration = Duration::from_secs(20);
const MAX_AHEAD: Duration = Duration::from_secs(4);
const LAYOUT: &str = "time:33,worker:1,sequence:6;tick=1s;epoch=2020-01-01T00:00:00Z";
const FLEET: &str = "simulated";
const MACHINES: usize = 4;
const STEPS: usize = 250;

/// The coordinator, with the faults of its network.
struct Server {
    keys: BTreeMap<String, Stored>,
    /// The keys as they were some writes ago.
    older: BTreeMap<String, Stored>,
    revision: u64,
    /// Writes that are on their way.
    late: Vec<Vec<Swap>>,
    is_away: bool,
    /// True if nothing is lost, late or old while it is not away.
    is_reliable: bool,
    rng: fastrand::Rng,
}

impl Server {
    fn apply(&mut self, swaps: &[Swap]) -> Swapped {
        let stored = |key: &str| self.keys.get(key).cloned();
        if swaps.iter().any(|swap| stored(&swap.key).map(|stored| stored.version) != swap.expected) {
            return Swapped::Refused(swaps.iter().map(|swap| stored(&swap.key)).collect());
        }
        if self.rng.bool() {
            self.older.clone_from(&self.keys);
        }
        self.revision += 1;
        let version = Version(self.revision);
        for Swap { key, text, .. } in swaps {
            self.keys.insert(key.clone(), Stored { version, text: text.clone() });
        }
        Swapped::Done(version)
    }

    /// Returns what a read sees.
    fn seen(&mut self) -> Result<&BTreeMap<String, Stored>, NoAnswer> {
        match self.rng.u8(..12) {
            _ if self.is_away => Err(NoAnswer::passing("away")),
            _ if self.is_reliable => Ok(&self.keys),
            0 => Err(NoAnswer::passing("lost")),
            1 => Ok(&self.older),
            _ => Ok(&self.keys),
        }
    }
}

#[derive(Clone)]
struct Link(Arc<Mutex<Server>>);

impl Link {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.0.lock().expect("one thread")
    }
}

impl Coordinator for Link {
    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<Stored>>, NoAnswer> {
        let mut server = self.server();
        let seen = server.seen()?;
        Ok(keys.iter().map(|key| seen.get(key).cloned()).collect())
    }

    fn list(&mut self, prefix: &str) -> Result<Vec<(String, Stored)>, NoAnswer> {
        let mut server = self.server();
        let seen = server.seen()?.iter().filter(|(key, _)| key.starts_with(prefix));
        Ok(seen.map(|(key, stored)| (key.clone(), stored.clone())).collect())
    }

    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let mut server = self.server();
        match server.rng.u8(..10) {
            _ if server.is_away => Err(NoAnswer::passing("away")),
            _ if server.is_reliable => Ok(server.apply(swaps)),
            0 => Err(NoAnswer::passing("lost on the way there")),
            1 => {
                server.apply(swaps);
                Err(NoAnswer::passing("lost on the way back"))
            }
            2 => {
                server.late.push(swaps.to_vec());
                Err(NoAnswer::passing("late"))
            }
            _ => Ok(server.apply(swaps)),
        }
    }
}

/// A machine: its disk outlasts its daemon, and its marks and the rest outlast it until a boot.
#[derive(Clone, Default)]
struct Machine {
    disk: Disk,
    /// The marks by worker ID.
    marks: BTreeMap<u64, Mark>,
    /// Its boot, which is another one once it was restored from a snapshot.
    boot: u64,
    wall_offset_us: i64,
    /// `None`: the coordinator picks its number.
    given: Option<u64>,
}

/// A state directory.
#[derive(Clone, Default)]
struct Disk {
    state: String,
    notes: Notes,
    /// The boot in which the notes were written.
    noted_in: u64,
    /// The local ceilings by worker ID, as ID bounds.
    ceilings: BTreeMap<u64, u64>,
}

impl Machine {
    /// Returns whether the state is the newest of its copies for a number, as `Found::is_newest` does.
    fn is_newest(&self, worker: u64) -> bool {
        let marks: Vec<Mark> = self.marks.get(&worker).cloned().into_iter().collect();
        let stored = self.disk.ceilings.get(&worker);
        stored.is_some_and(|&stored| rules::is_newest(&marks, 1, &self.disk.state, stored))
    }

    fn mark(&mut self, worker: u64, id_bound: u64) {
        let mark = Mark { id_bound, state: self.disk.state.clone(), is_released: false };
        self.marks.insert(worker, mark);
    }

    fn store(&mut self, worker: u64, id_bound: u64) {
        self.disk.ceilings.insert(worker, id_bound);
    }

    /// Returns where a source starts by the marks, as a start does. `None`: the state is an older copy.
    fn above_marks(&self, worker: u64, start: Position) -> Option<Position> {
        let Some(mark) = self.marks.get(&worker) else { return Some(start) };
        let end = numbering(worker).position_from(mark.id_bound);
        (end <= start || mark.state != self.disk.state).then_some(start.max(end))
    }

    /// Boots. `boot` is one that no machine had.
    fn boot(&mut self, boot: u64) {
        self.boot = boot;
        self.marks.clear();
    }

    /// Reads the notes, as a start does.
    fn read_notes(&mut self) -> Notes {
        if self.disk.noted_in != self.boot {
            self.disk.notes.forget();
        }
        self.disk.noted_in = self.boot;
        self.disk.notes.clone()
    }
}

struct Daemon {
    machine: usize,
    member: Member<Link>,
    keeper: Keeper,
    source: Arc<Source>,
    wall: Arc<Wall>,
    worker: u64,
    /// The coordinator's ceiling that was acknowledged last.
    fleet: Position,
    /// Its write to the coordinator that has not begun.
    pending: Option<Write>,
}

/// A memory snapshot with the disk.
#[derive(Clone)]
struct Saved {
    machine: Machine,
    /// `None`: it starts after the restore.
    process: Option<Process>,
}

/// The memory of a daemon.
#[derive(Clone)]
struct Process {
    member: Member<Link>,
    worker: u64,
    cursor: Position,
    fleet: Position,
    generation: u64,
}

struct World {
    seed: u64,
    rng: fastrand::Rng,
    link: Link,
    true_us: i64,
    machines: Vec<Machine>,
    daemons: Vec<Daemon>,
    saved: Option<Saved>,
    /// A copy of a machine's state directory.
    copied: Option<(usize, Disk)>,
    boots: u64,
    handed_out: HashSet<u64>,
    /// When a coordinator that lost its data may be prepared again.
    prepared_from_us: Option<i64>,
}

thread_local!(static DRAWN: Cell<u64> = const { Cell::new(0) });

fn draw() -> String {
    DRAWN.with(|drawn| {
        drawn.set(drawn.get() + 1);
        format!("w{}", drawn.get())
    })
}

fn layout() -> Layout {
    Layout::resolve(LAYOUT).expect("a layout")
}

fn numbering(worker: u64) -> Numbering {
    Numbering::new(layout(), WorkerSet::single(worker)).expect("it has the worker")
}

fn want(layout: &Layout, wall: UnixMicros) -> Want<'_> {
    let (max_ahead, horizon) = (MAX_AHEAD, HORIZON);
    Want { index: 0, source: "orders", layout, wall, is_newest: false, max_ahead, horizon }
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        let server = Server {
            keys: BTreeMap::new(),
            older: BTreeMap::new(),
            revision: 0,
            late: Vec::new(),
            is_away: false,
            is_reliable: false,
            rng: rng.fork(),
        };
        let machine = |index: usize| Machine {
            disk: Disk { state: format!("state-{index}"), ..Disk::default() },
            boot: index as u64,
            given: (index > 1).then_some(index as u64 % 2),
            ..Machine::default()
        };
        let mut world = World {
            seed,
            link: Link(Arc::new(Mutex::new(server))),
            true_us: 1_800_000_000 * SECOND,
            machines: (0..MACHINES).map(machine).collect(),
            daemons: Vec::new(),
            saved: None,
            copied: None,
            boots: MACHINES as u64,
            handed_out: HashSet::new(),
            prepared_from_us: None,
            rng,
        };
        world.prepare();
        world
    }

    fn prepare(&mut self) {
        let space = layout().space().to_string();
        let text = Marker::new(vec![space]).text();
        let mut server = self.link.server();
        server.apply(&[Swap { key: Paths::of(FLEET).marker(), expected: None, text }]);
        server.older = server.keys.clone();
    }

    fn reading(&self, machine: usize) -> Reading {
        let wall = UnixMicros(self.true_us + self.machines[machine].wall_offset_us);
        Reading { wall, boot: BootMicros(self.true_us) }
    }

    /// Starts a daemon by the rules of `join_fleet` and `start_sources`.
    fn start(&mut self, machine: usize) {
        let reading = self.reading(machine);
        let notes = self.machines[machine].read_notes();
        let found = &self.machines[machine];
        let layout = layout();
        let want = want(&layout, reading.wall);
        let holder = format!("machine {machine}");
        let identity = (found.disk.state.as_str(), holder.as_str());
        let mut member = Member::new(self.link.clone(), FLEET, identity, notes, draw);
        let given = found.given.map(WorkerSet::single);
        let own = given.clone().or_else(|| member.own(want));
        let is_newest = own.as_ref().is_some_and(|own| found.is_newest(own.highest()));
        let want = Want { is_newest, ..want };
        let taken = match &given {
            Some(given) => member.take(want, given),
            None => member.pick(want, 1, |_| true, |_| Ok::<bool, JoinError>(true)),
        };
        let taken = match taken {
            Err(JoinError::NoAnswer(_)) => own.and_then(|own| member.resume_unseen(want, &own)),
            taken => taken.ok(),
        };
        self.machines[machine].disk.notes = member.notes().clone();
        let Some(taken) = taken.filter(|_| self.rng.u8(..8) > 0) else {
            // It has none, or is killed before it has stored where it starts.
            return;
        };
        let worker = taken.worker_ids.highest();
        let numbering = numbering(worker);
        let next = numbering.first_of(Tick(numbering.tick_at(reading.wall).0 + 1));
        let stored = self.machines[machine].disk.ceilings.get(&worker);
        let start = stored.map_or(next, |&stored| numbering.position_from(stored));
        let start = start.max(numbering.position_from(taken.floor));
        let Some(start) = self.machines[machine].above_marks(worker, start) else { return };
        let fleet = numbering.position_from(taken.covered);
        let daemon = self.daemon(machine, member, worker, start, (fleet, 0));
        self.daemons.push(daemon);
    }

    /// Makes a process whose first local ceiling is durable. Its grant was taken away so many times before.
    fn daemon(
        &mut self,
        machine: usize,
        member: Member<Link>,
        worker: u64,
        start: Position,
        (fleet, losses): (Position, u64),
    ) -> Daemon {
        let reading = self.reading(machine);
        let rule = StepRule { max_step: Duration::from_secs(60), step_hold: Duration::ZERO };
        let wall = Arc::new(Wall::new(rule, reading, Remembered::Nothing));
        let now = wall.believe(reading);
        let rules = Rules {
            burst_window: Duration::from_secs(1),
            max_ahead: MAX_AHEAD,
            on_step_back: OnStepBack::Ride,
            sequence_start: SequenceStart::Zero,
        };
        let rule = CeilingRule {
            horizon: Duration::from_secs(2),
            max_ahead: MAX_AHEAD,
            tick: Duration::from_secs(1),
        };
        let (name, grant) = (String::from("orders"), Grant::new(Position(0)));
        (0..losses).for_each(|_| grant.revoke());
        let source = Arc::new(Source::new(name, numbering(worker), rules, grant, start, now));
        let managed = ManagedSource::new(Arc::clone(&source), rule, start, now).under_fleet(Some(fleet));
        let mut managed = managed;
        let ceiling = managed.first_ceiling(now);
        let id_bound = source.numbering().id_bound(ceiling);
        self.machines[machine].store(worker, id_bound);
        self.machines[machine].mark(worker, id_bound);
        managed.grant(managed.first_grant(ceiling));
        let writers = [Reach::Local, Reach::Fleet(HORIZON)];
        let keeper = Keeper::new(vec![managed], &writers, Arc::clone(&wall), reading);
        Daemon { machine, member, keeper, source, wall, worker, fleet, pending: None }
    }

    fn now(&self, daemon: &Daemon) -> Now {
        daemon.wall.believe(self.reading(daemon.machine))
    }

    /// Looks once, as the keeper's thread does. Writes to the coordinator may take their time.
    fn keep(&mut self, at: usize) {
        let reading = self.reading(self.daemons[at].machine);
        let now = self.now(&self.daemons[at]);
        let daemon = &mut self.daemons[at];
        for write in daemon.keeper.look(reading).writes {
            if write.writer == 1 {
                daemon.pending = Some(write);
                continue;
            }
            for &(_, ceiling) in &write.ceilings {
                let bound = daemon.source.numbering().id_bound(ceiling);
                self.machines[daemon.machine].store(daemon.worker, bound);
            }
            let outcome = Outcome { writer: 0, number: write.number, result: Ok(()) };
            let machine = &mut self.machines[daemon.machine];
            daemon.keeper.written(outcome, now, |_, bound| machine.mark(daemon.worker, bound));
        }
        if self.rng.u8(..3) == 0 {
            self.write_to_fleet(at, now);
        }
    }

    fn write_to_fleet(&mut self, at: usize, now: Now) {
        let daemon = &mut self.daemons[at];
        let (raised, number) = match daemon.pending.take() {
            Some(write) => {
                let bounds = write.ceilings.iter().map(|&(source, ceiling)| Bound {
                    source,
                    id_bound: daemon.source.numbering().id_bound(ceiling),
                });
                let raised = daemon.member.raise(&bounds.collect::<Vec<_>>(), write.generation);
                (raised, write.ceilings.first().map(|&(_, ceiling)| (write.number, ceiling)))
            }
            None => (daemon.member.look(), None),
        };
        self.machines[daemon.machine].disk.notes = daemon.member.notes().clone();
        let result = match raised {
            Raised::Done => Ok(()),
            Raised::NoAnswer(answer) => Err(snowbank::ceiling::StoreError::new(answer.reason)),
            Raised::Lost(_) => {
                self.daemons.swap_remove(at);
                return;
            }
        };
        if let Some((number, fleet)) = number {
            if result.is_ok() {
                daemon.fleet = fleet;
            }
            let machine = &mut self.machines[daemon.machine];
            let mark = |_, bound| machine.mark(daemon.worker, bound);
            daemon.keeper.written(Outcome { writer: 1, number, result }, now, mark);
        }
    }

    fn claim(&mut self, at: usize) {
        let daemon = &self.daemons[at];
        let window = daemon.source.window(self.now(daemon));
        let count = self.rng.u64(1..20);
        if window.is_shut() {
            return;
        }
        let Some(from) = daemon.source.claim(&window, count, &mut self.rng) else { return };
        for position in from.0..from.0 + count {
            let id = daemon.source.numbering().id_at(Position(position));
            let seed = self.seed;
            assert!(self.handed_out.insert(id), "seed {seed}: {id} twice, by machine {}", daemon.machine);
        }
    }

    fn kill(&mut self, at: usize) {
        let daemon = self.daemons.swap_remove(at);
        if self.rng.bool() {
            self.boot(daemon.machine);
        }
    }

    fn boot(&mut self, machine: usize) {
        self.boots += 1;
        self.machines[machine].boot(self.boots);
    }

    fn stop(&mut self, at: usize) {
        let mut daemon = self.daemons.swap_remove(at);
        let bound = |left: Left| Bound { source: left.source, id_bound: left.id_bound };
        let bounds: Vec<Bound> = daemon.keeper.seal().into_iter().map(bound).collect();
        for bound in &bounds {
            self.machines[daemon.machine].mark(daemon.worker, bound.id_bound);
            self.machines[daemon.machine].store(daemon.worker, bound.id_bound);
        }
        let _ = daemon.member.release(&bounds);
        self.machines[daemon.machine].disk.notes = daemon.member.notes().clone();
    }

    /// Saves a machine's memory, and switches it off. Without its memory it can only boot.
    fn save(&mut self, at: usize) {
        let Daemon { machine, member, source, worker, fleet, .. } = self.daemons.swap_remove(at);
        let cursor = source.cursor().expect("not sealed");
        let generation = source.grant().generation();
        let process = Process { member, worker, cursor, fleet, generation };
        // Or the process was killed just before.
        let process = Some(process).filter(|_| self.rng.bool());
        // The copies' kernels count alike.
        self.boots += 1;
        let saved = Machine { boot: self.boots, ..self.machines[machine].clone() };
        self.saved = Some(Saved { machine: saved, process });
        self.boot(machine);
    }

    /// Resumes a saved machine, once more: a new machine with the same disk, whose kernel reports it.
    fn resume(&mut self) {
        let Some(Saved { machine, process }) = self.saved.clone() else { return };
        self.machines.push(machine);
        let machine = self.machines.len() - 1;
        let Some(Process { member, worker, cursor, fleet, generation }) = process else { return };
        let daemon = self.daemon(machine, member, worker, cursor, (fleet, generation));
        daemon.source.grant().revoke();
        self.daemons.push(daemon);
    }

    /// Copies a machine's state directory. A copy of its two files is not made at one instant.
    fn copy(&mut self, machine: usize) {
        let disk = self.machines[machine].disk.clone();
        match &mut self.copied {
            Some((of, copied)) if *of == machine && self.rng.bool() => {
                (copied.notes, copied.noted_in) = (disk.notes, disk.noted_in);
            }
            copied => *copied = Some((machine, disk)),
        }
    }

    /// Starts to use the copy: on a machine in place of the state there, in a container beside the one that was copied, which
    /// has locks of its own, or on a new machine.
    fn put_back(&mut self, machine: usize) {
        let Some((of, disk)) = self.copied.clone() else { return };
        let is_used = self.daemons.iter().any(|daemon| daemon.machine == machine);
        if !is_used && self.rng.bool() {
            self.machines[machine].disk = disk;
        } else if self.machines.len() < MACHINES + 6 {
            let marks = BTreeMap::new();
            self.machines.push(Machine { disk, marks, ..self.machines[of].clone() });
            if self.rng.bool() {
                self.boot(self.machines.len() - 1);
            }
        }
    }

    fn step(&mut self) {
        let machine = self.rng.usize(..self.machines.len());
        let at = self.rng.usize(..self.daemons.len().max(1));
        let is_there = at < self.daemons.len();
        self.true_us += self.rng.i64(0..SECOND);
        match self.rng.u8(..100) {
            0..15 if !self.daemons.iter().any(|daemon| daemon.machine == machine) => self.start(machine),
            15..45 if is_there => self.keep(at),
            45..82 if is_there => self.claim(at),
            82..84 if is_there => self.kill(at),
            84..86 if is_there => self.stop(at),
            86 if is_there && (self.saved.is_none() || self.rng.bool()) => self.save(at),
            87 if self.machines.len() < MACHINES + 6 => self.resume(),
            88 => self.machines[machine].wall_offset_us = self.rng.i64(-90..90) * SECOND,
            89..91 => self.true_us += self.rng.i64(0..40) * SECOND,
            91 if self.rng.bool() => self.copy(machine),
            91 => self.put_back(machine),
            92..94 => self.link.server().is_away = true,
            94..97 => self.link.server().is_away = false,
            97..99 => self.do_late(),
            99 if self.rng.u8(..4) == 0 => self.lose_data(),
            _ => self.prepare_again(),
        }
    }

    fn do_late(&mut self) {
        let mut server = self.link.server();
        if let Some(swaps) = server.late.pop() {
            server.apply(&swaps);
        }
    }

    fn lose_data(&mut self) {
        let mut server = self.link.server();
        server.keys.clear();
        server.older.clear();
        // An operator waits until no clock is before a ceiling.
        self.prepared_from_us = Some(self.true_us + 400 * SECOND);
    }

    fn prepare_again(&mut self) {
        let is_time = self.prepared_from_us.is_some_and(|from_us| from_us <= self.true_us);
        if is_time && self.daemons.is_empty() {
            self.prepared_from_us = None;
            (self.saved, self.copied) = (None, None);
            self.prepare();
        }
    }
}

fn live(seed: u64) -> usize {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.handed_out.len()
}

/// Both copies have a write under way that neither knows the outcome of.
#[test]
fn of_two_copies_of_a_memory_exactly_one_goes_on() {
    let world = World::new(1);
    world.link.server().is_reliable = true;
    let layout = layout();
    let wall = world.reading(0).wall;
    let want = want(&layout, wall);
    let mut member = Member::new(world.link.clone(), FLEET, ("state", "holder"), Notes::default(), draw);
    let taken = member.take(want, &WorkerSet::single(0)).expect("it is free");
    let bound = |more| [Bound { source: 0, id_bound: taken.covered + more }];
    world.link.server().is_away = true;
    assert!(matches!(member.raise(&bound(1), 0), Raised::NoAnswer(_)));
    world.link.server().is_away = false;
    let mut copy = member.clone();
    assert_eq!(copy.raise(&bound(2), 1), Raised::Done);
    assert!(matches!(member.raise(&bound(3), 1), Raised::Lost(_)), "the other has written");
    assert_eq!(copy.look(), Raised::Done);
    assert_eq!(copy.raise(&bound(4), 1), Raised::Done);
}

#[test]
fn no_id_is_handed_out_twice() {
    let handed_out = AtomicU64::new(0);
    let seeds = seeds::run(3_000, |seed| _ = handed_out.fetch_add(live(seed) as u64, Ordering::Relaxed));
    let handed_out = handed_out.into_inner();
    // Faults are frequent, and still most daemons serve.
    assert!(seeds == 1 || handed_out > 50 * seeds, "{handed_out} IDs of {seeds} seeds");
}
