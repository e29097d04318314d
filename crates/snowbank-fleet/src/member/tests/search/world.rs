//! The events of the search.

use std::fmt;
use std::sync::Arc;

use super::machine::{
    Clock, Daemon, FLEET, HELD_WALLS, Ids, MACHINES, Machine, NUMBERS, SKEW, SKEWED_WALLS, Space, WALLS,
    limits,
};
use super::operator::{self, Meanwhile};
use super::wire::{self, BACKUPS_MAX, Keys, Server};
use crate::{Begins, Marker, Notes, NumberKey, Paths};
use snowbank_id::layout::{Position, Tick, UnixMicros};
use snowbank_state::Fate;

/// The number of IDs in a tick.
const IDS: usize = 4;

/// A fleet at one moment.
#[derive(Clone)]
pub(super) struct World {
    pub(super) server: Server,
    pub(super) machines: [Arc<Machine>; MACHINES],
    /// For each ID of a tick, the ticks in which it was handed out, as bits.
    pub(super) used: [u128; IDS],
    pub(super) clocks: AllClocks,
    /// The latest time that a clock has shown.
    pub(super) time: UnixMicros,
    pub(super) boots: u64,
    /// True if an operator may free numbers whose daemons run.
    frees: bool,
    past: Option<Arc<Past>>,
}

/// The clocks of the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllClocks {
    /// Each clock may show any time at any moment.
    Differ,
    /// No clock shows a time that is earlier than a time which any clock has shown before.
    Agree,
    /// The clocks differ by up to `SKEW`.
    AreSkewed,
    /// The third machine's clock is slow by [`LAG`](super::machine::LAG) until it is set right. Then its
    /// daemons hold the step for a while. The others agree.
    OneIsSetRight,
}

/// The events that led to a state, the last first.
struct Past {
    event: Event,
    script: Vec<u8>,
    before: Option<Arc<Past>>,
}

/// Something that happens. After a raise, a daemon hands out all IDs that it was granted. After a
/// start, it hands out all of them, or only the IDs of one tick. The more IDs are handed out, the
/// more IDs can be repeated. A `usize` is the index of a machine, unless the event says otherwise.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A daemon starts, and hands out IDs at once.
    Start(usize, UnixMicros, Amount),
    /// A daemon hands out all IDs that it was granted.
    Use(usize),
    /// A daemon raises its bound, and hands out all IDs that it was granted.
    Raise(usize, UnixMicros),
    Check(usize, UnixMicros),
    /// The pause of a start ends, and the daemon hands out IDs.
    Settle(usize, Amount),
    /// The pause of a start ends, but the start takes longer.
    SettleLate(usize),
    /// A start that took longer ends, and the daemon hands out all IDs that it was granted.
    Begin(usize),
    /// A start is stopped cleanly, in its pause or after it.
    StopStart(usize),
    Kill(usize),
    /// A start writes its keys, and ends before it makes a local ceiling durable.
    StartAndEnd(usize, UnixMicros),
    Stop(usize),
    Boot(usize),
    /// A machine's slow clock is set right, or its daemon believes that step.
    SetClock(usize),
    /// The state of the first machine replaces the state of the second machine.
    Copy(usize, usize),
    /// As `Copy`, but the second machine is a container on the first machine, with its own locks.
    CopyBeside(usize, usize),
    /// A memory snapshot of the first machine is resumed on both.
    Snapshot(usize, usize),
    /// As `Snapshot`, but the kernels do not report that the machines were resumed. The clocks of
    /// both machines jump, and both daemons notice the jump.
    Jump(usize, usize),
    /// The late write with this index is done.
    Late(usize),
    LoseData,
    /// An operator prepares the fleet again, after the coordinator has lost its data. The floor is
    /// above all IDs that were handed out. No daemon runs.
    Prepare,
    /// An operator changes the fleet to the other ID space.
    Add(Space, Option<Meanwhile>),
    /// An operator frees this number, whose daemon may run.
    Free(Space, usize),
    /// The coordinator is restored to the backup with this index.
    GoBack(usize),
}

#[derive(Clone, Copy, Debug)]
enum Amount {
    One,
    All,
}

impl World {
    /// Returns a prepared fleet in which this many faults may still happen. The coordinator may be
    /// restored to an older state only if the clocks differ by at most `SKEW`. Only then is the
    /// raised floor above all grants.
    pub(super) fn new(faults: u8, clocks: AllClocks) -> World {
        let text = Marker::new("1f", vec![Space::First.text().to_owned()], limits()).text();
        let keys = Arc::new(Keys::from([(Paths::of(FLEET).marker(), text)]));
        let server = Server {
            keys,
            before: None,
            late: Vec::new(),
            backups: Vec::new(),
            lost_writes: false,
            identities: 0,
            faults_left: faults,
            may_go_back: clocks != AllClocks::Differ,
        };
        let machines = [0, 1, 2].map(|index| {
            Arc::new(Machine {
                space: Space::First,
                given: (index < 2).then_some(Ids::Zero),
                state: format!("state-{index}"),
                notes: Notes::default(),
                noted_in: index as u64,
                ceilings: [None; NUMBERS],
                marks: [const { None }; NUMBERS],
                boot: index as u64,
                wall_minus_boot_us: 0,
                clock: if clocks == AllClocks::OneIsSetRight && index == 2 {
                    Clock::Slow
                } else {
                    Clock::Right
                },
                starting: None,
                daemon: None,
                has_lost: false,
                is_release_stale: false,
            })
        });
        let used = [0; IDS];
        let time = if clocks == AllClocks::OneIsSetRight { HELD_WALLS[0] } else { WALLS[0] };
        let boots = MACHINES as u64;
        World { server, machines, used, clocks, time, boots, frees: false, past: None }
    }

    /// Returns the state after these events, if no call fails.
    fn played(self, events: &[Event]) -> World {
        events.iter().fold(self, |world, &event| world.after(event, &[]).0)
    }

    /// Starts a daemon on the first machine. The daemon hands out all IDs that it was granted.
    pub(super) fn with_a_daemon(self) -> World {
        let early = self.walls()[0];
        self.played(&[Event::Start(0, early, Amount::All), Event::Settle(0, Amount::All)])
    }

    /// Starts daemons on the first machine and on the third, whose slow clock is then set right.
    pub(super) fn with_a_held_step(self) -> World {
        let early = self.walls()[0];
        let events = [Event::Start(2, early, Amount::One), Event::Settle(2, Amount::All), Event::SetClock(2)];
        let world = self.with_a_daemon().played(&events);
        let runs = |at: usize| world.machines[at].daemon.is_some();
        assert!(runs(0) && runs(2), "both daemons must have started:{world}");
        world
    }

    /// Stops the first machine's daemon cleanly. The second machine's daemon takes the number, and has
    /// handed out the IDs of a tick.
    pub(super) fn with_a_number_that_changed_hands(self) -> World {
        let late = self.walls()[self.walls().len() - 1];
        let events = [Event::Stop(0), Event::Start(1, late, Amount::One), Event::Settle(1, Amount::One)];
        self.with_a_daemon().played(&events)
    }

    /// Starts a daemon that raises its bound, and lets an operator free numbers whose daemons may
    /// run.
    pub(super) fn with_releases(self) -> World {
        let late = self.walls()[self.walls().len() - 1];
        World { frees: true, ..self }.with_a_daemon().played(&[Event::Raise(0, late)])
    }

    /// Gives both worker IDs to each of the first two machines. The rest is as in
    /// [`World::with_releases`].
    pub(super) fn with_two_worker_ids(mut self) -> World {
        for at in 0..2 {
            self.machine(at).given = Some(Ids::Both);
        }
        self.with_releases()
    }

    /// Gives both worker IDs to the third machine, and lets an operator free one of them. The first
    /// machine's daemon has taken the freed worker ID, and has handed out the IDs of a tick. The
    /// third machine's daemon has not noticed its loss.
    pub(super) fn with_one_of_two_worker_ids_lost(mut self, lost: Ids) -> World {
        for (at, given) in [lost, lost, Ids::Both].into_iter().enumerate() {
            self.machine(at).given = Some(given);
        }
        self.frees = true;
        let walls = self.walls();
        let events = [
            Event::Start(2, walls[0], Amount::One),
            Event::Settle(2, Amount::All),
            Event::Free(Space::First, lost.each()[0]),
            Event::Start(0, walls[walls.len() / 2], Amount::One),
            Event::Settle(0, Amount::One),
        ];
        let world = self.played(&events);
        let runs = |at: usize| world.machines[at].daemon.is_some();
        assert!(runs(0) && runs(2), "both daemons must have started:{world}");
        world
    }

    /// Configures the third machine for another ID space, and restarts a daemon on the first
    /// machine cleanly. An operator may also free numbers.
    pub(super) fn with_two_spaces(mut self) -> World {
        self.machine(2).space = Space::Second;
        self.frees = true;
        self.with_a_daemon().played(&[Event::Stop(0), Event::Start(0, WALLS[0], Amount::All)])
    }

    /// Plays a restore that the third machine's daemon notices: it raises the floor far ahead.
    /// After that, the second machine's daemon takes a released number at that floor, and has
    /// handed out nothing yet. The third machine's daemon has started again.
    pub(super) fn with_a_start_at_a_far_floor(self) -> World {
        let early = self.walls()[0];
        let late = self.walls()[self.walls().len() - 1];
        let events = [
            Event::Start(0, early, Amount::One),
            Event::Settle(0, Amount::All),
            Event::Start(2, early, Amount::One),
            Event::Settle(2, Amount::All),
            Event::Stop(0),
            Event::Raise(2, late),
            Event::GoBack(BACKUPS_MAX - 1),
            Event::Check(2, late),
            Event::Start(1, late, Amount::One),
            Event::Settle(1, Amount::All),
            Event::Start(2, late, Amount::One),
        ];
        let world = self.played(&events);
        let runs = |at: usize| world.machines[at].daemon.is_some();
        assert!(runs(1) && runs(2), "both daemons must have started:{world}");
        world
    }

    /// Returns the times that clocks may show now.
    fn walls(&self) -> Vec<UnixMicros> {
        let max_ahead = SKEW.as_micros() as i64;
        match self.clocks {
            AllClocks::Differ => WALLS.to_vec(),
            AllClocks::Agree => WALLS.into_iter().filter(|wall| *wall >= self.time).collect(),
            AllClocks::OneIsSetRight => HELD_WALLS.into_iter().filter(|wall| *wall >= self.time).collect(),
            AllClocks::AreSkewed => {
                SKEWED_WALLS.into_iter().filter(|wall| wall.0 + max_ahead >= self.time.0).collect()
            }
        }
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
        let has_faults = self.server.faults_left > 0;
        let mut events = Vec::new();
        for (index, machine) in self.machines.iter().enumerate() {
            events.extend((machine.clock != Clock::Right).then_some(Event::SetClock(index)));
            if machine.starting.is_some() && has_faults {
                events.push(Event::Kill(index));
            }
            if machine.starting.is_some() {
                events.push(Event::StopStart(index));
            }
            match (&machine.starting, &machine.daemon) {
                (None, None) => {
                    for wall in self.walls() {
                        let start = |amount| Event::Start(index, wall, amount);
                        events.extend([Amount::One, Amount::All].map(start));
                        events.extend(has_faults.then_some(Event::StartAndEnd(index, wall)));
                    }
                }
                (Some(starting), _) if starting.is_settled => events.push(Event::Begin(index)),
                // The pause lasts until a daemon that lost a write has noticed the loss.
                (Some(_), _) if self.server.lost_writes => {}
                (Some(_), _) => {
                    events.push(Event::Settle(index, Amount::All));
                    // `SettleLate` and `Begin` differ from `Settle` only if a restore comes between
                    // them.
                    events.extend(self.server.can_go_back().then_some(Event::SettleLate(index)));
                }
                (None, Some(daemon)) => events.extend(self.events_of(daemon, index)),
            }
            if !has_faults {
                continue;
            }
            events.push(Event::Boot(index));
            for to in (0..MACHINES).filter(|&to| to != index) {
                if self.machines[to].space != machine.space || !self.machines[to].is_idle() {
                    continue;
                }
                events.extend([Event::Copy(index, to), Event::CopyBeside(index, to)]);
                events.push(Event::Snapshot(index, to));
                if !machine.is_idle() {
                    events.push(Event::Jump(index, to));
                }
            }
        }
        events.extend((0..self.server.late.len()).map(Event::Late));
        let is_prepared = !self.server.keys.is_empty();
        if has_faults && is_prepared {
            events.push(Event::LoseData);
        }
        if !is_prepared && self.machines.iter().all(|machine| machine.is_idle()) {
            events.push(Event::Prepare);
        }
        // The raised floor is above all grants only if no clock is that slow.
        let is_one_slow = self.machines.iter().any(|machine| machine.clock == Clock::Slow);
        if self.server.can_go_back() && !is_one_slow {
            events.extend((0..self.server.backups.len()).map(Event::GoBack));
        }
        if self.frees {
            events.extend(self.events_of_an_operator());
        }
        events
    }

    /// Returns the operator's commands that change something. A machine may do a step between the
    /// calls of a command.
    fn events_of_an_operator(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let Some(marker) = marker(&self.server.keys) else { return events };
        for space in Space::ALL {
            if self.machines.iter().all(|machine| machine.space != space) {
                continue;
            }
            if marker.place_of(space.text()).is_none() {
                events.push(Event::Add(space, None));
                // While no daemon has noticed a loss, no pause ends.
                let goes_on = |&at: &usize| self.machines[at].starting.is_none() || !self.server.lost_writes;
                for machine in (0..MACHINES).filter(goes_on) {
                    let before =
                        operator::WRITES.map(|call| Event::Add(space, Some(Meanwhile { call, machine })));
                    events.extend(before);
                }
            }
            let is_held =
                |&number: &usize| key(&self.server.keys, space, number).is_some_and(|key| !key.released);
            events.extend((0..NUMBERS).filter(is_held).map(|number| Event::Free(space, number)));
        }
        events
    }

    /// Returns the events of a daemon. Once the daemon has written its keys, a check could only end
    /// it, which a raise does too. So there are no later checks, unless the coordinator has lost
    /// writes.
    fn events_of(&self, daemon: &Daemon, at: usize) -> Vec<Event> {
        let mut events = vec![Event::Stop(at)];
        let is_unclaimed = daemon.member.sources.iter().any(|held| !held.is_claimed);
        for wall in self.walls() {
            if is_unclaimed || self.server.lost_writes {
                events.push(Event::Check(at, wall));
            }
            // If the bound has passed, the raise includes a pause, which must not end now.
            let has_passed = daemon.member.passed(0, self.machines[at].clocks(wall)).is_some();
            if self.machines[at].next(daemon, wall) > daemon.granted
                && !(has_passed && self.server.lost_writes)
            {
                events.push(Event::Raise(at, wall));
            }
        }
        if daemon.cursor < daemon.granted {
            events.push(Event::Use(at));
        }
        events.extend((self.server.faults_left > 0).then_some(Event::Kill(at)));
        events
    }

    /// Returns the state after an event, and the choices that were made for its calls.
    fn after(&self, event: Event, script: &[u8]) -> (World, Vec<(u8, u8)>) {
        let mut world = self.clone();
        let past = Past { event, script: script.to_vec(), before: world.past.take() };
        world.past = Some(Arc::new(past));
        let ((), server, made) = wire::play(self.server.clone(), script, || world.happen(event));
        world.server = server;
        world.server.forget();
        (world, made)
    }

    /// Returns the earliest time that a clock may show now.
    fn slowest_clock(&self) -> UnixMicros {
        match self.clocks {
            AllClocks::Differ | AllClocks::Agree | AllClocks::OneIsSetRight => self.time,
            AllClocks::AreSkewed => UnixMicros(self.time.0 - SKEW.as_micros() as i64),
        }
    }

    /// Sets the clock of a start to a later time, because the start may have read it long ago.
    fn run_clock_of_start(&mut self, at: usize) {
        let now = self.slowest_clock();
        if let Some(starting) = &mut self.machine(at).starting {
            starting.wall = starting.wall.max(now);
        }
    }

    /// Sets the clocks that an event reads to a later time, if time has passed.
    fn run_clocks(&mut self, event: &Event) {
        match *event {
            Event::Start(_, wall, _)
            | Event::StartAndEnd(_, wall)
            | Event::Raise(_, wall)
            | Event::Check(_, wall)
                if self.clocks != AllClocks::Differ =>
            {
                self.time = wall.max(self.time);
            }
            Event::Settle(at, _) | Event::SettleLate(at) | Event::Begin(at) | Event::StopStart(at) => {
                self.run_clock_of_start(at)
            }
            _ => {}
        }
    }

    fn happen(&mut self, event: Event) {
        self.run_clocks(&event);
        match event {
            Event::Start(at, wall, amount) => {
                self.machine(at).start(wall);
                self.use_up(at, amount);
            }
            Event::Use(at) => self.use_up(at, Amount::All),
            Event::Raise(at, wall) => {
                self.machine(at).raise(wall);
                self.use_up(at, Amount::All);
            }
            Event::Check(at, wall) => self.machine(at).check(wall),
            Event::Settle(at, amount) => {
                self.machine(at).settle();
                self.machine(at).begin(false);
                self.use_up(at, amount);
            }
            Event::SettleLate(at) => self.machine(at).settle(),
            Event::Begin(at) => {
                self.machine(at).begin(true);
                self.use_up(at, Amount::All);
            }
            Event::StopStart(at) => self.machine(at).stop_start(),
            Event::Stop(at) => {
                let wall = self.slowest_clock();
                self.machine(at).stop(wall);
            }
            Event::Kill(at) => self.machine(at).kill(),
            Event::StartAndEnd(at, wall) => self.machine(at).start_and_end(wall),
            Event::Boot(at) => self.boot(at),
            Event::SetClock(at) => self.machine(at).set_clock(),
            Event::Copy(from, to) => self.copy(from, to, false),
            Event::CopyBeside(from, to) => self.copy(from, to, true),
            Event::Snapshot(from, to) => self.resume_twice(from, to),
            Event::Jump(from, to) => self.jump(from, to),
            Event::Late(at) => wire::with_server(|server| {
                let swaps = server.late.remove(at);
                server.apply(&swaps);
            }),
            Event::LoseData => wire::with_server(|server| {
                server.faults_left -= 1;
                server.keys = Arc::default();
                server.before = None;
                server.backups.clear();
            }),
            Event::Prepare => self.prepare(),
            Event::Add(space, meanwhile) => self.init(space, None, meanwhile),
            Event::Free(space, number) => self.free(space, number),
            Event::GoBack(at) => self.go_back(at),
        }
    }

    /// Prepares the fleet again. The operator knows the highest tick that was handed out, and
    /// removes the file `fleet` from each state.
    fn prepare(&mut self) {
        for at in 0..self.machines.len() {
            self.machine(at).notes = Notes::default();
        }
        let used = self.used.iter().map(|used| u128::BITS - used.leading_zeros()).max().unwrap_or(0);
        let floor = Space::First.numbering(Ids::Zero).start_of(Tick(u64::from(used)));
        wire::with_server(|server| {
            server.late.clear();
            server.lost_writes = false;
        });
        self.init(Space::First, Some(Begins::Above(floor)), None);
        wire::with_server(|server| server.backups.clear());
    }

    /// Does the next step of a machine: it starts, ends the pause of its start, or stops cleanly.
    pub(super) fn go_on(&mut self, at: usize) {
        let Machine { starting, daemon, .. } = &*self.machines[at];
        let event = match (starting, daemon) {
            (Some(starting), _) if starting.is_settled => Event::Begin(at),
            (Some(_), _) => Event::Settle(at, Amount::All),
            (None, Some(_)) => Event::Stop(at),
            (None, None) => Event::Start(at, self.time, Amount::All),
        };
        self.happen(event);
    }

    fn go_back(&mut self, at: usize) {
        let keys = wire::with_server(|server| {
            server.faults_left -= 1;
            server.late.clear();
            server.before = None;
            server.keys = Arc::clone(&server.backups[at]);
            server.backups.truncate(at);
            Arc::clone(&server.keys)
        });
        for at in 0..self.machines.len() {
            let machine = &self.machines[at];
            let has_lost = (0..NUMBERS).any(|number| {
                let restored = key(&keys, machine.space, number).map_or(0, |key| key.id_bound);
                machine.acknowledged(number) > restored
            });
            if has_lost && !machine.is_late() {
                self.machine(at).has_lost = true;
                (0..MACHINES).for_each(|at| self.machine(at).is_release_stale = true);
                wire::with_server(|server| server.lost_writes = true);
            }
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
        machine.kill();
    }

    /// Makes a local ceiling durable and marks it, and hands out the IDs of the ticks below it.
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
        let ids = daemon.ids;
        let space = machine.space;
        machine.store(ids, to, Fate::Granted);
        let ticks = ((1_u128 << to) - 1) & !((1_u128 << from) - 1);
        let numbering = space.numbering(ids);
        for at in 0..numbering.ids_per_tick() {
            let id = numbering.id_at(Position(at)) as usize;
            assert!(
                self.used[id] & ticks == 0,
                "an ID of ticks {from}..{to} twice, {space:?}, {ids:?}:{self}"
            );
            self.used[id] |= ticks;
        }
    }

    fn copy(&mut self, from: usize, to: usize, is_beside: bool) {
        wire::count_fault();
        let original = Arc::clone(&self.machines[from]);
        let copy = self.machine(to);
        copy.state.clone_from(&original.state);
        (copy.notes, copy.noted_in) = (original.notes.clone(), original.noted_in);
        copy.ceilings = original.ceilings;
        copy.is_release_stale = original.is_release_stale;
        if is_beside {
            (copy.boot, copy.marks) = (original.boot, [const { None }; NUMBERS]);
        }
    }

    /// Resumes a memory snapshot on both machines. Both kernels report the same new boot number.
    fn resume_twice(&mut self, from: usize, to: usize) {
        wire::count_fault();
        self.boots += 1;
        let boot = self.boots;
        let machine = self.machine(from);
        machine.boot = boot;
        machine.revoke();
        self.machines[to] = Arc::clone(&self.machines[from]);
    }

    /// Resumes a snapshot on both machines. Both keepers notice that the clocks jumped, take the
    /// grants away, and store the new difference in the state.
    fn jump(&mut self, from: usize, to: usize) {
        wire::count_fault();
        let machine = self.machine(from);
        machine.wall_minus_boot_us += 30_000_000;
        machine.revoke();
        self.machines[to] = Arc::clone(&self.machines[from]);
    }
}

fn marker(keys: &Keys) -> Option<Marker> {
    Marker::parse(keys.get(&Paths::of(FLEET).marker())?).ok()
}

fn key(keys: &Keys, space: Space, number: usize) -> Option<NumberKey> {
    let place = marker(keys)?.index_of(space.text())?;
    NumberKey::parse(keys.get(&Paths::of(FLEET).number(place, number as u64))?).ok()
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
