//! A daemon whose worker IDs change in turn, with any layout: clean restarts, mostly without a
//! request. The shipped start, state file and locks run.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use snowbank::config::{self, Overrides, SourceSettings};
use snowbank::server::simulated::{self, Ceilings};
use snowbank::shard::{Lane, Order, Ring, Rings, Shard};
use snowbank_client::layout::{Layout, UnixMicros};
use tempfile::TempDir;

use super::layouts;
use super::machine::Machine;
use super::world::locks;
use super::{MS, SECOND, STEP_RULE};

/// Sets without a common worker ID: a set that shares one with another starts above the other's
/// IDs.
const WORKERS: [&str; 4] = ["0", "1-2", "3", "4-5"];
const RESTARTS: usize = 16;
/// A tick has at least this many IDs. A life never uses one up.
const IDS_PER_TICK_MIN: u64 = 1_000;

struct Turns {
    seed: u64,
    rng: fastrand::Rng,
    machine: Machine,
    layout: Layout,
    locks: TempDir,
    /// `None` if nothing is kept.
    state: Option<TempDir>,
    handed_out: HashSet<u64>,
}

impl Turns {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let true_us = 1_800_000_000 * SECOND + rng.i64(0..86_400 * SECOND);
        let layout = loop {
            let layout = layouts::draw(&mut rng, UnixMicros(true_us));
            let needed_us = 2 * RESTARTS as i64 * (tick_us(&layout) + SECOND);
            if layout.ids_per_tick() >= IDS_PER_TICK_MIN && layout.end().0 > true_us + needed_us {
                break layout;
            }
        };
        let state = rng.bool().then(locks);
        let boot_at_us = true_us - 500 * SECOND;
        let machine = Machine { true_us, boot_at_us, wall_offset_us: 0, frozen: None };
        Turns { seed, rng, machine, layout, locks: locks(), state, handed_out: HashSet::new() }
    }

    fn settings(&self, workers: &str) -> Vec<SourceSettings> {
        let toml = format!("layout = \"{}\"\nworker_ids = \"{workers}\"\n", self.layout);
        let file = Some((Path::new("snowbank.toml"), toml.as_str()));
        let now = UnixMicros(self.machine.wall());
        let settings = config::load(file, &Overrides::default(), NonZeroUsize::MIN, now);
        settings.unwrap_or_else(|error| panic!("seed {}: {toml}: {error:?}", self.seed)).sources
    }

    /// Starts a process with these worker IDs, sometimes requests an ID, and stops it.
    fn live_with(&mut self, workers: &str, is_asked: bool) {
        let seed = self.seed;
        let settings = self.settings(workers);
        let reading = self.machine.read();
        let directory = self.state.as_ref().map(TempDir::path);
        let on = simulated::Place { directory, adopt: false, lock_dir: self.locks.path(), boot: "0" };
        let ceilings = Ceilings::start(on, &settings, STEP_RULE, reading);
        let ceilings = ceilings.unwrap_or_else(|error| panic!("seed {seed}: {workers}: {error}"));
        if is_asked {
            self.expect_an_id(&ceilings);
        }
        ceilings.stop().expect("storage works");
    }

    /// The first ID comes at once; if nothing is kept, with the next tick.
    fn expect_an_id(&mut self, ceilings: &Ceilings) {
        let now = ceilings.keeper.believe(self.machine.read());
        let source = ceilings.keeper.sources().next().expect("it has one");
        let rings: Rings = std::iter::once(Ring::default()).collect();
        let lane = Lane::new(Arc::clone(source), rings, 0, Order::Relaxed, now);
        let mut shard = Shard::new(0, vec![lane], self.seed, now);
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
        let id = runs[0].first;
        assert!(self.handed_out.insert(id), "seed {}: {id} of {} again", self.seed, self.layout);
    }
}

fn tick_us(layout: &Layout) -> i64 {
    layout.tick_ms() as i64 * MS
}

/// Restarts again and again. However often the worker IDs change, no start is further ahead of the
/// clock than the next tick.
pub(crate) fn take_turns(seed: u64) {
    let mut turns = Turns::new(seed);
    for restart in 1..=RESTARTS {
        let workers = WORKERS[turns.rng.usize(..WORKERS.len())];
        let is_asked = restart == RESTARTS || turns.rng.u8(..3) == 0;
        turns.live_with(workers, is_asked);
        turns.machine.true_us += turns.rng.i64(0..2 * SECOND);
    }
}
