//! A deterministic simulation of one daemon's life: the shipped source, shards, line, keeper and ID clock, on clocks that
//! step, drift, freeze and are read late. One or two writers make ceilings durable: their writes take time, overtake each
//! other, hang, fail and last or do not, and end after they were given up. The shipped state file code makes and reads
//! them, over a disk in memory. A crash cuts a write off at any call. A power failure loses sectors that were not synced,
//! and may damage one of the two copies. Crashes and stops come at any point, and older copies of the state take its
//! place, which the marks in the machine's locks tell within a boot. Thousands of seeds run in a minute.
//!
//! A failing seed prints itself: `SNOWBANK_SEED=N cargo test --test simulation` replays it alone.
//! `SNOWBANK_SEEDS=100000 cargo test --release --test simulation` runs longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use disk::{Failure, StateFile};
use snowbank::ceiling::store::{Record, id_bound};
use snowbank::ceiling::{
    CeilingRule, Grant, HostIdentity, Marked, Owner, StoreError, TakenOver, WorkerLocks, compare, instant_of,
    lock_workers,
};
use snowbank::clock::{BootMicros, Now, Reading, Remembered, StepRule, Wall};
use snowbank::keeper::{Keeper, ManagedSource, Outcome, Write};
use snowbank::shard::{Lane, Order, Ring, Rings, Shard, Taken};
use snowbank::source::wait_queue::{Finished, Signals, Ticket, WaitRequest};
use snowbank::source::{OnStepBack, Rules, SequenceStart, Source};
use snowbank_client::layout::{Layout, Numbering, Position, Run, Tick, UnixMicros, WorkerSet};
use tempfile::TempDir;

#[path = "simulation/disk.rs"]
mod disk;

const MS: i64 = 1_000;
const SECOND: i64 = 1_000 * MS;
const MAX_AHEAD: Duration = Duration::from_secs(10);
const HORIZON: Duration = Duration::from_secs(3);
const BURST_WINDOW: Duration = Duration::from_millis(10);
const STEP_RULE: StepRule =
    StepRule { max_step: Duration::from_secs(60), step_hold: Duration::from_secs(60) };
const SHARDS: usize = 3;
const STEPS: usize = 400;

/// The contents of a state directory and of what the other writer keeps, and a backup of them.
#[derive(Clone, Debug, Default)]
struct State {
    /// By writer.
    files: Vec<StateFile>,
    /// The last process's belief of wall − boot, if that was in this boot of the machine.
    wall_minus_boot_us: Option<i64>,
    /// Its identity: how many were lost before it.
    identity: u128,
}

impl State {
    /// Returns the ceiling up to which IDs may be used: every writer has stored it.
    fn granted(&self) -> Option<Position> {
        self.files.iter().map(StateFile::granted).min().flatten()
    }

    fn back_up(&self) -> Self {
        State { files: self.files.iter().map(StateFile::back_up).collect(), ..*self }
    }
}

/// Storage: what survives the process, how reliable it is at the moment, and the writes that it is at.
#[derive(Debug)]
struct Storage {
    state: State,
    numbering: Numbering,
    /// One in so many writes fails; 0: none.
    fails_one_in: u32,
    /// One in so many writes takes long; 0: none.
    is_slow_one_in: u32,
    under_way: Vec<UnderWay>,
}

/// A write that a writer is at.
#[derive(Debug)]
struct UnderWay {
    write: Write,
    /// When it ends; hours away where it hangs.
    ends_us: i64,
    /// When its writer calls it failed. It goes on, and is reported again when it ends.
    given_up_us: Option<i64>,
    is_given_up: bool,
    failure: Option<Failure>,
}

impl UnderWay {
    fn outcome(&self, fails: bool) -> Outcome {
        let Write { writer, number, .. } = self.write;
        let result = if fails { Err(StoreError::new(String::from("the disk failed"))) } else { Ok(()) };
        Outcome { writer, number, result }
    }
}

impl Storage {
    /// Draws whether a write fails, and how.
    fn draw(&self, rng: &mut fastrand::Rng) -> Option<Failure> {
        (self.fails_one_in > 0 && rng.u32(..self.fails_one_in) == 0).then(|| Failure::draw(rng))
    }

    fn record(&self, ceiling: Position) -> Record {
        Record::new("simulated", &self.numbering, ceiling, &owner(&self.state), &HostIdentity::default())
    }

    /// Raises a writer's ceiling. Returns whether that succeeded.
    fn raise(
        &mut self,
        writer: usize,
        ceiling: Position,
        wall_minus_boot_us: i64,
        failure: Option<Failure>,
    ) -> bool {
        if failure.is_none_or(Failure::lasts) {
            self.state.wall_minus_boot_us = Some(wall_minus_boot_us);
        }
        let record = self.record(self.state.files[writer].raised(ceiling));
        self.state.files[writer].write(&record, failure)
    }

    /// Lowers a writer's ceiling. Returns whether that succeeded.
    fn trim(&mut self, writer: usize, cursor: Position, failure: Option<Failure>) -> bool {
        let record = self.record(cursor);
        self.state.files[writer].write(&record, failure)
    }

    /// Returns the record that a start uses, the lowest: a start that finds one of them need not find the other.
    ///
    /// # Errors
    /// The last write of a file succeeded, and it cannot be read.
    fn read(&mut self) -> Result<Option<Record>, String> {
        let mut lowest: Option<Record> = None;
        for writer in 0..self.state.files.len() {
            let found = match (self.state.files[writer].read(), self.state.files[writer].granted()) {
                (Err(error), Some(granted)) => {
                    let record = self.record(granted);
                    self.state.files[writer].repair(&record).then_some(Some(record)).ok_or(error)?
                }
                (found, _) => found?,
            };
            lowest = lowest.into_iter().chain(found).min_by_key(|record| record.ceiling);
        }
        Ok(lowest)
    }

    /// The machine loses its power, and with it what no disk has. One copy may be damaged besides.
    fn lose_power(&mut self, rng: &mut fastrand::Rng) {
        self.state.files.iter_mut().for_each(|file| file.lose_power(rng));
        let damaged = rng.usize(..3);
        self.state.files.get_mut(damaged).into_iter().for_each(|file| file.damage(rng));
    }

    fn begin(&mut self, write: Write, now_us: i64, rng: &mut fastrand::Rng) {
        let failure = self.draw(rng);
        let is_slow = self.is_slow_one_in > 0 && rng.u32(..self.is_slow_one_in) == 0;
        let takes_us = match rng.u8(..8) {
            _ if !is_slow => rng.i64(0..2 * MS),
            0 => 3_600 * SECOND,
            1..4 => rng.i64(0..6 * SECOND),
            _ => rng.i64(0..500 * MS),
        };
        let given_up_us = (is_slow && rng.bool()).then(|| now_us + rng.i64(0..3 * SECOND));
        let (ends_us, is_given_up) = (now_us + takes_us, false);
        self.under_way.push(UnderWay { write, ends_us, given_up_us, is_given_up, failure });
    }

    /// The outcomes until now, in the order in which they are reported.
    fn advance(&mut self, now_us: i64) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for under_way in &mut self.under_way {
            if under_way.given_up_us.take_if(|given_up_us| *given_up_us <= now_us).is_some() {
                under_way.is_given_up = true;
                outcomes.push(under_way.outcome(true));
            }
        }
        let (mut ended, going_on): (Vec<_>, Vec<_>) =
            self.under_way.drain(..).partition(|under_way| under_way.ends_us <= now_us);
        self.under_way = going_on;
        ended.sort_by_key(|under_way| under_way.ends_us);
        for under_way in ended {
            let succeeded = self.keep(&under_way, under_way.failure);
            outcomes.push(under_way.outcome(!succeeded));
        }
        outcomes
    }

    /// Makes the write. Returns whether it succeeded.
    fn keep(&mut self, under_way: &UnderWay, failure: Option<Failure>) -> bool {
        let Write { writer, ceilings, wall_minus_boot_us, .. } = &under_way.write;
        ceilings.iter().all(|&(_, ceiling)| self.raise(*writer, ceiling, *wall_minus_boot_us, failure))
    }

    /// The process is gone: what was under way reached storage up to any call, or not.
    fn cut_short(&mut self, rng: &mut fastrand::Rng) {
        for under_way in std::mem::take(&mut self.under_way) {
            if rng.bool() {
                let cut_off = rng.bool().then(|| Failure::draw(rng));
                self.keep(&under_way, cut_off);
            }
        }
    }
}

struct Deaf;

impl Signals for Deaf {
    fn finished(&self, _shard: usize) {}
    fn ceiling_reached(&self) {}
}

/// The machine's clocks: true time runs, the wall clock shows what it likes.
struct Machine {
    true_us: i64,
    boot_at_us: i64,
    wall_offset_us: i64,
    /// The wall clock stands at this.
    frozen: Option<i64>,
}

impl Machine {
    fn wall(&self) -> i64 {
        self.frozen.unwrap_or(self.true_us + self.wall_offset_us)
    }

    fn read(&self) -> Reading {
        Reading { wall: UnixMicros(self.wall()), boot: BootMicros(self.true_us - self.boot_at_us) }
    }

    /// A reading that lost the processor for up to 2 ms between the clocks.
    fn read_torn(&mut self, rng: &mut fastrand::Rng) -> Reading {
        let boot = self.read().boot;
        if rng.u8(..8) == 0 {
            self.true_us += rng.i64(0..MS);
        }
        Reading { boot, ..self.read() }
    }
}

/// One process.
struct Daemon {
    source: Arc<Source>,
    wall: Arc<Wall>,
    shards: Vec<Shard>,
    keeper: Keeper,
    locks: WorkerLocks,
    /// The last ID of each shard's only connection, and of all in strict order.
    last_ids: [u64; SHARDS],
    last_of_all: u64,
    /// Each shard's request that waits.
    waiting: Vec<Option<Waiting>>,
    /// A wake-up whose thread was paused after it had read the clock.
    paused: Option<(usize, Now)>,
    renewal: Renewal,
}

/// The ceilings that must be durable after a grant was taken away, before anything is handed out.
struct Renewal {
    generation: u64,
    /// By writer, the number of the last write that was handed out: so far, and before the grant was taken away.
    last: Vec<u64>,
    last_before: Vec<u64>,
    /// By writer, whether a write that was handed out later is durable.
    is_done: Vec<bool>,
}

impl Renewal {
    fn note(&mut self, generation: u64) {
        if generation != self.generation {
            self.generation = generation;
            self.last_before.clone_from(&self.last);
            self.is_done.fill(false);
        }
    }
}

struct Waiting {
    ticket: Ticket,
    count: u64,
    /// The IDs that it had before it waited.
    taken: Taken,
    /// The highest wall time since it was admitted: what was claimed for it then is not taken back by a step.
    latest_us: i64,
}

struct World {
    seed: u64,
    rng: fastrand::Rng,
    machine: Machine,
    storage: Storage,
    /// The number of writers that make ceilings durable.
    writers: usize,
    /// The machine's locks of worker IDs, with their marks; empty after a boot.
    locks: TempDir,
    /// Backups of the state, made in this boot.
    backups: Vec<State>,
    /// The state that one of them has taken the place of, and that nobody has used since.
    newest: Option<State>,
    /// The number of states that were lost.
    lost: u128,
    numbering: Numbering,
    rules: Rules,
    order: Order,
    daemon: Option<Daemon>,
    /// Every position handed out by any process: from, to.
    handed_out: BTreeMap<u64, u64>,
    highest_wall_us: i64,
    granted: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let layouts = ["twitter", "time:41,worker:5,sequence:=10", "time:39,sequence:8,machine:16;tick=10ms"];
        let layout = Layout::resolve(layouts[rng.usize(..layouts.len())]).expect("a layout");
        let workers: WorkerSet = ["0", "0-3", "1,5"][rng.usize(..3)].parse().expect("worker IDs");
        let numbering = Numbering::new(layout, workers).expect("they exist");
        let rules = Rules {
            burst_window: if rng.u8(..4) == 0 { Duration::ZERO } else { BURST_WINDOW },
            max_ahead: MAX_AHEAD,
            on_step_back: if rng.bool() { OnStepBack::Ride } else { OnStepBack::Wait },
            sequence_start: if rng.bool() { SequenceStart::Spread } else { SequenceStart::Zero },
        };
        let fails_one_in = [0, 0, 20, 5, 2][rng.usize(..5)];
        let is_slow_one_in = [0, 0, 20, 5, 2][rng.usize(..5)];
        let storage = Storage {
            state: State::default(),
            numbering: numbering.clone(),
            fails_one_in,
            is_slow_one_in,
            under_way: Vec::new(),
        };
        let true_us = 1_800_000_000 * SECOND + rng.i64(0..SECOND);
        World {
            seed,
            order: if rng.bool() { Order::Relaxed } else { Order::Strict },
            machine: Machine { true_us, boot_at_us: true_us - 500 * SECOND, wall_offset_us: 0, frozen: None },
            storage,
            writers: rng.usize(1..=2),
            locks: locks(),
            backups: Vec::new(),
            newest: None,
            lost: 0,
            numbering,
            rules,
            daemon: None,
            handed_out: BTreeMap::new(),
            highest_wall_us: true_us,
            granted: 0,
            rng,
        }
    }

    /// A process starts, by the shipped rules: at the stored ceiling or above; without one, above the current tick; above
    /// all that the machine remembers. An older copy of the state is not started with.
    fn start(&mut self) {
        let reading = self.machine.read();
        let stored = self.read();
        let ceiling = stored.as_ref().map(|record| record.ceiling);
        let granted = ceiling.map(|ceiling| self.instant(ceiling));
        let remembered = match (self.storage.state.wall_minus_boot_us, granted) {
            (Some(offset_us), _) => Remembered::Offset(offset_us),
            (None, Some(granted)) => Remembered::GrantedUntil(granted),
            (None, None) => Remembered::Nothing,
        };
        let wall = Arc::new(Wall::new(STEP_RULE, reading, remembered));
        let now = wall.believe(reading);
        let above_now = self.numbering.first_of(Tick(self.numbering.tick_at(now.wall).0 + 1));
        let start = ceiling.unwrap_or(above_now);
        let mut locks = lock_workers(self.locks.path(), &self.numbering).expect("no other daemon has them");
        let Some(start) = self.above_marks(stored, start, &locks, now) else { return };
        locks.mark_for(&owner(&self.storage.state));
        let tick = Duration::from_millis(self.numbering.layout().tick_ms());
        let rule = CeilingRule { horizon: HORIZON, max_ahead: MAX_AHEAD, tick };
        let grant = Grant::new(Position(0));
        let name = String::from("simulated");
        let source = Arc::new(Source::new(name, self.numbering.clone(), self.rules, grant, start, now));
        let mut managed = ManagedSource::new(Arc::clone(&source), rule, start, now);
        let ceiling = managed.first_ceiling(now);
        if !self.store_first(ceiling, wall.carried_us()) {
            // It does not start. The service manager tries again.
            return;
        }
        locks.mark_granted(id_bound(&self.numbering, ceiling)).expect("they can be marked");
        managed.grant(ceiling);
        self.newest = None;
        let rings: Rings = (0..SHARDS).map(|_| Ring::default()).collect();
        let shard = |index| {
            let lane = Lane::new(Arc::clone(&source), Arc::clone(&rings), index, self.order, now);
            Shard::new(index, vec![lane], self.seed + index as u64, now)
        };
        self.daemon = Some(Daemon {
            shards: (0..SHARDS).map(shard).collect(),
            keeper: Keeper::new(vec![managed], self.writers, Arc::clone(&wall), reading),
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

    /// Makes the first ceiling durable with every writer. A start waits for that.
    fn store_first(&mut self, ceiling: Position, wall_minus_boot_us: i64) -> bool {
        self.storage.state.files.resize_with(self.writers, StateFile::new);
        (0..self.writers).all(|writer| {
            let failure = self.storage.draw(&mut self.rng);
            self.storage.raise(writer, ceiling, wall_minus_boot_us, failure)
        })
    }

    /// Reads the state as a start does. It is above all that was handed out, unless it is an older copy or another state.
    fn read(&mut self) -> Option<Record> {
        let seed = self.seed;
        let read = self.storage.read();
        let stored = read.unwrap_or_else(|error| panic!("seed {seed}: the state cannot be read: {error}"))?;
        if let Some((_, &end)) = self.handed_out.last_key_value()
            && self.newest.is_none()
        {
            let ceiling = stored.ceiling.0;
            assert!(ceiling >= end, "seed {seed}: the state is at {ceiling}, {end} was handed out");
        }
        Some(stored)
    }

    fn set_state(&mut self, state: State) {
        self.storage.state = state;
    }

    /// The process is gone, whatever it was at.
    fn kill(&mut self) {
        self.daemon = None;
        self.storage.cut_short(&mut self.rng);
    }

    /// Returns where a start begins by the marks of the worker IDs. `None` if it is refused: the operator then does what
    /// the refusal asks for.
    fn above_marks(
        &mut self,
        stored: Option<Record>,
        start: Position,
        locks: &WorkerLocks,
        now: Now,
    ) -> Option<Position> {
        let records: Vec<Record> = stored.into_iter().collect();
        let marks = locks.marks().expect("they make sense");
        match compare(&marks, &self.numbering, start, &records) {
            Marked::Below => Some(start),
            Marked::ByAnother(end) => Some(end),
            Marked::Released => panic!("seed {}: nothing was moved away", self.seed),
            Marked::SinceThisCopy(end) => {
                assert!(
                    self.newest.is_some(),
                    "seed {}: the newest state is taken for an older copy",
                    self.seed
                );
                match self.rng.u8(..4) {
                    0 => self.lose(),
                    1 => self.put_newest_back(),
                    _ if instant_of(&self.numbering, end) <= now.wall => return Some(end),
                    _ => {}
                }
                None
            }
        }
    }

    /// A backup is made, or, if no daemon runs, takes the place of the state.
    fn back_up_or_restore(&mut self) {
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
        self.set_state(copy);
    }

    fn put_newest_back(&mut self) {
        if let Some(newest) = self.newest.take() {
            self.set_state(newest);
        }
    }

    /// The state is gone, and the next one is another.
    fn lose(&mut self) {
        self.lost += 1;
        self.newest = None;
        self.set_state(State { identity: self.lost, ..State::default() });
    }

    fn instant(&self, position: Position) -> UnixMicros {
        self.numbering.start_of(self.numbering.tick_of(position))
    }

    fn sleep(&mut self) {
        self.machine.true_us += match self.rng.u8(..10) {
            0..5 => self.rng.i64(0..200),
            5..9 => self.rng.i64(0..3 * MS),
            _ => self.rng.i64(0..2 * SECOND),
        };
        self.note_wall();
    }

    fn note_wall(&mut self) {
        let wall_us = self.machine.wall();
        self.highest_wall_us = self.highest_wall_us.max(wall_us);
        for waiting in self.daemon.iter_mut().flat_map(|daemon| daemon.waiting.iter_mut().flatten()) {
            waiting.latest_us = waiting.latest_us.max(wall_us);
        }
    }

    /// The wall clock does something.
    fn disturb_the_clock(&mut self) {
        let sizes = [5 * MS, SECOND, 10 * SECOND, 59 * SECOND, 3_600 * SECOND];
        let size = sizes[self.rng.usize(..sizes.len())];
        match self.rng.u8(..8) {
            0..3 => self.machine.wall_offset_us -= size,
            3..5 => self.machine.wall_offset_us += size,
            5 => self.machine.wall_offset_us = 0,
            6 => self.machine.frozen = Some(self.machine.wall()),
            _ => {
                // It goes on from where it stood, or from where it should be.
                if let Some(stood) = self.machine.frozen.take()
                    && self.rng.bool()
                {
                    self.machine.wall_offset_us = stood - self.machine.true_us;
                }
            }
        }
        self.note_wall();
    }

    fn step(&mut self) {
        self.sleep();
        if self.daemon.is_none() {
            self.start();
            return;
        }
        match self.rng.u8(..100) {
            0..60 => self.take(),
            60..72 => self.advance(),
            72..78 => self.take_outcomes(),
            78..88 => self.keep(),
            88..92 => self.pause(),
            92..95 => self.disturb_the_clock(),
            95 => self.kill(),
            96 => self.stop(),
            98 => self.back_up_or_restore(),
            97 => match self.rng.u8(..6) {
                0 => self.reboot(),
                1 => self.take_over(),
                2 => self.stop(),
                3..5 => self.restore(),
                _ => self.kill(),
            },
            _ => {
                let rates = [0, 20, 3];
                self.storage.fails_one_in = rates[self.rng.usize(..3)];
                self.storage.is_slow_one_in = rates[self.rng.usize(..3)];
            }
        }
    }

    /// The keeper's thread: it looks, hands writes out, and takes the outcomes that there are.
    fn keep(&mut self) {
        let reading = self.machine.read_torn(&mut self.rng);
        let now_us = self.machine.true_us;
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let looked = daemon.keeper.look(reading);
        daemon.renewal.note(daemon.source.grant().generation());
        for write in looked.writes {
            daemon.renewal.last[write.writer] = write.number;
            let mut others = self.storage.under_way.iter().filter(|other| !other.is_given_up);
            let is_free = others.all(|other| other.write.writer != write.writer);
            assert!(is_free, "seed {}: two writes of one writer at once", self.seed);
            self.storage.begin(write, now_us, &mut self.rng);
        }
        self.take_outcomes();
    }

    fn take_outcomes(&mut self) {
        let outcomes = self.storage.advance(self.machine.true_us);
        let reading = self.machine.read();
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let now = daemon.wall.believe(reading);
        for outcome in outcomes {
            let is_later = outcome.number > daemon.renewal.last_before[outcome.writer];
            daemon.renewal.is_done[outcome.writer] |= is_later && outcome.result.is_ok();
            let mark = |_, id_bound| daemon.locks.mark_granted(id_bound).expect("they can be marked");
            daemon.keeper.written(outcome, now, mark);
        }
    }

    /// A thread reads the clock and loses the processor; another wake-up of its shard comes no sooner than it goes on.
    fn pause(&mut self) {
        let reading = self.machine.read();
        let index = self.rng.usize(..SHARDS);
        if let Some(daemon) = &mut self.daemon
            && daemon.paused.is_none()
        {
            daemon.paused = Some((index, daemon.wall.believe(reading)));
        }
    }

    /// A clean stop, which may fail to trim. Nothing is handed out after it, not even what was claimed before.
    fn stop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else {
            return;
        };
        let trims = daemon.keeper.seal();
        assert_eq!(daemon.source.cursor(), None, "nothing may be claimed once a trim is tried");
        // Writers end what they are at first. One that hangs is not waited for, and trims nothing.
        let hangs = !self.storage.under_way.is_empty() && self.rng.bool();
        self.storage.cut_short(&mut self.rng);
        for (index, cursor) in trims {
            let id_bound = daemon.keeper.id_bound(index, cursor);
            daemon.locks.mark_granted(id_bound).expect("they can be marked");
            for writer in (0..self.writers).filter(|_| !hangs) {
                let failure = self.storage.draw(&mut self.rng);
                if !self.storage.trim(writer, cursor, failure) {
                    break;
                }
            }
        }
        self.expect_silence(&mut daemon);
        let late: Vec<Outcome> = (0..self.writers).map(|writer| self.any_outcome(writer)).collect();
        for outcome in late {
            let now = daemon.wall.believe(self.machine.read());
            daemon.keeper.written(outcome, now, |_, _| panic!("marked after the trim"));
        }
        self.expect_silence(&mut daemon);
    }

    /// An outcome that may be that of a write.
    fn any_outcome(&mut self, writer: usize) -> Outcome {
        Outcome { writer, number: self.rng.u64(1..20), result: Ok(()) }
    }

    /// Another daemon has the worker IDs or the state: once that is found nothing is handed out, nor written.
    fn take_over(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.keeper.lose(TakenOver(String::from("another daemon has it")));
            let reading = self.machine.read();
            for _ in 0..2 {
                self.expect_silence(&mut daemon);
                let looked = daemon.keeper.look(reading);
                assert!(looked.taken_over.is_some());
                assert!(looked.writes.is_empty(), "seed {}: writes what another daemon has", self.seed);
                for outcome in self.storage.advance(i64::MAX) {
                    let now = daemon.wall.believe(reading);
                    daemon.keeper.written(outcome, now, |_, _| panic!("marked what another daemon has"));
                }
            }
        }
    }

    /// The kernel announces that the machine was restored from a snapshot: the grant is taken away, whatever is under way.
    fn restore(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            daemon.source.grant().revoke();
            daemon.renewal.note(daemon.source.grant().generation());
        }
    }

    /// Boots the machine again, maybe after a power failure: nothing of the old boot's clocks is known then.
    fn reboot(&mut self) {
        self.kill();
        self.machine.boot_at_us = self.machine.true_us;
        // Nothing tells an older copy from then on.
        self.put_newest_back();
        self.backups.clear();
        if self.rng.bool() {
            self.storage.lose_power(&mut self.rng);
        }
        self.locks = locks();
        self.storage.state.wall_minus_boot_us = None;
    }

    fn expect_silence(&self, daemon: &mut Daemon) {
        let now = daemon.wall.believe(self.machine.read());
        for shard in &mut daemon.shards {
            let mut runs = Vec::new();
            shard.wake(now);
            let (lane, rng) = shard.lane(0);
            let taken = lane.take(1, || 0, rng, &mut runs);
            assert_eq!(taken, Err(1), "seed {}: {runs:?} after the end", self.seed);
        }
    }

    /// One wake-up of one shard: a few requests of its connection, until one has to wait.
    fn take(&mut self) {
        let reading = self.machine.read_torn(&mut self.rng);
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let (index, now) =
            daemon.paused.take().unwrap_or_else(|| (self.rng.usize(..SHARDS), daemon.wall.believe(reading)));
        daemon.shards[index].wake(now);
        for _ in 0..self.rng.usize(1..4) {
            self.take_once(index, now);
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.shards[index].top_up();
        }
    }

    fn take_once(&mut self, index: usize, now: Now) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        if daemon.waiting[index].is_some() {
            return;
        }
        let count = match self.rng.u8(..10) {
            0..6 => self.rng.u64(1..4),
            6..9 => self.rng.u64(1..500),
            _ => self.rng.u64(1..60_000),
        };
        let ahead = self.rng.u64(..3);
        let mut runs = Vec::new();
        let (lane, rng) = daemon.shards[index].lane(0);
        match lane.take(count, || ahead, rng, &mut runs) {
            Ok(()) => {
                assert_eq!(count_of(&runs), count, "seed {}", self.seed);
                if self.order == Order::Strict {
                    let last = daemon.last_of_all;
                    assert!(
                        runs[0].first > last,
                        "seed {}: {runs:?} after {last} in strict order",
                        self.seed
                    );
                }
                self.check_age(&runs, now);
                self.hand_out(index, &runs, now.wall.0);
            }
            Err(missing) => {
                let due = now.boot.after(Duration::from_micros(self.rng.u64(..200_000)));
                let request = WaitRequest { count: missing, due, partial: self.rng.bool(), shard: index };
                let window = lane.window();
                if let Ok(ticket) = lane.source().admit(&window, request) {
                    let latest_us = now.wall.0;
                    let taken = lane.keep(runs);
                    daemon.waiting[index] = Some(Waiting { ticket, count, taken, latest_us });
                }
            }
        }
    }

    /// IDs that are handed out at once are not older than the burst window.
    fn check_age(&self, runs: &[Run], now: Now) {
        let oldest = now.wall.0 - self.rules.burst_window.as_micros() as i64;
        let oldest = self.numbering.first_of(self.numbering.tick_at(UnixMicros(oldest)));
        for run in runs {
            let (from, _) = interval(&self.numbering, run);
            assert!(from >= oldest.0, "seed {}: {run:?} is older than the burst window", self.seed);
        }
    }

    /// A tick's wake-up: the line advances, and waits that are over are answered.
    fn advance(&mut self) {
        let reading = self.machine.read_torn(&mut self.rng);
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let now = daemon.wall.believe(reading);
        daemon.source.advance(now, &mut self.rng, &Deaf);
        for index in 0..SHARDS {
            let finished = self.daemon.as_ref().map_or_else(Vec::new, |daemon| daemon.source.collect(index));
            for each in finished {
                self.finish(index, each);
            }
        }
    }

    fn finish(&mut self, index: usize, finished: Finished) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let Some(Waiting { ticket, count, taken, latest_us }) = daemon.waiting[index].take() else {
            panic!("seed {}: finished without a wait", self.seed);
        };
        assert_eq!(ticket, finished.ticket);
        let (lane, _) = daemon.shards[index].lane(0);
        let mut runs = Vec::new();
        let refusal = lane.end_wait(taken, &finished, &mut runs);
        let ids = count_of(&runs);
        if refusal.is_none() {
            assert!(ids >= 1 && ids <= count, "seed {}: {ids} of {count}", self.seed);
            self.hand_out(index, &runs, latest_us);
        }
    }

    /// Checks the promises on IDs that leave the daemon; `latest_us` is the highest wall time since they were asked for.
    fn hand_out(&mut self, index: usize, runs: &[Run], latest_us: i64) {
        let seed = self.seed;
        let durable = self.storage.state.granted().expect("stored before use");
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let is_renewed = daemon.renewal.is_done.iter().all(|done| *done);
        assert!(is_renewed, "seed {seed}: handed out under ceilings from before the grant was taken away");
        // A sibling's block may have been claimed by a reading that is newer by as much as readings are torn.
        let latest = latest_us + MAX_AHEAD.as_micros() as i64 + 2 * MS;
        for run in runs {
            assert!(
                run.first > daemon.last_ids[index],
                "seed {seed}: {run:?} on connection {index} goes back"
            );
            daemon.last_ids[index] = run.last();
            let (from, to) = interval(&self.numbering, run);
            assert!(to <= durable.0, "seed {seed}: {to} handed out, durable is {durable:?}");
            let before = self.handed_out.range(..to).next_back();
            assert!(
                before.is_none_or(|(_, &end)| end <= from),
                "seed {seed}: [{from}, {to}) again, after {before:?}"
            );
            self.handed_out.insert(from, to);
            let start = self.numbering.start_of(self.numbering.tick_of(Position(to - 1)));
            assert!(start.0 <= latest, "seed {seed}: {} us ahead", start.0 - latest_us);
            self.granted += to - from;
        }
        if let Some(last) = runs.last() {
            daemon.last_of_all = daemon.last_of_all.max(last.last());
        }
    }

    /// The faults end: storage works and is done with what it was at, the wall clock shows the highest time that it ever showed and runs. Within `max_ahead`
    /// twice over IDs must flow again.
    fn recover(&mut self) {
        (self.storage.fails_one_in, self.storage.is_slow_one_in) = (0, 0);
        self.storage.under_way.iter_mut().for_each(|under_way| under_way.ends_us = self.machine.true_us);
        self.machine.frozen = None;
        self.machine.wall_offset_us = self.highest_wall_us - self.machine.true_us;
        if self.daemon.is_none() {
            self.put_newest_back();
            self.start();
        }
        let before = self.granted;
        for _ in 0..200 {
            self.machine.true_us += 400 * MS;
            self.note_wall();
            self.keep();
            self.advance();
            self.take();
            if self.granted > before {
                return;
            }
        }
        panic!("seed {}: no ID within 80 s of good weather", self.seed);
    }
}

/// An empty directory of locks, in memory where that can be.
fn locks() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory")
}

/// Returns the owner of a state; only its identity counts.
fn owner(state: &State) -> Owner {
    Owner { instance: String::new(), pid: 0, state: format!("{:032x}", state.identity) }
}

fn count_of(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

/// The positions of a run: from, to.
fn interval(numbering: &Numbering, run: &Run) -> (u64, u64) {
    let position = |id| numbering.position_of(id).expect("an ID of this source").0;
    let (first, last) = (position(run.first), position(run.last()));
    assert_eq!(last - first + 1, u64::from(run.count), "a run is consecutive positions");
    (first, last + 1)
}

fn live(seed: u64) {
    let mut world = World::new(seed);
    world.start();
    for _ in 0..STEPS {
        world.step();
    }
    world.recover();
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number is wanted")))
}

/// A process that is killed again and again, after it has served for a while each time.
fn crash_again_and_again(seed: u64) {
    let mut world = World::new(seed);
    (world.storage.fails_one_in, world.storage.is_slow_one_in) = (0, 0);
    let uptime_us = (50 * MS).max(10 * MS * world.numbering.layout().tick_ms() as i64);
    for _ in 0..200 {
        world.start();
        let killed_at_us = world.machine.true_us + uptime_us;
        while world.machine.true_us < killed_at_us {
            world.machine.true_us += MS;
            world.note_wall();
            world.take();
            world.advance();
            world.keep();
        }
        world.kill();
    }
    let ceiling = world.read().expect("stored before use").ceiling;
    let ahead_us = world.numbering.start_of(world.numbering.tick_of(ceiling)).0 - world.machine.wall();
    let most_us = HORIZON.as_micros() as i64 + SECOND;
    assert!(ahead_us <= most_us, "seed {seed}: the next start is {ahead_us} us ahead");
    world.recover();
}

/// A machine whose own clock is slow boots again, and its time server sets it right later: IDs flow from then on, for what
/// was granted in the boot before shows that this is no wrong step.
fn boot_with_a_slow_clock(seed: u64) {
    let mut world = World::new(seed);
    (world.storage.fails_one_in, world.storage.is_slow_one_in) = (0, 0);
    world.start();
    let serve = |world: &mut World| {
        for _ in 0..20 {
            world.machine.true_us += 100 * MS;
            world.note_wall();
            world.keep();
            world.advance();
            world.take();
        }
        world.granted
    };
    let before = serve(&mut world);
    assert!(before > 0, "seed {seed}: no IDs");
    if seed.is_multiple_of(2) {
        world.stop();
    }
    world.reboot();
    // As long as the largest step believed at once the machine may have been off.
    world.machine.true_us += world.rng.i64(0..55 * SECOND);
    world.machine.wall_offset_us = -3_600 * SECOND;
    world.start();
    assert_eq!(serve(&mut world), before, "seed {seed}: an hour ahead of the clock");
    world.machine.wall_offset_us = 0;
    assert!(serve(&mut world) > before, "seed {seed}: refused though the clock is right");
}

#[test]
fn a_clock_that_was_slow_at_boot_is_followed_as_soon_as_it_is_right() {
    (0..100).for_each(boot_with_a_slow_clock);
}

#[test]
fn a_crash_loop_gains_less_than_the_wall_clock() {
    (0..20).for_each(crash_again_and_again);
}

#[test]
fn a_daemons_life_keeps_the_promises() {
    if let Some(seed) = from_environment("SNOWBANK_SEED") {
        return live(seed);
    }
    let seeds = from_environment("SNOWBANK_SEEDS").unwrap_or(3_000);
    for seed in 0..seeds {
        live(seed);
    }
}
