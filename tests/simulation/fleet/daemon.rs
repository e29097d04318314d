//! The life of a daemon in its fleet: start, ceilings, claims and its end.

use std::sync::Arc;
use std::time::Duration;

use snowbank_core::clock::{Now, Remembered, StepRule, Wall};
use snowbank_core::grant::{CeilingRule, Grant, Left};
use snowbank_core::keeper::{Durable, Keeper, ManagedSource, Outcome, Reach, Write};
use snowbank_core::source::{OnStepBack, Rules, SequenceStart, Source};
use snowbank_fleet::rules::Proof;
use snowbank_fleet::{Bound, Clocks, FleetError, FleetLimits, Member, Names, Pause, Taken, Want};
use snowbank_id::layout::{Position, Tick, UnixMicros, WorkerSet};

use super::machine::Machine;
use super::server::{Link, SlowDisk};
use super::world::World;
use super::{FLEET, SETTINGS, SOURCES, SourceLayout, Workers, clocks, new_identity};

/// A start tries to pick worker IDs at most this many times.
const TRIES_MAX: usize = 100;

pub(crate) struct Daemon {
    pub(crate) machine: usize,
    pub(crate) member: Member<Link>,
    /// The member's connection, and its disk.
    pub(crate) link: Link,
    pub(crate) disk: SlowDisk,
    pub(crate) keeper: Keeper,
    pub(crate) sources: Vec<Served>,
    pub(crate) wall: Arc<Wall>,
    /// The write to the coordinator that the daemon has not started yet.
    pub(crate) pending: Option<Write>,
    /// The write whose bounds the coordinator has, while it pauses.
    raising: Option<Raising>,
}

impl Daemon {
    /// Returns whether another copy of this daemon may have continued.
    pub(crate) fn is_copy(&self) -> bool {
        self.sources.iter().any(|served| served.is_copy)
    }

    /// Returns the earliest instant of the bounds that the coordinator acknowledged.
    pub(crate) fn until_us(&self) -> i64 {
        let until = |served: &Served| {
            let numbering = served.source.numbering();
            numbering.start_of(numbering.tick_of(served.fleet)).0
        };
        self.sources.iter().map(until).min().unwrap_or_default()
    }
}

/// A raise that pauses.
struct Raising {
    write: Write,
    pause: Pause,
    /// The time until the next step. `None` before the first step.
    due_in: Option<Duration>,
}

/// A start that pauses, because it has taken worker IDs that its state did not hold.
pub(crate) struct Starting {
    pub(crate) machine: usize,
    member: Member<Link>,
    disk: SlowDisk,
    layouts: Vec<SourceLayout>,
    taken: Vec<Option<Taken>>,
    pause: Pause,
    /// The time until the next step. `None` before the first step.
    due_in: Option<Duration>,
}

impl Starting {
    /// Returns whether this start has taken a worker ID of this daemon.
    pub(crate) fn took_from(&self, daemon: &Daemon) -> bool {
        let all_taken = self.layouts.iter().zip(self.taken.iter().flatten());
        let mut pairs = all_taken.flat_map(|taken| daemon.sources.iter().map(move |served| (taken, served)));
        pairs.any(|((of, taken), Served { workers, .. })| {
            workers.of == *of && workers.ids.iter().any(|id| taken.worker_ids.contains(id))
        })
    }
}

pub(crate) struct Served {
    pub(crate) source: Arc<Source>,
    pub(crate) workers: Workers,
    /// The last ceiling that the coordinator acknowledged.
    pub(crate) fleet: Position,
    /// True for a copy of a memory until its first write: another copy may have continued.
    pub(crate) is_copy: bool,
}

/// The beginning of a source in a process: its worker IDs and position.
#[derive(Clone)]
pub(crate) struct Begin {
    pub(crate) workers: Workers,
    pub(crate) start: Position,
    /// The coordinator's ceiling.
    pub(crate) covered: Position,
    /// How often the source's grant was taken away.
    pub(crate) losses: u64,
}

impl Begin {
    /// By the rules of `start_sources`, begins with worker IDs that were taken. Returns `None` if
    /// the state is an older copy.
    fn after_start(machine: &Machine, of: SourceLayout, taken: Taken, wall: UnixMicros) -> Option<Begin> {
        let workers = Workers { of, ids: taken.worker_ids };
        let numbering = workers.numbering();
        let next = numbering.first_of(Tick(numbering.tick_at(wall).0 + 1));
        let stored = workers.each().filter_map(|worker| machine.disk.ceilings.get(&worker)).max();
        let start = stored.map_or(next, |&stored| numbering.position_from(stored));
        let start = machine.above_marks(&workers, start.max(numbering.position_from(taken.floor)))?;
        let covered = numbering.position_from(taken.covered);
        Some(Begin { workers, start, covered, losses: 0 })
    }

    /// Makes the source, without a grant.
    fn manage(&self, max_ahead: Duration, now: Now) -> ManagedSource {
        let rules = Rules {
            burst_window: Duration::from_secs(1),
            max_ahead,
            on_step_back: OnStepBack::Ride,
            sequence_start: SequenceStart::Zero,
        };
        let rule = CeilingRule { horizon: Duration::from_secs(2), max_ahead, tick: Duration::from_secs(1) };
        let name = SOURCES[self.workers.of.source].to_owned();
        let grant = Grant::new(Position(0));
        (0..self.losses).for_each(|_| grant.revoke());
        let source = Arc::new(Source::new(name, self.workers.numbering(), rules, grant, self.start, now));
        ManagedSource::new(source, rule, self.start, now).under_fleet(Some(self.covered))
    }
}

impl World {
    /// Starts a daemon by the rules of `join_fleet` and `start_sources`. If a start of this machine
    /// is in its pause, continues or kills that start.
    pub(crate) fn start(&mut self, machine: usize) {
        if let Some(at) = self.starting.iter().position(|starting| starting.machine == machine) {
            let starting = self.starting.swap_remove(at);
            match self.rng.u8(..8) {
                0 => {}
                1 => self.boot(machine),
                2 => self.stop_start(starting),
                _ => self.settle(starting),
            }
            return;
        }
        let Some(starting) = self.begin(machine) else { return };
        if starting.taken.iter().flatten().any(|taken| taken.is_new) && self.rng.bool() {
            self.starting.push(starting);
        } else {
            self.settle(starting);
        }
    }

    /// Begins a start. Returns `None` if it must wait for its worker IDs, or is undone.
    pub(crate) fn begin(&mut self, machine: usize) -> Option<Starting> {
        let before = (self.machines[machine].clone(), self.link.server().clone());
        self.call_from(machine);
        let reading = self.reading(machine);
        let clocks = clocks(reading);
        // The process of the last try either still waits, or was killed.
        let waiting = self.machines[machine].waiting.take().filter(|_| self.rng.u8(..4) > 0);
        let (mut member, disk) = waiting.unwrap_or_else(|| self.process(machine));
        let layouts = self.layouts(self.machines[machine].is_turned);
        let take = |&of| self.take(machine, &mut member, of, clocks).map(Some);
        let taken: Option<Vec<_>> = layouts.iter().map(take).collect();
        self.machines[machine].disk.notes = disk.durable();
        let Some(taken) = taken else {
            self.wait(machine, member, disk);
            return None;
        };
        // A start with a worker ID that this state released does not pause. Another daemon may have
        // taken the worker ID since then, and a restore may have lost that write. The promise holds
        // only if that daemon asks the coordinator before this start, so this start is undone.
        let lost_writes = self.link.server().lost_writes;
        let is_stale = lost_writes && before.0.disk.written_in != self.restores;
        if is_stale && taken.iter().flatten().any(|taken| !taken.is_new && !taken.is_same_term) {
            let (machine_before, server) = before;
            self.machines[machine] = Machine { waiting: None, ..machine_before };
            *self.link.server() = server;
            return None;
        }
        if taken.iter().flatten().any(|taken| taken.is_new) {
            self.machines[machine].disk.written_in = self.restores;
        }
        let is_new = |index: &usize| taken[*index].as_ref().is_some_and(|taken| taken.is_new);
        let pause = Pause::of((0..taken.len()).filter(is_new).collect());
        Some(Starting { machine, member, disk, layouts, taken, pause, due_in: None })
    }

    /// Starts a process on a machine, whose configuration an operator may have changed.
    fn process(&mut self, machine: usize) -> (Member<Link>, SlowDisk) {
        if self.rng.bool() {
            self.machines[machine].is_turned = self.is_turned;
        }
        if self.changes_settings {
            let found = &mut self.machines[machine];
            (found.horizon, found.max_ahead) = match self.rng.u8(..4) {
                0 => SETTINGS[self.rng.usize(..SETTINGS.len())],
                1 | 2 => (found.horizon, found.max_ahead),
                // The operator corrects the configuration.
                _ => (self.limits.horizon(), self.limits.max_ahead()),
            };
        }
        let link = self.link.another();
        let notes = self.machines[machine].read_notes();
        let disk = SlowDisk::with(link.clone(), notes.clone(), self.machines[machine].sync_time);
        let notes = notes.kept_in(Some(Arc::new(disk.clone())));
        self.lives += 1;
        let holder = format!("machine {machine} (process {})", self.lives);
        let names = Names { fleet: FLEET, state: &self.machines[machine].disk.state, holder: &holder };
        let limits = FleetLimits::new(self.machines[machine].horizon, self.machines[machine].max_ahead);
        (Member::new(link, names, limits, notes, new_identity), disk)
    }

    /// Lets a process wait for the next try.
    fn wait(&mut self, machine: usize, mut member: Member<Link>, disk: SlowDisk) {
        member.give_up(&[0, 1]);
        disk.link.holds_nothing();
        self.machines[machine].waiting = Some((member, disk));
    }

    /// Stops a start cleanly: it gives back what it took.
    pub(crate) fn stop_start(&mut self, starting: Starting) {
        let Starting { machine, mut member, disk, layouts, taken, .. } = starting;
        self.call_from(machine);
        let clocks = clocks(self.reading(machine));
        let mut unused = Vec::new();
        for (of, taken) in layouts.iter().zip(taken.iter().flatten()) {
            unused.extend(taken.unused(of.source));
        }
        let sources: Vec<usize> = unused.iter().map(|bound| bound.source).collect();
        if !sources.is_empty() && member.confirm(&sources, clocks).is_ok() {
            for (of, taken) in layouts.into_iter().zip(taken.into_iter().flatten()) {
                if sources.contains(&of.source) {
                    self.machines[machine].mark_given_back(&Workers { of, ids: taken.worker_ids });
                }
            }
            let _ = member.give_back(&unused, &[], clocks, &|| true);
            self.machines[machine].disk.written_in = self.restores;
        }
        self.machines[machine].disk.notes = disk.durable();
    }

    /// Ends a start, after its pause if it has one, unless something happens between two steps of
    /// the pause.
    pub(crate) fn settle(&mut self, starting: Starting) {
        let Starting { machine, mut member, disk, layouts, mut taken, mut pause, mut due_in } = starting;
        self.call_from(machine);
        let reading = self.reading(machine);
        let clocks = clocks(reading);
        let indices: Vec<usize> = layouts.iter().map(|of| of.source).collect();
        let settled = loop {
            due_in.into_iter().for_each(|due_in| disk.link.pause(due_in));
            match member.settle(&mut pause, clocks) {
                Ok(due @ Some(_)) if self.rng.u8(..64) > 0 => due_in = due,
                Ok(due_in @ Some(_)) => {
                    self.machines[machine].disk.notes = disk.durable();
                    let starting = Starting { machine, member, disk, layouts, taken, pause, due_in };
                    self.starting.push(starting);
                    return;
                }
                settled => break settled.and_then(|_| member.check_taken(&indices, clocks)),
            }
        };
        self.machines[machine].disk.notes = disk.durable();
        if settled.is_err() {
            self.wait(machine, member, disk);
            return;
        }
        if self.rng.u8(..8) == 0 {
            // The daemon is killed before it has stored its start.
            return;
        }
        let mut begins = Vec::new();
        for Bound { source, id_bound } in pause.floors {
            taken[source].iter_mut().for_each(|taken| taken.floor = id_bound);
        }
        for (of, taken) in layouts.into_iter().zip(taken.into_iter().flatten()) {
            let found = &mut self.machines[machine];
            let Some(begin) = Begin::after_start(found, of, taken, reading.wall) else { return };
            found.let_go(&begin.workers, &mut member);
            begins.push(begin);
        }
        let daemon = self.daemon(machine, member, disk, begins);
        self.daemons.push(daemon);
    }

    /// Takes the worker IDs of a source. Returns `None` if the source gets none.
    fn take(
        &self,
        machine: usize,
        member: &mut Member<Link>,
        of: SourceLayout,
        clocks: Clocks,
    ) -> Option<Taken> {
        let machine = &self.machines[machine];
        let layout = of.layout();
        let want = Want {
            index: of.source,
            source: SOURCES[of.source],
            layout: &layout,
            clocks,
            proof: Proof::None,
        };
        let own = machine.given.clone().or_else(|| member.own(want));
        let proof = |ids: &WorkerSet| machine.proof(&Workers { of, ids: ids.clone() });
        let want = Want { proof: own.as_ref().map_or(Proof::None, proof), ..want };
        if let Some(resumed) = own.as_ref().and_then(|own| member.resume_at_once(want, own)) {
            return Some(resumed);
        }
        let taken = match &machine.given {
            Some(given) => member.take(want, given),
            None => {
                let mut tries = (0..TRIES_MAX).map(|tried| {
                    let free =
                        member.find_free(want, self.workers_each, None, |id| id < self.workers, tried)?;
                    member.take_free(want, free)
                });
                let none = || Err(FleetError::Held(String::from("others were faster at each try")));
                tries.find_map(Result::transpose).unwrap_or_else(none)
            }
        };
        match taken {
            Err(FleetError::NoAnswer(_)) => own.and_then(|own| member.resume_unseen(want, &own)),
            taken => taken.ok(),
        }
    }

    /// Makes a process, and makes its first local ceilings durable.
    pub(crate) fn daemon(
        &mut self,
        machine: usize,
        member: Member<Link>,
        disk: SlowDisk,
        begins: Vec<Begin>,
    ) -> Daemon {
        let reading = self.reading(machine);
        let rule = StepRule { max_step: Duration::from_secs(60), step_hold: Duration::ZERO };
        let wall = Arc::new(Wall::new(rule, reading, Remembered::Nothing));
        let now = wall.believe(reading);
        let mut sources = Vec::new();
        let mut all_managed = Vec::new();
        for begin in begins {
            let mut managed = begin.manage(self.machines[machine].max_ahead, now);
            let source = Arc::clone(managed.source());
            let ceiling = managed.first_ceiling(now);
            let id_bound = source.numbering().id_bound(ceiling);
            self.machines[machine].store(&begin.workers, id_bound);
            self.machines[machine].mark(&begin.workers, id_bound);
            managed.grant(ceiling);
            all_managed.push(managed);
            sources.push(Served { source, workers: begin.workers, fleet: begin.covered, is_copy: false });
        }
        let reaches = [Reach::Local, Reach::Fleet(self.machines[machine].horizon)];
        let keeper = Keeper::new(all_managed, &reaches, Arc::clone(&wall), reading);
        let link = disk.link.clone();
        Daemon { machine, member, link, disk, keeper, sources, wall, pending: None, raising: None }
    }

    pub(crate) fn now(&self, daemon: &Daemon) -> Now {
        daemon.wall.believe(self.reading(daemon.machine))
    }

    /// Polls the keeper once, as the keeper's thread does. Writes to the coordinator may take a
    /// while.
    pub(crate) fn keep(&mut self, at: usize) {
        let reading = self.reading(self.daemons[at].machine);
        let now = self.now(&self.daemons[at]);
        let daemon = &mut self.daemons[at];
        for write in daemon.keeper.poll(reading).writes {
            if write.writer == 1 {
                daemon.pending = Some(write);
                continue;
            }
            let machine = &mut self.machines[daemon.machine];
            for &(index, durable) in &write.ceilings {
                let served = &daemon.sources[index];
                machine.store(&served.workers, served.source.numbering().id_bound(durable.ceiling));
            }
            let outcome = Outcome { writer: 0, number: write.number, failure: None };
            let mark = |index: usize, bound| machine.mark(&daemon.sources[index].workers, bound);
            daemon.keeper.written(outcome, now, mark);
        }
        if self.rng.u8(..3) == 0 {
            self.write_to_fleet(at, now);
        }
    }

    pub(crate) fn write_to_fleet(&mut self, at: usize, now: Now) {
        self.call_from(self.daemons[at].machine);
        let clocks = clocks(self.reading(self.daemons[at].machine));
        // The write that reports a loss always arrives. Until this write, the daemon counts as a
        // daemon that has not asked the coordinator yet.
        let lost_writes = self.link.server().lost_writes;
        self.link.server().is_reliable |= lost_writes;
        let (pending, done) = self.write_or_check(at, clocks);
        let daemon = &mut self.daemons[at];
        self.machines[daemon.machine].disk.notes = daemon.disk.durable();
        self.link.server().is_reliable = false;
        let result = match done {
            Ok(()) => Ok(()),
            Err(FleetError::NoAnswer(answer)) => Err(answer.reason),
            Err(_) => {
                let ended = self.daemons.swap_remove(at);
                self.record_loss(&ended);
                return;
            }
        };
        let Some(write) = pending else { return };
        if result.is_ok() {
            for (index, Durable { ceiling, .. }) in write.ceilings {
                let served = &mut daemon.sources[index];
                served.fleet = ceiling;
                served.is_copy = false;
            }
        }
        let machine = &mut self.machines[daemon.machine];
        let mark = |index: usize, bound| machine.mark(&daemon.sources[index].workers, bound);
        daemon.keeper.written(Outcome { writer: 1, number: write.number, failure: result.err() }, now, mark);
    }

    /// Raises bounds, goes on with the pause of a raise, or checks. Returns the raise that is over.
    fn write_or_check(&mut self, at: usize, clocks: Clocks) -> (Option<Write>, Result<(), FleetError>) {
        let Daemon { member, link, sources, pending, raising, .. } = &mut self.daemons[at];
        let mut paused = raising.take();
        if paused.is_none() {
            // A job may begin right before a poll is due.
            let part = if self.rng.bool() { 0.999 } else { self.rng.f64() };
            let Some(write) = pending.take() else {
                link.idle(1.0);
                return (None, member.check(clocks));
            };
            link.idle(part);
            let mut bounds = Vec::new();
            for &(source, Durable { ceiling, generation }) in &write.ceilings {
                let id_bound = sources[source].source.numbering().id_bound(ceiling);
                bounds.push((Bound { source, id_bound }, generation));
            }
            match member.raise(&bounds, clocks) {
                Ok(pause) => paused = Some(Raising { write, pause, due_in: None }),
                Err(error) => return (Some(write), Err(error)),
            }
        }
        let Some(Raising { write, mut pause, mut due_in }) = paused else { return (None, Ok(())) };
        loop {
            let checked = due_in.and_then(|due_in| {
                link.pause(due_in);
                link.check_if_due(|| member.check(clocks))
            });
            if let Some(Err(loss)) = checked.filter(|it| it.as_ref().is_err_and(FleetError::is_loss)) {
                return (Some(write), Err(loss));
            }
            match member.settle(&mut pause, clocks) {
                Ok(due @ Some(_)) if self.rng.u8(..64) > 0 => due_in = due,
                Ok(due_in @ Some(_)) => {
                    *raising = Some(Raising { write, pause, due_in });
                    return (None, Ok(()));
                }
                settled => return (Some(write), settled.map(drop)),
            }
        }
    }

    /// Records that a daemon has ended because restores have lost its write. This daemon no longer
    /// has to raise the floor. The other daemons that lost a write must still notice their loss.
    fn record_loss(&mut self, ended: &Daemon) {
        let mut server = self.link.server();
        let had_lost = !server.lost_terms.is_empty();
        for served in &ended.sources {
            let of = served.workers.of;
            let note = ended.member.notes().of(FLEET, SOURCES[of.source], &of.layout().space().to_string());
            server.lost_terms.retain(|term| note.is_none_or(|note| note.term != *term));
        }
        if had_lost && server.lost_terms.is_empty() {
            server.find_losses();
        }
    }

    pub(crate) fn claim(&mut self, at: usize) {
        let daemon = &self.daemons[at];
        let source = &daemon.sources[self.rng.usize(..daemon.sources.len())].source;
        let window = source.window(self.now(daemon));
        let count = self.rng.u64(1..20);
        if window.is_shut() {
            return;
        }
        let Some(from) = source.claim(&window, count, &mut self.rng) else { return };
        for position in from.0..from.0 + count {
            let id = source.numbering().id_at(Position(position));
            let seed = self.seed;
            assert!(
                self.handed_out.insert(id),
                "seed {seed}: {id} is handed out twice, now by machine {}",
                daemon.machine
            );
        }
    }

    pub(crate) fn kill(&mut self, at: usize) {
        let daemon = self.daemons.swap_remove(at);
        if self.rng.bool() {
            self.boot(daemon.machine);
        }
    }

    pub(crate) fn stop(&mut self, at: usize) {
        let mut daemon = self.daemons.swap_remove(at);
        self.call_from(daemon.machine);
        let bound = |left: Left| Bound { source: left.source, id_bound: left.id_bound };
        let bounds: Vec<Bound> = daemon.keeper.seal().into_iter().map(bound).collect();
        let clocks = clocks(self.reading(daemon.machine));
        let sources: Vec<usize> = bounds.iter().map(|bound| bound.source).collect();
        let is_confirmed = daemon.member.confirm(&sources, clocks).is_ok();
        let machine = &mut self.machines[daemon.machine];
        for bound in &bounds {
            let workers = &daemon.sources[bound.source].workers;
            if is_confirmed {
                machine.mark_returned(workers, bound.id_bound);
            } else {
                machine.mark(workers, bound.id_bound);
            }
            machine.trim(workers, bound.id_bound);
        }
        if is_confirmed {
            let _ = daemon.member.give_back(&bounds, &[], clocks, &|| true);
            machine.disk.written_in = self.restores;
            self.back_up_after_release();
        }
        self.machines[daemon.machine].disk.notes = daemon.disk.durable();
    }
}
