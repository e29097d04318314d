//! The machines of the search, and all that can happen to them.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::wire::{self, Fault, Keys, Kind, Left, Server, Wire};
use crate::ceiling::Mark;
use crate::clock::{BootMicros, Now};
use crate::fleet::{
    Bound, JoinError, Marker, Member, Notes, NumberKey, Paths, Raised, Swap, Taken, Want, rules,
};
use crate::numbering::Numbering;
use snowbank_client::layout::{Layout, Tick, UnixMicros, WorkerSet};

pub(super) const NUMBERS: usize = 2;
const FLEET: &str = "f";
pub(super) const SOURCE: &str = "orders";
const HORIZON: Duration = Duration::from_secs(10);
const MAX_AHEAD: Duration = Duration::from_secs(2);
/// What a clock reads, whenever it is read. At the second instant the ceilings of the first are past, even those at a
/// coordinator that may lose writes.
const WALLS: [UnixMicros; 2] = [UnixMicros(0), UnixMicros(25_000_000)];
/// The number that each machine is given. `None`: the coordinator picks one.
const GIVEN: [Option<u64>; 3] = [Some(0), Some(0), None];

/// A tick is a second, and begins at its number.
static LAYOUT: LazyLock<Layout> =
    LazyLock::new(|| Layout::resolve("time:33,worker:1,sequence:1;tick=1s").unwrap());
pub(super) static SPACE: LazyLock<String> = LazyLock::new(|| LAYOUT.space().to_string());
static NUMBERINGS: LazyLock<[Numbering; NUMBERS]> =
    LazyLock::new(|| [0, 1].map(|number| Numbering::new(LAYOUT.clone(), WorkerSet::single(number)).unwrap()));

/// A machine, with its state, what it remembers in this boot, and its daemon.
#[derive(Clone)]
pub(super) struct Machine {
    /// The identity of the state.
    pub(super) state: String,
    pub(super) notes: Notes,
    /// The boot in which the notes were written.
    pub(super) noted_in: u64,
    /// The local ceilings, as ticks, by number.
    pub(super) ceilings: [Option<u64>; NUMBERS],
    /// The states that marked a number, with the marked ticks.
    pub(super) marks: [Option<(String, u64)>; NUMBERS],
    pub(super) boot: u64,
    pub(super) daemon: Option<Daemon>,
}

/// A daemon that runs.
#[derive(Clone)]
pub(super) struct Daemon {
    pub(super) member: Member<Wire>,
    pub(super) number: usize,
    /// Its first tick that was not used.
    pub(super) cursor: u64,
    /// The fleet's ceiling that counts, as a tick.
    pub(super) granted: u64,
    /// The fleet's ceiling that was acknowledged last, and counts once the next one is: where writes may be lost.
    pub(super) unsure: Option<u64>,
    /// The highest one that was acknowledged.
    pub(super) newest: u64,
    pub(super) generation: u64,
}

/// All of a fleet at a moment.
#[derive(Clone)]
pub(super) struct World {
    pub(super) server: Server,
    pub(super) machines: [Arc<Machine>; GIVEN.len()],
    /// By number, the ticks whose IDs were handed out.
    pub(super) used: [u64; NUMBERS],
    pub(super) boots: u64,
    past: Option<Arc<Past>>,
}

/// The events that led to a state, the last first.
struct Past {
    event: Event,
    script: Vec<u8>,
    before: Option<Arc<Past>>,
}

/// Something that happens. IDs are handed out as soon as they may be: that nobody asks for them repeats none. Numbers are those of machines.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A daemon starts, and hands out IDs at once.
    Start(usize, UnixMicros, Amount),
    /// A daemon hands out all that it may.
    Use(usize),
    /// The same, after a raise.
    Raise(usize, UnixMicros),
    Look(usize),
    Kill(usize),
    Stop(usize),
    Boot(usize),
    /// The state of the first replaces that of the second.
    Copy(usize, usize),
    /// The same, and the second is a container beside the first, with locks of its own.
    CopyBeside(usize, usize),
    /// A memory snapshot of the first is resumed on both.
    Snapshot(usize, usize),
    /// A write that was on its way is done.
    Late(usize),
    FailOver,
    LoseData,
}

#[derive(Clone, Copy, Debug)]
enum Amount {
    One,
    All,
}

impl World {
    /// A fleet that is prepared, and this many faults ahead: at most two of each kind.
    pub(super) fn new(kind: Kind, faults: u8) -> World {
        let left = Left::new(2, faults);
        let keys = Arc::new(Keys::new());
        let (before, late) = (Vec::new(), Vec::new());
        let mut server = Server { kind, keys, before, late, revision: 0, drawn: 0, left };
        let text = Marker::new(vec![SPACE.clone()]).text();
        server.apply(&[Swap { key: Paths::of(FLEET).marker(), expected: None, text }]);
        server.before.clear();
        let machine = |index: usize| Machine {
            state: format!("state-{index}"),
            notes: Notes::default(),
            noted_in: index as u64,
            ceilings: [None; NUMBERS],
            marks: [const { None }; NUMBERS],
            boot: index as u64,
            daemon: None,
        };
        let machines = [0, 1, 2].map(|index| Arc::new(machine(index)));
        World { server, machines, used: [0; NUMBERS], boots: GIVEN.len() as u64, past: None }
    }

    /// Calls `visit` with each state that one event leads to.
    pub(super) fn for_each_successor(&self, mut visit: impl FnMut(World)) {
        for event in self.events() {
            let mut scripts: Vec<Vec<u8>> = vec![Vec::new()];
            while let Some(script) = scripts.pop() {
                let (world, made) = self.after(event, &script);
                for at in script.len()..made.len() {
                    let same = made[..at].iter().map(|(choice, _)| *choice);
                    scripts.extend((1..made[at].1).map(|other| same.clone().chain([other]).collect()));
                }
                visit(world);
            }
        }
    }

    fn events(&self) -> Vec<Event> {
        let left = self.server.left;
        let mut events = Vec::new();
        for (index, machine) in self.machines.iter().enumerate() {
            match &machine.daemon {
                None => {
                    let few = WALLS.map(|wall| Event::Start(index, wall, Amount::One));
                    let many = WALLS.map(|wall| Event::Start(index, wall, Amount::All));
                    events.extend(few.into_iter().chain(many));
                }
                Some(daemon) => events.extend(daemon.events(index, left)),
            }
            if left.has(Fault::Boot) {
                events.push(Event::Boot(index));
            }
            let idle = (0..GIVEN.len()).filter(|&to| to != index && self.machines[to].daemon.is_none());
            for to in idle {
                if left.has(Fault::Copy) {
                    events.extend([Event::Copy(index, to), Event::CopyBeside(index, to)]);
                }
                if left.has(Fault::Snapshot) {
                    events.push(Event::Snapshot(index, to));
                }
            }
        }
        events.extend((0..self.server.late.len()).map(Event::Late));
        events.extend((left.has(Fault::LoseData)).then_some(Event::LoseData));
        events.extend(self.may_fail_over().then_some(Event::FailOver));
        events
    }

    /// Returns the state after an event, and the choices that its calls had.
    fn after(&self, event: Event, script: &[u8]) -> (World, Vec<(u8, u8)>) {
        let mut world = self.clone();
        let past = Past { event, script: script.to_vec(), before: world.past.take() };
        world.past = Some(Arc::new(past));
        let ((), server, made) = wire::play(self.server.clone(), script, || world.happen(event));
        world.server = server;
        world.server.forget();
        (world, made)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start(at, wall, amount) => {
                self.machine(at).start(GIVEN[at], wall);
                self.use_up(at, amount);
            }
            Event::Use(at) => self.use_up(at, Amount::All),
            Event::Raise(at, wall) => {
                self.machine(at).raise(wall);
                self.use_up(at, Amount::All);
            }
            Event::Look(at) => self.machine(at).look(),
            Event::Stop(at) => self.machine(at).stop(),
            Event::Kill(at) => {
                self.machine(at).daemon = None;
                lose(Fault::Kill);
            }
            Event::Boot(at) => {
                self.boot(at);
                self.machine(at).daemon = None;
                lose(Fault::Boot);
            }
            Event::Copy(from, to) => self.copy(from, to, false),
            Event::CopyBeside(from, to) => self.copy(from, to, true),
            Event::Snapshot(from, to) => self.resume_twice(from, to),
            Event::Late(at) => wire::with_server(|server| {
                let swaps = server.late.remove(at);
                server.apply(&swaps);
            }),
            Event::FailOver => wire::with_server(|server| {
                server.left.take(Fault::FailOver);
                server.keys = server.before.pop().expect("it may fail over");
            }),
            Event::LoseData => wire::with_server(|server| {
                server.left.take(Fault::LoseData);
                server.keys = Arc::default();
                server.before.clear();
            }),
        }
    }

    fn machine(&mut self, at: usize) -> &mut Machine {
        Arc::make_mut(&mut self.machines[at])
    }

    fn boot(&mut self, at: usize) {
        self.boots += 1;
        let boot = self.boots;
        let machine = self.machine(at);
        (machine.boot, machine.marks) = (boot, [const { None }; NUMBERS]);
    }

    /// Hands out the IDs of ticks. Their ceiling is durable, and marked, before.
    fn use_up(&mut self, at: usize, amount: Amount) {
        let machine = self.machine(at);
        let Some(daemon) = &mut machine.daemon else { return };
        let from = daemon.cursor;
        let to = match amount {
            Amount::One => from + 1,
            Amount::All => daemon.granted,
        };
        if to <= from || to > daemon.granted {
            return;
        }
        daemon.cursor = to;
        let number = daemon.number;
        machine.store(number, to);
        let ticks = ((1 << to) - 1) & !((1 << from) - 1);
        assert!(self.used[number] & ticks == 0, "number {number}, ticks {from}..{to} twice:{self}");
        self.used[number] |= ticks;
    }

    fn copy(&mut self, from: usize, to: usize, is_beside: bool) {
        lose(Fault::Copy);
        let original = Arc::clone(&self.machines[from]);
        let copy = self.machine(to);
        copy.state.clone_from(&original.state);
        (copy.notes, copy.noted_in) = (original.notes.clone(), original.noted_in);
        copy.ceilings = original.ceilings;
        if is_beside {
            (copy.boot, copy.marks) = (original.boot, [const { None }; NUMBERS]);
        }
    }

    /// The kernels of both copies report the restore, and count alike.
    fn resume_twice(&mut self, from: usize, to: usize) {
        lose(Fault::Snapshot);
        self.boots += 1;
        let boot = self.boots;
        let machine = self.machine(from);
        machine.boot = boot;
        if let Some(daemon) = &mut machine.daemon {
            daemon.generation += 1;
            (daemon.granted, daemon.unsure) = (0, daemon.unsure.map(|_| 0));
        }
        self.machines[to] = Arc::clone(&self.machines[from]);
    }

    /// Returns whether a failover may happen that loses no more than may be lost: what may have been used is below the
    /// start of whoever takes a number then.
    fn may_fail_over(&self) -> bool {
        let can_go_back = self.server.kind == Kind::Lossy && self.server.left.has(Fault::FailOver);
        let (Some(keys), true) = (self.server.before.last(), can_go_back) else { return false };
        (0..NUMBERS).all(|number| {
            let daemons = self.machines.iter().filter_map(|machine| machine.daemon.as_ref());
            let granted = daemons.filter(|daemon| daemon.number == number).map(|daemon| daemon.granted);
            let noted = self.machines.iter().map(|machine| machine.noted_ceiling(number));
            let used = u64::from(u64::BITS - self.used[number].leading_zeros());
            let most = granted.chain(noted).max().unwrap_or(0).max(used);
            most <= start_above(keys, number)
        })
    }
}

impl fmt::Display for World {
    /// Lists the events that led here.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut events = Vec::new();
        let mut past = self.past.as_deref();
        while let Some(Past { event, script, before }) = past {
            events.push(format!("\n{event:?} {script:?}"));
            past = before.as_deref();
        }
        events.iter().rev().try_for_each(|event| f.write_str(event))
    }
}

impl Daemon {
    /// Without a loss of writes, a look only ends a daemon, and so does a raise.
    fn events(&self, at: usize, left: Left) -> Vec<Event> {
        let mut events = vec![Event::Stop(at)];
        events.extend(self.unsure.map(|_| Event::Look(at)));
        let rises = |wall: &UnixMicros| self.next(*wall) > self.granted;
        events.extend(WALLS.into_iter().filter(rises).map(|wall| Event::Raise(at, wall)));
        if self.cursor < self.granted {
            events.push(Event::Use(at));
        }
        events.extend(left.has(Fault::Kill).then_some(Event::Kill(at)));
        events
    }

    /// Returns the fleet's ceiling to write next.
    fn next(&self, wall: UnixMicros) -> u64 {
        let now = Now { wall, boot: BootMicros(0), jumped: false };
        let numbering = &NUMBERINGS[self.number];
        let ceiling = numbering.tick_of(rules::ceiling(numbering, now, wall, HORIZON)).0;
        ceiling.max(self.newest)
    }

    /// Takes a ceiling that was acknowledged, as the keeper does.
    fn acknowledge(&mut self, ceiling: u64) {
        self.newest = ceiling;
        self.granted = match &mut self.unsure {
            Some(unsure) => std::mem::replace(unsure, ceiling),
            None => ceiling,
        };
    }
}

impl Machine {
    /// Makes a local ceiling durable, and marks it.
    fn store(&mut self, number: usize, ceiling: u64) {
        self.ceilings[number] = Some(ceiling);
        self.marks[number] = Some((self.state.clone(), ceiling));
    }

    /// Returns the fleet's ceiling by which a start without the coordinator continues.
    fn noted_ceiling(&self, number: usize) -> u64 {
        let note = self.notes.of(SOURCE, &SPACE).filter(|note| note.worker_ids == number.to_string());
        note.map_or(0, |note| tick(number, note.covered))
    }

    /// Reads the notes, as a start does.
    fn read_notes(&mut self) -> Notes {
        if self.noted_in != self.boot {
            self.notes.forget();
            self.noted_in = self.boot;
        }
        self.notes.clone()
    }

    fn is_newest(&self, number: usize) -> bool {
        let bound = |ceiling| bound(number, ceiling);
        let mark = |(state, ceiling): &(String, u64)| Mark {
            id_bound: bound(*ceiling),
            state: state.clone(),
            is_released: false,
        };
        let marks: Vec<Mark> = self.marks[number].iter().map(mark).collect();
        self.ceilings[number].is_some_and(|stored| rules::is_newest(&marks, 1, &self.state, bound(stored)))
    }

    /// Starts a daemon, by the rules of `join_fleet` and `start_sources`.
    fn start(&mut self, given: Option<u64>, wall: UnixMicros) {
        let notes = self.read_notes();
        let (max_ahead, horizon) = (MAX_AHEAD, HORIZON);
        let layout = &*LAYOUT;
        let want = Want { index: 0, source: SOURCE, layout, wall, is_newest: false, max_ahead, horizon };
        let mut member = Member::new(Wire, FLEET, (&self.state, "holder"), notes, wire::draw);
        let given = given.map(WorkerSet::single);
        let own = given.clone().or_else(|| member.own(want));
        let is_newest = own.as_ref().is_some_and(|own| self.is_newest(own.highest() as usize));
        let want = Want { is_newest, ..want };
        let taken = match &given {
            Some(given) => member.take(want, given),
            None => member.pick(want, 1, |_| true, |_| Ok::<bool, JoinError>(true)),
        };
        let taken = match taken {
            Err(JoinError::NoAnswer(_)) => own.and_then(|own| member.resume_unseen(want, &own)),
            taken => taken.ok(),
        };
        self.notes = member.notes().clone();
        if let Some(taken) = taken {
            self.daemon = self.serve(member, &taken, wall);
        }
    }

    /// Makes the first local ceiling durable. Returns nothing if the state is an older copy.
    fn serve(&mut self, member: Member<Wire>, taken: &Taken, wall: UnixMicros) -> Option<Daemon> {
        let number = taken.worker_ids.highest() as usize;
        let next = NUMBERINGS[number].tick_at(wall).0 + 1;
        let start = self.ceilings[number].unwrap_or(next).max(tick(number, taken.floor));
        let start = match &self.marks[number] {
            Some((state, marked)) if *marked > start => (*state == self.state).then_some(*marked)?,
            _ => start,
        };
        self.store(number, start);
        let granted = tick(number, taken.covered);
        let unsure = member.may_lose_writes().then_some(granted);
        Some(Daemon { member, number, cursor: start, granted, unsure, newest: granted, generation: 0 })
    }

    fn raise(&mut self, wall: UnixMicros) {
        let Some(daemon) = &mut self.daemon else { return };
        let ceiling = daemon.next(wall);
        let bounds = [Bound { source: 0, id_bound: bound(daemon.number, ceiling) }];
        let raised = daemon.member.raise(&bounds, daemon.generation);
        if raised == Raised::Done {
            daemon.acknowledge(ceiling);
        }
        self.take(&raised);
    }

    fn look(&mut self) {
        let Some(daemon) = &mut self.daemon else { return };
        let looked = daemon.member.look();
        self.take(&looked);
    }

    /// Ends the daemon if it has lost its number.
    fn take(&mut self, raised: &Raised) {
        let Some(daemon) = &self.daemon else { return };
        self.notes = daemon.member.notes().clone();
        if matches!(raised, Raised::Lost(_)) {
            self.daemon = None;
        }
    }

    /// Stops the daemon cleanly.
    fn stop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        self.store(daemon.number, daemon.cursor);
        let _ = daemon.member.release(&[Bound { source: 0, id_bound: bound(daemon.number, daemon.cursor) }]);
        self.notes = daemon.member.notes().clone();
    }
}

/// Counts a fault of the event that is played.
fn lose(fault: Fault) {
    wire::with_server(|server| server.left.take(fault));
}

/// Returns the bound of all IDs before a tick.
fn bound(number: usize, tick: u64) -> u64 {
    NUMBERINGS[number].id_bound(NUMBERINGS[number].first_of(Tick(tick)))
}

/// Returns the tick of a bound.
pub(super) fn tick(number: usize, bound: u64) -> u64 {
    NUMBERINGS[number].tick_of(NUMBERINGS[number].position_from(bound)).0
}

/// Returns the lowest tick at which the next holder of a number starts, at a coordinator that may lose writes.
fn start_above(keys: &Keys, number: usize) -> u64 {
    let stored = keys.get(&Paths::of(FLEET).number(0, number as u64));
    let Some(key) = stored.and_then(|stored| NumberKey::parse(&stored.text).ok()) else { return 0 };
    tick(number, key.id_bound) + rules::margin(true, &key, HORIZON).as_secs()
}
