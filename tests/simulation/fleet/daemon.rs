//! The life of a daemon in its fleet: start, ceilings, claims and its end.

use std::sync::Arc;
use std::time::Duration;

use snowbank::ceiling::{CeilingRule, Grant, Left};
use snowbank::clock::{Now, Remembered, StepRule, Wall};
use snowbank::fleet::rules::Proof;
use snowbank::fleet::{Bound, JoinError, Member, Names, Raised, Want};
use snowbank::keeper::{Keeper, ManagedSource, Outcome, Reach, Write};
use snowbank::source::{OnStepBack, Rules, SequenceStart, Source};
use snowbank_client::layout::{Position, Tick, WorkerSet};

use super::server::Link;
use super::world::World;
use super::{FLEET, HORIZON, MAX_AHEAD, clocks, draw, layout, numbering, want};

/// A daemon that runs.
pub(crate) struct Daemon {
    pub(crate) machine: usize,
    pub(crate) member: Member<Link>,
    pub(crate) keeper: Keeper,
    pub(crate) source: Arc<Source>,
    pub(crate) wall: Arc<Wall>,
    pub(crate) worker: u64,
    /// The coordinator's ceiling that was acknowledged last.
    pub(crate) fleet: Position,
    /// Its write to the coordinator that has not started.
    pub(crate) pending: Option<Write>,
}

/// The beginning of a process: its worker ID and position.
pub(crate) struct Begin {
    pub(crate) worker: u64,
    pub(crate) start: Position,
    /// The coordinator's ceiling.
    pub(crate) covered: Position,
    /// The number of times that its grant was taken away.
    pub(crate) losses: u64,
}

impl World {
    /// Starts a daemon by the rules of `join_fleet` and `start_sources`.
    pub(crate) fn start(&mut self, machine: usize) {
        self.call_from(machine);
        let reading = self.reading(machine);
        let notes = self.machines[machine].read_notes();
        // The process of the last try waits, or was killed.
        let tried = self.machines[machine].tried.take().filter(|_| self.rng.u8(..4) > 0);
        let found = &self.machines[machine];
        let layout = layout();
        let clocks = clocks(reading);
        let want = want(&layout, clocks);
        self.lives += 1;
        let holder = format!("machine {machine} (process {})", self.lives);
        let names = Names { fleet: FLEET, state: &found.disk.state, holder: &holder };
        let member = Member::new(self.link.clone(), names, notes, draw);
        let mut member = member.after(tried.unwrap_or_default());
        let given = found.given.map(WorkerSet::single);
        let own = given.clone().or_else(|| member.own(want));
        let proof = own.as_ref().map_or(Proof::None, |own| found.proof(own.highest()));
        let want = Want { proof, ..want };
        let resumed = own.as_ref().and_then(|own| member.resume_at_once(want, own));
        let taken = match (resumed, &given) {
            (Some(resumed), _) => Ok(resumed),
            (None, Some(given)) => member.take(want, given),
            (None, None) => {
                member.pick(want, 1, None, |id| id < self.numbers, |_| Ok::<bool, JoinError>(true))
            }
        };
        let taken = match taken {
            Err(JoinError::NoAnswer(_)) => own.and_then(|own| member.resume_unseen(want, &own)),
            Ok(taken) => {
                let mut taken = [Some(taken)];
                let settled = member.settle(&mut taken, clocks);
                settled.ok().and_then(|()| taken[0].take())
            }
            Err(_) => None,
        };
        self.machines[machine].disk.notes = member.notes().clone();
        // A number that this state had released starts without a pause. If another daemon has had
        // it since, and the coordinator has lost that, that one must have asked before.
        let lost_writes = self.link.server().lost_writes;
        let taken = taken.filter(|taken| taken.is_new || taken.is_same_term || !lost_writes);
        let Some(taken) = taken else {
            self.machines[machine].tried = Some(member.into_tried());
            return;
        };
        if self.rng.u8(..8) == 0 {
            // It is killed before it has stored its start.
            return;
        }
        let worker = taken.worker_ids.highest();
        let numbering = numbering(worker);
        let next = numbering.first_of(Tick(numbering.tick_at(reading.wall).0 + 1));
        let stored = self.machines[machine].disk.ceilings.get(&worker);
        let start = stored.map_or(next, |&stored| numbering.position_from(stored));
        let start = start.max(numbering.position_from(taken.floor));
        let Some(start) = self.machines[machine].above_marks(worker, start) else { return };
        self.machines[machine].let_go(worker, &mut member);
        let fleet = numbering.position_from(taken.covered);
        let daemon = self.daemon(machine, member, Begin { worker, start, covered: fleet, losses: 0 });
        self.daemons.push(daemon);
    }

    /// Makes a process whose first local ceiling is durable.
    pub(crate) fn daemon(&mut self, machine: usize, member: Member<Link>, begin: Begin) -> Daemon {
        let Begin { worker, start, covered, losses } = begin;
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
        let name = String::from("orders");
        let grant = Grant::new(Position(0));
        (0..losses).for_each(|_| grant.revoke());
        let source = Arc::new(Source::new(name, numbering(worker), rules, grant, start, now));
        let managed = ManagedSource::new(Arc::clone(&source), rule, start, now).under_fleet(Some(covered));
        let mut managed = managed;
        let ceiling = managed.first_ceiling(now);
        let id_bound = source.numbering().id_bound(ceiling);
        self.machines[machine].store(worker, id_bound);
        self.machines[machine].mark(worker, id_bound);
        managed.grant(ceiling);
        let reaches = [Reach::Local, Reach::Fleet(HORIZON)];
        let keeper = Keeper::new(vec![managed], &reaches, Arc::clone(&wall), reading);
        Daemon { machine, member, keeper, source, wall, worker, fleet: covered, pending: None }
    }

    pub(crate) fn now(&self, daemon: &Daemon) -> Now {
        daemon.wall.believe(self.reading(daemon.machine))
    }

    /// Looks once, as the keeper's thread does. Writes to the coordinator may take a while.
    pub(crate) fn keep(&mut self, at: usize) {
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

    pub(crate) fn write_to_fleet(&mut self, at: usize, now: Now) {
        self.call_from(self.daemons[at].machine);
        let clocks = clocks(self.reading(self.daemons[at].machine));
        // The write by which a daemon says what it lost arrives. Until then it is one that has not
        // asked yet.
        let lost_writes = self.link.server().lost_writes;
        self.link.server().is_reliable = lost_writes;
        let daemon = &mut self.daemons[at];
        let (raised, number) = match daemon.pending.take() {
            Some(write) => {
                let bounds = write.ceilings.iter().map(|&(source, ceiling)| Bound {
                    source,
                    id_bound: daemon.source.numbering().id_bound(ceiling),
                });
                let raised = daemon.member.raise(&bounds.collect::<Vec<_>>(), write.generation, clocks);
                (raised, write.ceilings.first().map(|&(_, ceiling)| (write.number, ceiling)))
            }
            None => (daemon.member.look(clocks), None),
        };
        self.machines[daemon.machine].disk.notes = daemon.member.notes().clone();
        self.link.server().is_reliable = false;
        let result = match raised {
            Raised::Done => Ok(()),
            Raised::NoAnswer(answer) => Err(answer.reason),
            Raised::Lost(_) => {
                let ended = self.daemons.swap_remove(at);
                self.note_loss(&ended);
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

    /// A daemon whose write the last restores have lost has noticed that. If it raised no floor
    /// then, none comes.
    fn note_loss(&mut self, ended: &Daemon) {
        let space = layout().space().to_string();
        let Some(note) = ended.member.notes().of("orders", &space) else { return };
        let mut server = self.link.server();
        if server.lost_terms.contains(&note.term) {
            server.find_losses();
        }
    }

    pub(crate) fn claim(&mut self, at: usize) {
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
        let is_confirmed = daemon.member.confirm(clocks) == Raised::Done;
        let machine = &mut self.machines[daemon.machine];
        for bound in &bounds {
            if is_confirmed {
                machine.mark_returned(daemon.worker, bound.id_bound);
            } else {
                machine.mark(daemon.worker, bound.id_bound);
            }
            machine.trim(daemon.worker, bound.id_bound);
        }
        if is_confirmed {
            let _ = daemon.member.release(&bounds, clocks);
        }
        self.machines[daemon.machine].disk.notes = daemon.member.notes().clone();
    }
}
