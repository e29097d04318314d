//! A machine of the search: its state, its marks, and its daemon.

use std::sync::LazyLock;
use std::time::Duration;

use super::wire::{self, Wire};
use crate::member::tests::{pick_some, raised, settle};
use crate::rules::{self, Proof};
use crate::{Bound, Clocks, FleetError, FleetLimits, Member, Names, Notes, Taken, Want};
use snowbank_core::clock::{BootMicros, Now};
use snowbank_id::layout::{Layout, Tick, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;
use snowbank_state::{Fate, Mark};

pub(super) const NUMBERS: usize = 2;
pub(super) const FLEET: &str = "f";
pub(super) const HORIZON: Duration = Duration::from_secs(16);
pub(super) const MAX_AHEAD: Duration = Duration::from_secs(4);
/// The most by which clocks differ.
pub(super) const SKEW: Duration = Duration::from_secs(2);

/// Returns the fleet's limits.
pub(super) fn limits() -> FleetLimits {
    FleetLimits::new(HORIZON, MAX_AHEAD)
}
/// The instants that clocks can show. At the second instant, ceilings that were written at the
/// first instant have passed.
pub(super) const WALLS: [UnixMicros; 2] = [UnixMicros(0), UnixMicros(25_000_000)];
/// The instants that clocks can show if they differ by up to `SKEW`. A ceiling that the first
/// machine wrote at the first instant is near for no daemon at the second instant, for some at the
/// third, and for all at the fourth.
pub(super) const SKEWED_WALLS: [UnixMicros; 4] =
    [UnixMicros(0), UnixMicros(12_000_000), UnixMicros(14_000_000), UnixMicros(16_000_000)];
/// How far the third machine's clock was behind until it was set right, in searches with a held step.
pub(super) const LAG: Duration = Duration::from_secs(10);
/// The instants that clocks can show in these searches.
pub(super) const HELD_WALLS: [UnixMicros; 2] = [UnixMicros(20_000_000), UnixMicros(45_000_000)];
pub(super) const MACHINES: usize = 3;

/// The worker IDs of a daemon, which are also their numbers in its ID space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ids {
    Zero,
    One,
    Both,
}

impl Ids {
    const ALL: [Ids; 3] = [Ids::Zero, Ids::One, Ids::Both];

    fn of(set: &WorkerSet) -> Ids {
        Ids::ALL.into_iter().find(|ids| ids.set() == *set).expect("the space has two numbers")
    }

    pub(super) fn each(self) -> &'static [usize] {
        match self {
            Ids::Zero => &[0],
            Ids::One => &[1],
            Ids::Both => &[0, 1],
        }
    }

    fn set(self) -> WorkerSet {
        WorkerSet::from_list(self.each().iter().map(|&number| number as u64)).unwrap()
    }
}

/// An ID space. In every tick, each number of one space shares an ID with each number of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    First,
    Second,
}

/// An ID space, with the source of its daemons.
struct Known {
    source: &'static str,
    layout: Layout,
    text: String,
    numberings: [Numbering; Ids::ALL.len()],
}

/// The two ID spaces. A tick lasts a second, and tick N begins at second N.
static SPACES: LazyLock<[Known; 2]> = LazyLock::new(|| {
    [("orders", "worker:1,sequence:1"), ("rows", "sequence:1,worker:1")].map(|(source, fields)| {
        let layout = Layout::resolve(&format!("time:33,{fields};tick=1s")).unwrap();
        let text = layout.space().to_string();
        let numberings = Ids::ALL.map(|ids| Numbering::new(layout.clone(), ids.set()).unwrap());
        Known { source, layout, text, numberings }
    })
});

impl Space {
    pub(super) const ALL: [Space; 2] = [Space::First, Space::Second];

    fn known(self) -> &'static Known {
        &SPACES[self as usize]
    }

    pub(super) fn source(self) -> &'static str {
        self.known().source
    }

    pub(super) fn layout(self) -> &'static Layout {
        &self.known().layout
    }

    pub(super) fn text(self) -> &'static str {
        &self.known().text
    }

    pub(super) fn numbering(self, ids: Ids) -> &'static Numbering {
        &self.known().numberings[ids as usize]
    }

    /// Returns the bound of all IDs before a tick.
    pub(super) fn bound(self, ids: Ids, tick: u64) -> u64 {
        let numbering = self.numbering(ids);
        numbering.id_bound(numbering.first_of(Tick(tick)))
    }

    /// Returns the tick of a bound.
    pub(super) fn tick(self, ids: Ids, bound: u64) -> u64 {
        let numbering = self.numbering(ids);
        numbering.tick_of(numbering.position_from(bound)).0
    }
}

/// A machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Right,
    /// It is behind by [`LAG`].
    Slow,
    /// It was slow and has been set right, but its daemons do not believe the step yet.
    Held,
}

/// A machine, with its state, its marks in this boot, and its daemon.
#[derive(Clone)]
pub(super) struct Machine {
    /// The ID space of its configuration.
    pub(super) space: Space,
    /// The worker IDs of its configuration. `None`: the daemon picks a worker ID.
    pub(super) given: Option<Ids>,
    /// The identity of the state.
    pub(super) state: String,
    pub(super) notes: Notes,
    /// The boot in which the notes were written.
    pub(super) noted_in: u64,
    /// The local ceilings, as ticks, by number.
    pub(super) ceilings: [Option<u64>; NUMBERS],
    /// For each number: the state that marked it, the marked tick, and the mark's fate.
    pub(super) marks: [Option<(String, u64, Fate)>; NUMBERS],
    pub(super) boot: u64,
    /// The difference of its clocks.
    pub(super) wall_minus_boot_us: i64,
    pub(super) clock: Clock,
    /// The machine's daemon while it starts. The daemon hands out nothing until the start is over.
    pub(super) starting: Option<Starting>,
    pub(super) daemon: Option<Daemon>,
    /// True after a restore lost a bound that was acknowledged to this machine, until its daemon
    /// ends because of a loss.
    pub(super) has_lost: bool,
    /// True from a restore until the machine's next write of a key. A restore may have lost what
    /// another daemon wrote after this machine had released its number.
    pub(super) is_release_stale: bool,
}

/// A daemon that has taken a number which it did not hold.
#[derive(Clone)]
pub(super) struct Starting {
    pub(super) member: Member<Wire>,
    pub(super) taken: Taken,
    pub(super) wall: UnixMicros,
    /// True if the machine was restored during the start: its keeper takes the first grants away at
    /// once.
    pub(super) is_revoked: bool,
    /// True once the pause is over. The start may still wait for connections to end, or for
    /// storage.
    pub(super) is_settled: bool,
}

/// A daemon that runs.
#[derive(Clone)]
pub(super) struct Daemon {
    pub(super) member: Member<Wire>,
    pub(super) ids: Ids,
    /// The first tick whose IDs the daemon has not handed out.
    pub(super) cursor: u64,
    /// The granted ceiling, as a tick.
    pub(super) granted: u64,
    /// The highest ceiling that was acknowledged, as a tick.
    pub(super) newest: u64,
    pub(super) generation: u64,
}

impl Daemon {
    /// Takes the grants away, as the keeper does when the machine was restored.
    pub(super) fn revoke(&mut self) {
        self.generation += 1;
        self.granted = 0;
    }

    /// Uses a ceiling that was acknowledged, as the keeper does.
    pub(super) fn acknowledge(&mut self, ceiling: u64) {
        (self.newest, self.granted) = (ceiling, ceiling);
    }
}

impl Machine {
    /// Makes a local ceiling durable, and marks it.
    pub(super) fn store(&mut self, ids: Ids, ceiling: u64, fate: Fate) {
        for &number in ids.each() {
            self.ceilings[number] = Some(ceiling);
            self.marks[number] = Some((self.state.clone(), ceiling, fate));
        }
    }

    /// Reads the notes, as a start does.
    pub(super) fn read_notes(&mut self) -> Notes {
        if self.noted_in != self.boot {
            self.notes.forget();
            self.noted_in = self.boot;
        }
        self.notes.clone()
    }

    pub(super) fn proof(&self, ids: Ids) -> Proof {
        let mut marks = Vec::new();
        let mut stored = u64::MAX;
        for &number in ids.each() {
            let Some(ceiling) = self.ceilings[number] else { return Proof::None };
            stored = stored.min(ceiling);
            if let Some((state, marked, fate)) = &self.marks[number] {
                marks.push(Mark { fate: *fate, ..Mark::granted(self.space.bound(ids, *marked), state) });
            }
        }
        rules::proof(&marks, ids.each().len(), &self.state, self.space.bound(ids, stored))
    }

    /// Returns the machine's clocks when a right clock shows this time.
    pub(super) fn clocks(&self, time: UnixMicros) -> Clocks {
        let behind = UnixMicros(time.0 - LAG.as_micros() as i64);
        let (wall, read) = match self.clock {
            Clock::Right => (time, time),
            Clock::Slow => (behind, behind),
            Clock::Held => (behind, time),
        };
        Clocks { wall, read, boot: BootMicros(0), wall_minus_boot_us: self.wall_minus_boot_us }
    }

    /// Sets a slow clock right, or lets the daemon believe the step. Keepers take the grants away when a
    /// clock jumps.
    pub(super) fn set_clock(&mut self) {
        if self.clock == Clock::Slow {
            self.wall_minus_boot_us += LAG.as_micros() as i64;
            self.revoke();
            self.clock = Clock::Held;
        } else {
            self.clock = Clock::Right;
        }
    }

    /// Starts a daemon, by the rules of `join_fleet`.
    pub(super) fn start(&mut self, wall: UnixMicros) {
        let before = (self.clone(), wire::with_server(|server| server.clone()));
        let notes = self.read_notes();
        let want = Want {
            index: 0,
            source: self.space.source(),
            layout: self.space.layout(),
            clocks: self.clocks(wall),
            proof: Proof::None,
        };
        let names = Names { fleet: FLEET, state: &self.state, holder: "holder" };
        let mut member = Member::new(Wire, names, limits(), notes, wire::new_identity);
        let given = self.given.map(Ids::set);
        let own = given.clone().or_else(|| member.own(want).filter(|own| own.len() == 1));
        let proof = own.as_ref().map_or(Proof::None, |own| self.proof(Ids::of(own)));
        let want = Want { proof, ..want };
        let resumed = own.as_ref().and_then(|own| member.resume_at_once(want, own));
        let taken = match (resumed, &given) {
            (Some(resumed), _) => Ok(resumed),
            (None, Some(given)) => member.take(want, given),
            (None, None) => pick_some(&mut member, want, 1, |_| true),
        };
        let taken = match taken {
            Err(FleetError::NoAnswer(_)) => own.and_then(|own| member.resume_unseen(want, &own)),
            taken => taken.ok(),
        };
        self.notes = member.notes().clone();
        match taken {
            Some(taken) if taken.is_new => {
                self.is_release_stale = false;
                self.starting = Some(Starting { member, taken, wall, is_revoked: false, is_settled: false })
            }
            // With a number that this state had released, a daemon starts without a pause. Another
            // daemon may have had the number since, and the coordinator may have lost that daemon's
            // writes. Such a start is not safe until that daemon has asked the coordinator, so the
            // search undoes it.
            Some(taken)
                if !taken.is_same_term
                    && self.is_release_stale
                    && wire::with_server(|server| server.lost_writes) =>
            {
                let (machine, keys) = before;
                *self = machine;
                wire::with_server(|server| *server = keys);
            }
            Some(taken) => self.daemon = Some(self.serve(member, &taken, wall)),
            None => {}
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.daemon.is_none() && self.starting.is_none()
    }

    /// Kills the daemon, or a start.
    pub(super) fn kill(&mut self) {
        wire::count_fault();
        (self.daemon, self.starting) = (None, None);
    }

    /// Starts a daemon that writes its keys, and ends before it makes a local ceiling durable.
    pub(super) fn start_and_end(&mut self, wall: UnixMicros) {
        let stored = (self.ceilings, self.marks.clone());
        // Counts the fault first, because the start's calls may use up the others.
        self.kill();
        self.start(wall);
        (self.ceilings, self.marks) = stored;
        (self.daemon, self.starting) = (None, None);
    }

    /// Ends the pause of a start.
    pub(super) fn settle(&mut self) {
        let Some(Starting { mut member, taken, wall, is_revoked, .. }) = self.starting.take() else { return };
        let mut taken = [Some(taken)];
        let settled = settle(&mut member, &mut taken, self.clocks(wall));
        self.notes = member.notes().clone();
        if let (Ok(()), [Some(taken)]) = (settled, taken) {
            self.starting = Some(Starting { member, taken, wall, is_revoked, is_settled: true });
        }
    }

    /// Ends a start: the daemon serves. If `is_late` is true, the start first checks its numbers
    /// again.
    pub(super) fn begin(&mut self, is_late: bool) {
        let Some(Starting { mut member, taken, wall, is_revoked, .. }) = self.starting.take() else { return };
        let checked = if is_late { member.check_taken(&[0], self.clocks(wall)) } else { Ok(()) };
        self.notes = member.notes().clone();
        if checked.is_ok() {
            self.daemon = Some(self.serve(member, &taken, wall));
        }
        if let Some(daemon) = self.daemon.as_mut().filter(|_| is_revoked) {
            daemon.revoke();
        }
    }

    /// Stops a start cleanly: it gives back what it took.
    pub(super) fn stop_start(&mut self) {
        let Some(Starting { mut member, taken, wall, .. }) = self.starting.take() else { return };
        let clocks = self.clocks(wall);
        let unused: Vec<Bound> = taken.unused(0).into_iter().collect();
        if !unused.is_empty() && member.confirm(&[0], clocks) == Ok(()) {
            for &number in Ids::of(&taken.worker_ids).each() {
                let own = self.marks[number].iter_mut().filter(|(state, ..)| *state == self.state);
                own.for_each(|(.., fate)| *fate = Fate::Returned);
            }
            let _ = member.give_back(&unused, &[], clocks, &|| true);
        }
        self.notes = member.notes().clone();
    }

    /// Returns whether the machine's start takes longer than its pause. Such a start asks nothing,
    /// and so notices nothing.
    pub(super) fn is_late(&self) -> bool {
        self.starting.as_ref().is_some_and(|starting| starting.is_settled)
    }

    /// Makes the first local ceiling durable. The start is above all marks. A real start may be
    /// refused because of a mark, as in [`StartAndEnd`](super::world::Event::StartAndEnd).
    pub(super) fn serve(&mut self, member: Member<Wire>, taken: &Taken, wall: UnixMicros) -> Daemon {
        let ids = Ids::of(&taken.worker_ids);
        let space = self.space;
        let next = space.numbering(ids).tick_at(self.clocks(wall).wall).0 + 1;
        let stored = ids.each().iter().filter_map(|&number| self.ceilings[number]).max();
        let marked = ids.each().iter().filter_map(|&number| self.marks[number].as_ref());
        let marked = marked.map(|(_, ceiling, _)| *ceiling).max().unwrap_or(0);
        let start = stored.unwrap_or(next).max(space.tick(ids, taken.floor)).max(marked);
        self.store(ids, start, Fate::Granted);
        let granted = space.tick(ids, taken.covered);
        Daemon { member, ids, cursor: start, granted, newest: granted, generation: 0 }
    }

    /// Returns the fleet's ceiling that the machine's daemon writes next.
    pub(super) fn next(&self, daemon: &Daemon, wall: UnixMicros) -> u64 {
        let now = Now { wall: self.clocks(wall).wall, boot: BootMicros(0), jumped: false };
        let numbering = self.space.numbering(daemon.ids);
        let id_time = numbering.start_of(Tick(daemon.cursor.saturating_sub(1)));
        let from = rules::counts_from(now, id_time, MAX_AHEAD);
        let ceiling = numbering.tick_of(rules::ceiling(numbering, from, HORIZON)).0;
        ceiling.max(daemon.newest)
    }

    pub(super) fn raise(&mut self, wall: UnixMicros) {
        let clocks = self.clocks(wall);
        let Some(ceiling) = self.daemon.as_ref().map(|daemon| self.next(daemon, wall)) else { return };
        let Some(daemon) = &mut self.daemon else { return };
        let bound = Bound { source: 0, id_bound: self.space.bound(daemon.ids, ceiling) };
        let raised = raised(&mut daemon.member, &[(bound, daemon.generation)], clocks);
        if raised == Ok(()) {
            daemon.acknowledge(ceiling);
        }
        self.end_if_lost(&raised);
    }

    pub(super) fn check(&mut self, wall: UnixMicros) {
        let clocks = self.clocks(wall);
        let Some(daemon) = &mut self.daemon else { return };
        let checked = daemon.member.check(clocks);
        self.end_if_lost(&checked);
    }

    /// Ends the daemon if it has lost its number.
    pub(super) fn end_if_lost(&mut self, ended: &Result<(), FleetError>) {
        let Some(daemon) = &self.daemon else { return };
        self.notes = daemon.member.notes().clone();
        if ended.as_ref().is_err_and(FleetError::is_loss) {
            self.daemon = None;
            // The daemon has noticed its loss. If it raised no floor, no daemon will raise one for
            // this loss, so no pause waits for that.
            let has_noticed = std::mem::take(&mut self.has_lost);
            wire::with_server(|server| server.lost_writes &= !has_noticed);
        }
    }

    /// Stops the daemon cleanly.
    pub(super) fn stop(&mut self, wall: UnixMicros) {
        let clocks = self.clocks(wall);
        let Some(mut daemon) = self.daemon.take() else { return };
        let confirmed = daemon.member.confirm(&[0], clocks);
        let fate = if confirmed == Ok(()) { Fate::Returned } else { Fate::Granted };
        self.store(daemon.ids, daemon.cursor, fate);
        if confirmed == Ok(()) {
            self.is_release_stale = false;
            let bounds = [Bound { source: 0, id_bound: self.space.bound(daemon.ids, daemon.cursor) }];
            let _ = daemon.member.give_back(&bounds, &[], clocks, &|| true);
        }
        self.notes = daemon.member.notes().clone();
    }

    /// Takes the grants away, including those of a daemon that is starting.
    pub(super) fn revoke(&mut self) {
        self.daemon.iter_mut().for_each(Daemon::revoke);
        self.starting.iter_mut().for_each(|starting| starting.is_revoked = true);
    }

    /// Returns the highest bound of a number that the coordinator had acknowledged to this machine
    /// or its daemon.
    pub(super) fn acknowledged(&self, number: usize) -> u64 {
        let number = number as u64;
        let note = self.notes.of(FLEET, self.space.source(), self.space.text());
        let noted = note.filter(|note| note.numbers.contains(&number)).map_or(0, |note| note.acknowledged);
        let mut held = self.daemon.iter().flat_map(|daemon| &daemon.member.sources[0].numbers);
        let held = held.find(|(held, _)| *held == number).map_or(0, |(_, holding)| holding.acknowledged());
        noted.max(held)
    }
}
