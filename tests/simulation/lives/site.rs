//! A machine with two daemons, each with its own state or none, and several sources. A start may
//! have other layouts and worker IDs than the start before it, even those that the other daemon
//! had. Sources are added at restarts. States are lost, or replaced by older copies, which an
//! operator may adopt. The machine boots again. The shipped start, keeper, state file and locks
//! run, in directories in memory.

use std::collections::HashSet;

use snowbank::config::{Settings, SourceSettings};
use snowbank::server::StartError;
use snowbank::server::simulated::{self, Ceilings};
use snowbank_core::keeper::{Outcome, Write};
use snowbank_core::shard::{Order, Shard};
use snowbank_id::layout::Layout;
use tempfile::TempDir;

use super::machine::Machine;
use super::places::Place;
use super::{MS, SECOND, STEP_RULE, load, shards, source_toml};
use crate::support::directory;

/// The first two layouts have the same ID space. IDs of the third are higher, so after the third, a
/// start with one of the first two is refused.
const LAYOUTS: [&str; 3] = [
    "twitter",
    "time:41,machine:10,sequence:12;epoch=1288834974657",
    "time:39,sequence:8,machine:16;tick=10ms",
];
const WORKERS: [&str; 6] = ["1", "2", "0-3", "2,5", "4-9", "9"];
const NAMES: [&str; 3] = ["orders", "batches", "events"];
const SHARDS: usize = 2;
const STEPS: usize = 600;
/// The time after which a held forward step is believed.
const STEP_HOLD_US: i64 = STEP_RULE.step_hold.as_micros() as i64;
/// The longest time until IDs flow again, once clocks and storage work. A forward step is held for
/// [`STEP_HOLD_US`], and an ID clock is ahead by at most `max_ahead`.
const RECOVERS_WITHIN_US: i64 = 80 * SECOND;

pub(crate) struct Process {
    ceilings: Ceilings,
    shards: Vec<Shard>,
    pub(crate) settings: Settings,
    in_flight: Option<(i64, Write)>,
}

pub(crate) struct Site {
    seed: u64,
    pub(crate) rng: fastrand::Rng,
    pub(crate) machine: Machine,
    pub(crate) highest_wall_us: i64,
    /// The wall clock does not step back below this time. Marks alone protect a worker ID that a
    /// state does not know, and a boot clears the marks.
    pub(crate) lowest_wall_us: i64,
    /// The time when the wall clock was last set. While a forward step is held, a start may refuse
    /// marks that were made after the step, because they seem to be too far ahead.
    pub(crate) set_at_us: i64,
    pub(crate) boots: u32,
    pub(crate) locks: TempDir,
    pub(crate) places: [Place; 2],
    /// All IDs handed out, with the index of the first layout that has their ID space.
    handed_out: HashSet<(usize, u64)>,
    fails_one_in: u32,
}

/// Returns the index of the first layout with this layout's ID space.
fn space_of(layout: &Layout) -> usize {
    let space = layout.space();
    let found = LAYOUTS.iter().position(|text| Layout::resolve(text).expect("a layout").space() == space);
    found.expect("one of LAYOUTS")
}

fn collide(left: &SourceSettings, right: &SourceSettings) -> bool {
    let ours = &left.worker_ids.set;
    left.layout.concurrent_collision(ours, &right.layout, &right.worker_ids.set).is_some()
}

fn random_source(name: &str, rng: &mut fastrand::Rng) -> String {
    let layout = LAYOUTS[rng.usize(..LAYOUTS.len())];
    source_toml(name, layout, WORKERS[rng.usize(..WORKERS.len())])
}

impl Process {
    fn open_lanes(&mut self, seed: u64, machine: &Machine) {
        let now = self.ceilings.keeper.believe(machine.read());
        let sources: Vec<_> = self.ceilings.keeper.sources().cloned().collect();
        self.shards = shards(SHARDS, &sources, Order::Relaxed, seed, now);
    }
}

impl Site {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let true_us = 1_800_000_000 * SECOND + rng.i64(0..SECOND);
        Site {
            seed,
            places: [Place::new(true), Place::new(rng.u8(..3) > 0)],
            machine: Machine::booted_before(true_us),
            highest_wall_us: true_us,
            lowest_wall_us: true_us - 3_600 * SECOND,
            set_at_us: i64::MIN,
            boots: 0,
            locks: directory(),
            handed_out: HashSet::new(),
            fails_one_in: [0, 0, 10][rng.usize(..3)],
            rng,
        }
    }

    pub(crate) fn keeps_all(&self) -> bool {
        self.places.iter().all(|place| place.state.is_some())
    }

    /// Draws a configuration without sources that collide, or returns the last configuration that
    /// started.
    fn random_settings(&mut self, index: usize) -> Settings {
        if self.rng.bool()
            && let Some(started) = &self.places[index].known.started
        {
            return started.clone();
        }
        loop {
            let count = self.rng.usize(1..=2);
            let toml: String = NAMES[..count].iter().map(|name| random_source(name, &mut self.rng)).collect();
            if let Ok(settings) = load(&toml, self.machine.read().wall) {
                return settings;
            }
        }
    }

    /// Returns whether the other daemon holds worker IDs of this source.
    fn is_held(&self, index: usize, source: &SourceSettings) -> bool {
        let other = self.places[1 - index].process.as_ref();
        other.is_some_and(|process| process.settings.sources.iter().any(|theirs| collide(theirs, source)))
    }

    fn start_with(&mut self, index: usize, settings: Settings) {
        let is_held = settings.sources.iter().any(|source| self.is_held(index, source));
        // A start waits in real time for a lock that another process holds. So only a few starts
        // ask for a held worker ID.
        if is_held && self.rng.u8(..40) > 0 {
            return;
        }
        // Sometimes an operator adopts the state, even if it is the newest.
        let is_older = self.places[index].is_older;
        let adopt = self.rng.u8(..4) == 0;
        let boot = self.boots.to_string();
        let place = &mut self.places[index];
        let directory = place.state.as_ref().map(TempDir::path);
        let on = simulated::Place { directory, adopt, lock_dir: self.locks.path(), boot: &boot };
        let reading = self.machine.read();
        let seed = self.seed;
        let is_changed = place.known.started.as_ref() != Some(&settings);
        match Ceilings::start(on, &settings.sources, STEP_RULE, reading) {
            Ok(ceilings) => {
                assert!(!is_held, "seed {seed}: two daemons have a worker ID: {:?}", settings.sources);
                place.known.started = Some(settings.clone());
                place.newest = None;
                let mut process = Process { ceilings, shards: Vec::new(), settings, in_flight: None };
                process.open_lanes(seed, &self.machine);
                place.process = Some(process);
                place.forget_renamed();
            }
            Err(StartError::WorkerIdHeld(_)) => assert!(is_held, "seed {seed}: free worker IDs are refused"),
            Err(StartError::OlderState(reason)) => {
                assert!(is_older, "seed {seed}: the newest state is taken for an older copy: {reason}");
                match self.rng.u8(..3) {
                    0 => place.lose(),
                    1 => place.put_newest_back(),
                    _ => {}
                }
            }
            // The IDs of a changed layout may be too low. The configuration of the last start is
            // never refused for that reason.
            Err(StartError::WrongSetting(reason)) => {
                assert!(
                    is_changed,
                    "seed {seed}: a start is refused although its configuration has not changed: {reason}"
                );
            }
            // The configuration of the last start is refused only if its marks are far above the
            // clock: the clock stepped back, its forward step is held, or an older copy is adopted.
            Err(StartError::ClockBehind(reason)) => {
                let is_behind = reading.wall.0 < self.highest_wall_us;
                let is_held = self.machine.true_us < self.set_at_us.saturating_add(STEP_HOLD_US);
                assert!(
                    is_changed || is_behind || is_older || is_held,
                    "seed {seed}: a start is refused without a cause: {reason}"
                );
            }
            // The daemon waits, with worker IDs that its last run had not.
            Err(StartError::ClockStepped(reason)) => {
                let is_held = self.machine.true_us < self.set_at_us.saturating_add(STEP_HOLD_US);
                assert!(is_changed && is_held, "seed {seed}: a start waits without a cause: {reason}");
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }

    fn add_source(&mut self, index: usize) {
        let Some(process) = &self.places[index].process else { return };
        let count = process.settings.sources.len();
        if count == NAMES.len() {
            return;
        }
        let sources = process.settings.sources.iter().map(|source| {
            source_toml(&source.name, &source.layout.to_string(), &source.worker_ids.set.to_string())
        });
        let toml = sources.collect::<String>() + &random_source(NAMES[count], &mut self.rng);
        if let Ok(settings) = load(&toml, self.machine.read().wall) {
            let is_clean = self.rng.bool();
            self.end(index, is_clean);
            self.start_with(index, settings);
        }
    }

    /// Ends the write in flight if its time has come, and polls the keeper.
    fn keep(&mut self, index: usize) {
        let reading = self.machine.read();
        let now_us = self.machine.true_us;
        let seed = self.seed;
        let fails = self.fails_one_in > 0 && self.rng.u32(..self.fails_one_in) == 0;
        let Some(process) = &mut self.places[index].process else { return };
        if let Some((_, write)) = process.in_flight.take_if(|(ends_us, _)| *ends_us <= now_us) {
            // A failed write may be durable.
            let is_made = !fails || self.rng.bool();
            let made = is_made.then(|| process.ceilings.write(&write));
            let made = made.filter(|_| !fails).unwrap_or_else(|| {
                let failure = Some(String::from("the disk failed"));
                Outcome { writer: write.writer, number: write.number, failure }
            });
            assert!(fails || made.failure.is_none(), "seed {seed}: {made:?}");
            process.ceilings.written(made, reading);
        }
        let Some(process) = &mut self.places[index].process else { return };
        let mut writes = process.ceilings.poll(reading).writes;
        if let Some(write) = writes.pop() {
            let takes_us = [2 * MS, 500 * MS, 4 * SECOND][self.rng.usize(..20).saturating_sub(17)];
            process.in_flight = Some((now_us + self.rng.i64(0..takes_us), write));
        }
    }

    /// Lets one shard serve one request. Returns whether the request got IDs.
    fn draw(&mut self, index: usize, source: usize) -> bool {
        let reading = self.machine.read();
        let seed = self.seed;
        let Place { process: Some(process), known, state, .. } = &mut self.places[index] else {
            return false;
        };
        let now = process.ceilings.keeper.believe(reading);
        let shard = &mut process.shards[self.rng.usize(..SHARDS)];
        shard.wake(now);
        let (lane, rng) = shard.lane(source);
        let mut runs = Vec::new();
        if lane.take(self.rng.u64(1..30), || 0, rng, &mut runs).is_err() {
            return false;
        }
        shard.top_up();
        let SourceSettings { name, layout, .. } = &process.settings.sources[source];
        let space = space_of(layout);
        for run in &runs {
            let ids = (0..u64::from(run.count)).map(|index| run.first + index * run.stride);
            for id in ids {
                assert!(
                    self.handed_out.insert((space, id)),
                    "seed {seed}: {id} of {name} is handed out twice"
                );
            }
        }
        // With a state, a source's IDs lie above its earlier IDs after a change of the ID space.
        // After a change of worker IDs in the same space, they need not.
        let first = runs[0].first;
        let last = runs.iter().map(|run| run.last()).max().expect("a run");
        let settings = &process.settings.sources[source];
        let (before, highest) = known.highest.entry(name.clone()).or_insert_with(|| (settings.clone(), 0));
        assert!(
            space_of(&before.layout) == space || first > *highest || state.is_none(),
            "seed {seed}: {first} of {name} in another layout, after {highest}"
        );
        (*before, *highest) = (settings.clone(), last.max(*highest));
        true
    }

    /// Ends the process: cleanly, or within a write that may or may not take effect.
    pub(crate) fn end(&mut self, index: usize, is_clean: bool) {
        let Some(mut process) = self.places[index].process.take() else { return };
        let write = process.in_flight.take().filter(|_| is_clean || self.rng.bool());
        if let Some((_, write)) = write {
            process.ceilings.write(&write);
        }
        if is_clean {
            process.ceilings.stop().expect("storage works");
        }
        if self.places[index].state.is_none() {
            // Without a state, a daemon repeats IDs unless the clock has passed all IDs handed out.
            self.elapse(20 * MS);
        }
    }

    fn elapse(&mut self, lasting_us: i64) {
        self.machine.true_us += lasting_us;
        self.highest_wall_us = self.highest_wall_us.max(self.machine.wall());
    }

    fn pass(&mut self, lasting_us: i64) {
        self.elapse(lasting_us);
        (0..self.places.len()).for_each(|index| self.keep(index));
    }

    fn step(&mut self) {
        let lasting_us = [MS, 50 * MS, 2 * SECOND][self.rng.usize(..20).saturating_sub(17)];
        let lasting_us = self.rng.i64(0..lasting_us);
        self.pass(lasting_us);
        let index = self.rng.usize(..self.places.len());
        let Some(process) = &self.places[index].process else {
            let settings = self.random_settings(index);
            return self.start_with(index, settings);
        };
        let sources = process.settings.sources.len();
        match self.rng.u8(..100) {
            0..80 => {
                let source = self.rng.usize(..sources);
                self.draw(index, source);
            }
            80..86 => self.add_source(index),
            86..90 => self.disturb_the_clock(),
            90..95 => self.end(index, true),
            95..97 => self.end(index, false),
            97..99 => self.disturb_the_state(index),
            _ if self.rng.u8(..3) == 0 => self.reboot(),
            _ => {}
        }
    }

    /// Makes storage work and corrects the clock. Checks that each daemon starts as before, and
    /// that each source has IDs again.
    fn recover(&mut self) {
        self.fails_one_in = 0;
        self.set_clock_right();
        for index in 0..self.places.len() {
            self.end(1 - index, true);
            if self.places[index].process.is_none() {
                self.places[index].put_newest_back();
            }
            if self.places[index].process.is_none()
                && let Some(started) = self.places[index].known.started.clone()
            {
                self.start_with(index, started);
            }
            let Some(process) = &self.places[index].process else { continue };
            for source in 0..process.settings.sources.len() {
                let until_us = self.machine.true_us + RECOVERS_WITHIN_US;
                while !self.draw(index, source) {
                    let seed = self.seed;
                    assert!(self.machine.true_us < until_us, "seed {seed}: no IDs of source {source}");
                    self.pass(100 * MS);
                }
            }
        }
    }
}

pub(crate) fn live(seed: u64) {
    let mut site = Site::new(seed);
    (0..STEPS).for_each(|_| site.step());
    site.recover();
}
