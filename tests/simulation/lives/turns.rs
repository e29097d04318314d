//! A daemon whose worker IDs change at clean restarts, with any layout, mostly without a request in
//! between. The shipped start, state file and locks run.

use std::collections::HashSet;
use std::sync::Arc;

use snowbank::config::SourceSettings;
use snowbank::server::simulated::{self, Ceilings};
use snowbank_core::shard::Order;
use snowbank_id::layout::{Layout, Position, Tick, UnixMicros};
use tempfile::TempDir;

use super::layouts;
use super::machine::Machine;
use super::{MS, SECOND, STEP_RULE, load, shards, source_toml};
use crate::support::directory;

/// Sets without a common worker ID. If two sets shared a worker ID, a start with one set would
/// begin above the IDs of the other set.
const DISJOINT: [&str; 4] = ["0", "1-2", "3", "4-5"];
/// Sets that share worker IDs. Some sets contain other sets.
const MIXED: [&str; 6] = ["0", "0-3", "1-2", "2,5", "1,3-5", "0-5"];
const NAMES: [&str; 3] = ["orders", "invoices", "users"];
const RESTARTS: usize = 16;
/// The fewest IDs that a tick may have: more than a life with [`Sets::Disjoint`] uses.
const IDS_PER_TICK_MIN: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sets {
    /// Disjoint sets: the first ID of each life comes at once.
    Disjoint,
    /// Mixed sets and names, with requests in the first and the last life only. No start is further
    /// ahead than the tick after the next.
    MixedAndIdle,
    /// Mixed sets and names, with many requests: no ID comes twice.
    MixedAndBusy,
}

struct Turns {
    seed: u64,
    rng: fastrand::Rng,
    machine: Machine,
    layout: Layout,
    locks: TempDir,
    /// `None` if the daemon keeps no state.
    state: Option<TempDir>,
    handed_out: HashSet<u64>,
}

impl Turns {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let true_us = 1_800_000_000 * SECOND + rng.i64(0..86_400 * SECOND);
        let layout = loop {
            let layout = layouts::random(&mut rng, UnixMicros(true_us));
            let needed_us = 2 * RESTARTS as i64 * (tick_us(&layout) + SECOND);
            if layout.ids_per_tick() >= IDS_PER_TICK_MIN && layout.end().0 > true_us + needed_us {
                break layout;
            }
        };
        let state = rng.bool().then(directory);
        let machine = Machine::booted_before(true_us);
        Turns { seed, rng, machine, layout, locks: directory(), state, handed_out: HashSet::new() }
    }

    fn settings(&self, name: &str, workers: &str) -> Vec<SourceSettings> {
        let toml = source_toml(name, &self.layout.to_string(), workers);
        let settings = load(&toml, self.machine.read().wall);
        settings.unwrap_or_else(|error| panic!("seed {}: {toml}: {error:?}", self.seed)).sources
    }

    /// Starts a process with a source of this name and these worker IDs.
    fn begin(&self, name: &str, workers: &str) -> Ceilings {
        let seed = self.seed;
        let settings = self.settings(name, workers);
        let directory = self.state.as_ref().map(TempDir::path);
        let on = simulated::Place { directory, adopt: false, lock_dir: self.locks.path(), boot: "0" };
        let ceilings = Ceilings::start(on, &settings, STEP_RULE, self.machine.read());
        ceilings.unwrap_or_else(|error| panic!("seed {seed}: {name} {workers}: {error}"))
    }

    /// Makes requests. Between them, the keeper raises the ceilings.
    fn claim(&mut self, ceilings: &mut Ceilings) {
        let reading = self.machine.read();
        let now = ceilings.keeper.believe(reading);
        for _ in 0..self.rng.usize(1..4) {
            let source = Arc::clone(ceilings.keeper.sources().next().expect("there is one source"));
            let count = self.rng.u64(1..300);
            if let Some(from) = source.claim(&source.window(now), count, &mut self.rng) {
                for position in from.0..from.0 + count {
                    self.hand_out(source.numbering().id_at(Position(position)));
                }
            }
            for write in ceilings.keeper.poll(reading).writes {
                let outcome = ceilings.write(&write);
                ceilings.written(outcome, reading);
            }
        }
    }

    fn hand_out(&mut self, id: u64) {
        assert!(
            self.handed_out.insert(id),
            "seed {}: {id} of {} is handed out twice",
            self.seed,
            self.layout
        );
    }

    fn check_start(&self, ceilings: &Ceilings) {
        let source = ceilings.keeper.sources().next().expect("there is one source");
        let numbering = source.numbering();
        let start = source.cursor().expect("not sealed");
        // The first start skips a tick. A lower worker ID may have its next ID only in the tick
        // after that.
        let tick = numbering.tick_at(UnixMicros(self.machine.wall()));
        let tick_of_start = numbering.tick_of(start);
        assert!(
            start <= numbering.first_of(Tick(tick.0 + 2)),
            "seed {}: {} starts in {tick_of_start:?} at {tick:?}",
            self.seed,
            self.layout
        );
    }

    /// Expects the first ID at once, or with the next tick if the daemon keeps no state.
    fn expect_an_id(&mut self, ceilings: &Ceilings) {
        let now = ceilings.keeper.believe(self.machine.read());
        let source = ceilings.keeper.sources().next().expect("there is one source");
        let shard = &mut shards(1, &[Arc::clone(source)], Order::Relaxed, self.seed, now)[0];
        let longest_us = if self.state.is_some() { 0 } else { tick_us(&self.layout) };
        let until_us = self.machine.true_us + longest_us;
        let mut runs = Vec::new();
        loop {
            shard.wake(ceilings.keeper.believe(self.machine.read()));
            let (lane, rng) = shard.lane(0);
            match lane.take(1, || 0, rng, &mut runs) {
                Ok(()) => break,
                Err(_) => {
                    let seed = self.seed;
                    let layout = &self.layout;
                    assert!(self.machine.true_us < until_us, "seed {seed}: no ID of {layout}");
                    self.machine.true_us += (longest_us / 100).max(MS);
                }
            }
        }
        self.hand_out(runs[0].first);
    }
}

fn tick_us(layout: &Layout) -> i64 {
    layout.tick_ms() as i64 * MS
}

/// Restarts many times. Checks that no start is refused, however often the worker IDs change.
pub(crate) fn take_turns(seed: u64, sets: Sets) {
    let mut turns = Turns::new(seed);
    for restart in 1..=RESTARTS {
        let is_last = restart == RESTARTS;
        if sets == Sets::Disjoint {
            let workers = DISJOINT[turns.rng.usize(..DISJOINT.len())];
            let ceilings = turns.begin(NAMES[0], workers);
            if is_last || turns.rng.u8(..3) == 0 {
                turns.expect_an_id(&ceilings);
            }
            ceilings.stop().expect("storage works");
        } else {
            let name = NAMES[turns.rng.usize(..NAMES.len())];
            let workers = MIXED[turns.rng.usize(..MIXED.len())];
            let mut ceilings = turns.begin(name, workers);
            if sets == Sets::MixedAndIdle {
                turns.check_start(&ceilings);
            }
            if sets == Sets::MixedAndBusy || restart == 1 || is_last {
                turns.claim(&mut ceilings);
            }
            ceilings.stop().expect("storage works");
        }
        turns.machine.true_us += turns.rng.i64(0..2 * SECOND);
    }
}
