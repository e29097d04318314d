//! One daemon whose state is never lost, under an operator. Sources come and go with each start, so
//! do worker IDs, layouts and the maximum of a counter. Commands forget records and set counters.
//! The machine boots with a slow clock, and the kernel reports restores while the disk hangs. The
//! shipped start, keeper, state file and locks run, in directories in memory.

use std::collections::HashSet;

use snowbank::config::{Settings, SourceSettings};
use snowbank::server::StartError;
use snowbank::server::simulated::{Ceilings, Place};
use snowbank_core::shard::{Order, Shard};
use snowbank_id::numbering::Numbering;
use snowbank_state::store::{self, Record, StateDir};
use snowbank_state::{HostIdentity, Owner, lock_workers_at_once};
use tempfile::TempDir;

use super::machine::Machine;
use super::{MS, SECOND, STEP_RULE, WORLDS_BEGIN_US, load, shards, source_toml};
use crate::support::directory;

const STEPS: usize = 300;
const WORKERS: [&str; 5] = ["1", "2", "1-3", "4", "2,5"];
/// Two layouts of one ID space, one of another space that can make the same IDs, and one whose IDs
/// the others never make. Only the last one has another tick.
const LAYOUTS: [&str; 4] = [
    "twitter",
    "time:41,machine:10,sequence:12;epoch=1288834974657",
    "time:41,worker:12,sequence:10;epoch=1288834974657",
    "time:39,sequence:8,machine:16;tick=10ms",
];

struct Life {
    seed: u64,
    rng: fastrand::Rng,
    machine: Machine,
    boots: u32,
    state: TempDir,
    locks: TempDir,
    process: Option<(Ceilings, Vec<Shard>, Settings)>,
    /// True once writes never end any more in this process.
    hangs: bool,
    /// True if a process has ended while the disk hung after a restore, so no record shows it.
    is_unrecorded: bool,
    /// All IDs handed out, with the tick of the layout or the name of the counter.
    handed_out: HashSet<(String, u64)>,
    /// The highest number of the counter that any copy of the machine handed out, or to which the
    /// counter was set.
    highest: u64,
}

/// Returns a name that all sources have which can make the same IDs.
fn space_of(source: &SourceSettings) -> String {
    match source.numbering().expect("the settings are checked") {
        Numbering::Snowflake(numbering) => numbering.layout().tick_ms().to_string(),
        Numbering::Ticket(counter) => counter.name().to_owned(),
    }
}

impl Life {
    fn new(seed: u64) -> Self {
        Life {
            seed,
            rng: fastrand::Rng::with_seed(seed),
            machine: Machine::booted_before(WORLDS_BEGIN_US),
            boots: 0,
            state: directory(),
            locks: directory(),
            process: None,
            hangs: false,
            is_unrecorded: false,
            handed_out: HashSet::new(),
            highest: 0,
        }
    }

    fn random_settings(&mut self) -> Settings {
        loop {
            let mut toml = String::new();
            for name in ["orders", "events"] {
                if self.rng.u8(..4) > 0 {
                    let layout = LAYOUTS[[0, 0, 0, 1, 2, 3][self.rng.usize(..6)]];
                    toml += &source_toml(name, layout, WORKERS[self.rng.usize(..WORKERS.len())]);
                }
            }
            if toml.is_empty() || self.rng.bool() {
                let increment = self.rng.u64(1..3);
                toml +=
                    &format!("[[sources]]\nname = \"rows\"\nkind = \"ticket\"\nincrement = {increment}\n");
                if self.rng.bool() {
                    toml += &format!("maximum = {}\n", self.highest + self.rng.u64(1..9));
                }
            }
            if let Ok(settings) = load(&toml, self.machine.read().wall) {
                return settings;
            }
        }
    }

    fn start(&mut self) {
        let settings = self.random_settings();
        let reading = self.machine.read();
        let boot = self.boots.to_string();
        let place = Place {
            directory: Some(self.state.path()),
            adopt: false,
            lock_dir: self.locks.path(),
            boot: &boot,
        };
        let seed = self.seed;
        match Ceilings::start(place, &settings.sources, STEP_RULE, reading) {
            Ok(ceilings) => {
                let now = ceilings.keeper.believe(reading);
                let sources: Vec<_> = ceilings.keeper.sources().cloned().collect();
                let shards = shards(2, &sources, Order::Relaxed, seed, now);
                self.process = Some((ceilings, shards, settings));
            }
            Err(StartError::WrongSetting(reason)) if reason.contains("ticket set") => self.set_counter(),
            // The maximum, or a changed layout.
            Err(StartError::WrongSetting(_) | StartError::ClockBehind(_) | StartError::ClockStepped(_)) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }

    /// Sets the counter, as `snowbank ticket set` does: above all that the state and the marks show, or
    /// with `--lower` right above the highest number that was handed out.
    fn set_counter(&mut self) {
        let mut records = store::read(self.state.path()).expect("the state can be read");
        let rows = "[[sources]]\nname = \"rows\"\nkind = \"ticket\"\n";
        let rows = load(rows, self.machine.read().wall).expect("it is right").sources.remove(0);
        let numbering = rows.numbering().expect("a counter");
        let owner = Owner::after(records.iter().map(|record| &record.owner));
        let mut locks = lock_workers_at_once(self.locks.path(), &numbering).expect("it is free");
        let marks = locks.marks().expect("the marks can be read");
        let by_marks = marks.iter().map(|mark| mark.id_bound);
        let wanted =
            Record::new("rows", &numbering, numbering.position_from(0), &owner, &HostIdentity::default());
        let by_state = records.iter().filter(|record| record.key() == wanted.key()).map(|it| it.id_bound);
        let shown = by_marks.chain(by_state).max().filter(|_| self.rng.bool());
        let id_bound = shown.unwrap_or(0).max(self.highest + 1);
        self.highest = id_bound - 1;
        let record = wanted.below(id_bound);
        records.retain(|other| other.key() != record.key());
        locks.mark_for(&owner);
        let mark = snowbank_state::Mark::granted(record.id_bound, &owner.state);
        records.push(Record { clean: true, ..record });
        let directory = StateDir::lock(self.state.path()).expect("it is free");
        store::write(&directory, &records).expect("it is written");
        locks.mark_anew(&mark).expect("it is marked");
    }

    /// Forgets unused worker IDs, as `snowbank state forget` does.
    fn forget(&mut self) {
        let directory = StateDir::lock(self.state.path()).expect("it is free");
        let mut records = directory.read().expect("the state can be read");
        store::forget(&mut records, self.machine.read().wall);
        store::write(&directory, &records).expect("it is written");
    }

    fn keep(&mut self) {
        let reading = self.machine.read();
        let Some((ceilings, ..)) = &mut self.process else { return };
        for write in ceilings.poll(reading).writes {
            if !self.hangs {
                let outcome = ceilings.write(&write);
                ceilings.written(outcome, reading);
            }
        }
    }

    fn draw(&mut self) {
        let reading = self.machine.read();
        let Some((ceilings, shards, settings)) = &mut self.process else { return };
        let now = ceilings.keeper.believe(reading);
        let source = self.rng.usize(..settings.sources.len());
        let shard = &mut shards[self.rng.usize(..2)];
        shard.wake(now);
        let (lane, rng) = shard.lane(source);
        let mut runs = Vec::new();
        if lane.take(self.rng.u64(1..4), || 0, rng, &mut runs).is_err() {
            return;
        }
        shard.top_up();
        let space = space_of(&settings.sources[source]);
        for run in runs {
            for id in (0..u64::from(run.count)).map(|index| run.first + index * run.stride) {
                if space == "rows" {
                    self.highest = self.highest.max(id);
                }
                let is_new = self.handed_out.insert((space.clone(), id));
                assert!(is_new, "seed {}: {id} of {space} is handed out twice", self.seed);
            }
        }
    }

    /// Lets the kernel report a restore, perhaps while the disk hangs. The other copy of the machine
    /// hands out the next number of the counter.
    fn restore(&mut self) {
        self.hangs |= self.rng.bool();
        self.keep();
        let Some((ceilings, _, settings)) = &self.process else { return };
        for (source, settings) in ceilings.keeper.sources().zip(&settings.sources) {
            source.record_restored();
            if let (Some(cursor), "rows") = (source.cursor(), &*settings.name)
                && cursor < source.numbering().end()
            {
                let theirs = source.numbering().id_at(cursor);
                self.handed_out.insert((String::from("rows"), theirs));
                self.highest = self.highest.max(theirs);
            }
        }
        self.keep();
        self.draw();
    }

    fn end(&mut self, is_clean: bool) {
        if let Some((ceilings, ..)) = self.process.take()
            && is_clean
            && !self.hangs
        {
            ceilings.stop().expect("storage works");
        }
        self.is_unrecorded |= std::mem::take(&mut self.hangs);
    }

    /// Boots the machine, perhaps with a slow clock. The marks are gone. If a mark alone showed a
    /// restore, the operator sets the counter.
    fn reboot(&mut self) {
        self.end(false);
        self.boots += 1;
        self.locks = directory();
        self.machine.boot_at_us = self.machine.true_us;
        self.machine.wall_offset_us = -[0, 5 * SECOND, 20 * SECOND, 90 * SECOND][self.rng.usize(..4)];
        if std::mem::take(&mut self.is_unrecorded) {
            self.set_counter();
        }
    }

    fn step(&mut self) {
        let most_us = [MS, 50 * MS, 9 * SECOND][self.rng.usize(..20).saturating_sub(17)];
        self.machine.true_us += self.rng.i64(0..most_us);
        self.keep();
        if self.process.is_none() {
            return match self.rng.u8(..12) {
                0..2 => self.forget(),
                2 => self.reboot(),
                3 => self.machine.wall_offset_us = 0,
                _ => self.start(),
            };
        }
        match self.rng.u8(..100) {
            0..85 => self.draw(),
            85..92 => self.end(true),
            92..96 => self.end(false),
            96..98 => self.restore(),
            _ => self.machine.wall_offset_us -= self.rng.i64(0..2 * SECOND),
        }
    }
}

pub(super) fn live(seed: u64) {
    let mut life = Life::new(seed);
    (0..STEPS).for_each(|_| life.step());
}
