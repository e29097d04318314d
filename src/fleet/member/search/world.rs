//! All that can happen to the machines of the search.

use std::fmt;
use std::sync::Arc;

use super::machine::{Daemon, FLEET, GIVEN, Machine, NUMBERS, SPACE, WALLS, lose};
use super::wire::{self, Fault, Keys, Left, Server};
use crate::fleet::{Marker, Notes, Paths, Swap};
use snowbank_client::layout::UnixMicros;

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

/// Something that happens. A raise hands out all IDs that it may, and a start those of one tick or all. Handing out fewer
/// is not tried, because an ID that is not handed out is never repeated. The numbers in events are those of machines.
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
    LoseData,
}

#[derive(Clone, Copy, Debug)]
enum Amount {
    One,
    All,
}

impl World {
    /// A fleet that is prepared, and this many faults ahead: at most two of each kind.
    pub(super) fn new(faults: u8) -> World {
        let left = Left::new(2, faults);
        let keys = Arc::new(Keys::new());
        let (before, late) = (None, Vec::new());
        let mut server = Server { keys, before, late, revision: 0, drawn: 0, left };
        let text = Marker::new("1f", vec![SPACE.clone()]).text();
        server.apply(&[Swap { key: Paths::of(FLEET).marker(), expected: None, text }]);
        server.before = None;
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
            Event::LoseData => wire::with_server(|server| {
                server.left.take(Fault::LoseData);
                server.keys = Arc::default();
                server.before = None;
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

    /// The kernels of both copies report the restore, each with the same new boot number.
    fn resume_twice(&mut self, from: usize, to: usize) {
        lose(Fault::Snapshot);
        self.boots += 1;
        let boot = self.boots;
        let machine = self.machine(from);
        machine.boot = boot;
        if let Some(daemon) = &mut machine.daemon {
            daemon.generation += 1;
            daemon.granted = 0;
        }
        self.machines[to] = Arc::clone(&self.machines[from]);
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
    /// A look after the first can only end a daemon, and a raise would end it as well.
    fn events(&self, at: usize, left: Left) -> Vec<Event> {
        let mut events = vec![Event::Stop(at)];
        let writes = self.member.sources.iter().any(|held| !held.is_claimed);
        events.extend(writes.then_some(Event::Look(at)));
        let rises = |wall: &UnixMicros| self.next(*wall) > self.granted;
        events.extend(WALLS.into_iter().filter(rises).map(|wall| Event::Raise(at, wall)));
        if self.cursor < self.granted {
            events.push(Event::Use(at));
        }
        events.extend(left.has(Fault::Kill).then_some(Event::Kill(at)));
        events
    }
}
