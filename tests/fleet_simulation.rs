//! A deterministic simulation of a fleet: the shipped rules, members, keepers and sources over a simulated coordinator.
//! Answers are lost, writes are done late, reads are old, the coordinator is away or loses its data. Clocks of machines differ
//! by minutes and step. Daemons are killed, stopped, paused for longer than their ceilings reach, and resumed twice from one
//! memory snapshot. There are more daemons than numbers, so that they collide.
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

use snowbank::ceiling::{CeilingRule, Grant};
use snowbank::clock::{BootMicros, Now, Reading, Remembered, StepRule, Wall};
use snowbank::fleet::{
    Bound, Coordinator, JoinError, Marker, Member, NoAnswer, Notes, Paths, Raised, Stored, Swap, Swapped,
    Version, Want,
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

/// A machine: its disk outlasts its daemon.
#[derive(Clone, Default)]
struct Machine {
    state: String,
    notes: Notes,
    /// The local ceilings by worker ID, as ID bounds.
    ceilings: BTreeMap<u64, u64>,
    wall_offset_us: i64,
    /// `None`: the coordinator picks its number.
    given: Option<u64>,
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
    disk: Machine,
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
            state: format!("state-{index}"),
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
        let disk = &self.machines[machine];
        let layout = layout();
        let want = Want {
            index: 0,
            source: "orders",
            layout: &layout,
            wall: reading.wall,
            max_ahead: MAX_AHEAD,
            horizon: HORIZON,
        };
        let holder = format!("machine {machine}");
        let mut member =
            Member::new(self.link.clone(), FLEET, (&disk.state, &holder), disk.notes.clone(), draw);
        let given = disk.given.map(WorkerSet::single);
        let taken = match &given {
            Some(given) => member.take(want, given),
            None => member.pick(want, 1, |_| true, |_| Ok::<bool, JoinError>(true)),
        };
        let taken = match taken {
            Err(JoinError::NoAnswer(_)) => member.resume_unseen(want, given.as_ref()),
            taken => taken.ok(),
        };
        self.machines[machine].notes = member.notes().clone();
        let Some(taken) = taken.filter(|_| self.rng.u8(..8) > 0) else {
            // It has none, or is killed before it has stored where it starts.
            return;
        };
        let worker = taken.worker_ids.highest();
        let numbering = numbering(worker);
        let next = numbering.first_of(Tick(numbering.tick_at(reading.wall).0 + 1));
        let stored = self.machines[machine].ceilings.get(&worker);
        let start = stored.map_or(next, |&bound| numbering.position_from(bound));
        let start = start.max(numbering.position_from(taken.floor));
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
        self.machines[machine].ceilings.insert(worker, source.numbering().id_bound(ceiling));
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
                let stored = self.machines[daemon.machine].ceilings.entry(daemon.worker).or_default();
                *stored = bound.max(*stored);
            }
            let outcome = Outcome { writer: 0, number: write.number, result: Ok(()) };
            daemon.keeper.written(outcome, now, |_, _| ());
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
        self.machines[daemon.machine].notes = daemon.member.notes().clone();
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
            daemon.keeper.written(Outcome { writer: 1, number, result }, now, |_, _| ());
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
            // With a boot.
            self.machines[daemon.machine].notes.forget_ceilings();
        }
    }

    fn stop(&mut self, at: usize) {
        let mut daemon = self.daemons.swap_remove(at);
        let bound = |(source, position): (usize, Position)| Bound {
            source,
            id_bound: daemon.source.numbering().id_bound(position),
        };
        let bounds: Vec<Bound> = daemon.keeper.seal().into_iter().map(bound).collect();
        for bound in &bounds {
            self.machines[daemon.machine].ceilings.insert(daemon.worker, bound.id_bound);
        }
        let _ = daemon.member.release(&bounds);
        self.machines[daemon.machine].notes = daemon.member.notes().clone();
    }

    /// Saves a machine's memory, and switches it off.
    fn save(&mut self, at: usize) {
        let Daemon { machine, member, source, worker, fleet, .. } = self.daemons.swap_remove(at);
        let (disk, cursor) = (self.machines[machine].clone(), source.cursor().expect("not sealed"));
        let generation = source.grant().generation();
        // Without its memory it can only boot.
        self.machines[machine].notes.forget_ceilings();
        self.saved = Some(Saved { disk, member, worker, cursor, fleet, generation });
    }

    /// Resumes a saved machine, once more: a new machine with the same disk, whose kernel reports it.
    fn resume(&mut self) {
        let saved = self.saved.clone();
        let Some(Saved { mut disk, member, worker, cursor, fleet, generation }) = saved else { return };
        // The first write after the report forgets them. A process that is killed before that is not simulated.
        disk.notes.forget_ceilings();
        self.machines.push(disk);
        let machine = self.machines.len() - 1;
        let daemon = self.daemon(machine, member, worker, cursor, (fleet, generation));
        daemon.source.grant().revoke();
        self.daemons.push(daemon);
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
            91 if self.machines.len() < MACHINES + 6 => self.resume(),
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
            self.saved = None;
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
    let want =
        Want { index: 0, source: "orders", layout: &layout, wall, max_ahead: MAX_AHEAD, horizon: HORIZON };
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
