//! The world of a daemon: its machine, its storage, and the IDs that were handed out.

use std::collections::BTreeMap;
use std::time::Duration;

use snowbank_core::shard::Order;
use snowbank_core::source::{OnStepBack, Rules, SequenceStart};
use snowbank_id::layout::{Layout, Position, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;
use tempfile::TempDir;

use super::daemon::Daemon;
use super::machine::Machine;
use super::storage::{State, Storage};
use crate::support::directory;

use super::{BURST_WINDOW, HORIZON, MAX_AHEAD, MS, SECOND, WORLDS_BEGIN_US};

/// Layouts with ticks of at most 10 ms, with many IDs and with few, the node above and below the
/// sequence.
pub(crate) const SHORT_TICKS: [&str; 4] = [
    "twitter",
    "time:41,worker:5,sequence:=10",
    "time:39,sequence:8,machine:16;tick=10ms",
    "time:13d,sequence:3d,worker:2d,table:1d:random",
];

/// `SHORT_TICKS`, layouts with ticks of up to a day, and one that ends a minute after the world
/// begins.
const LAYOUTS: [&str; 9] = [
    SHORT_TICKS[0],
    SHORT_TICKS[1],
    SHORT_TICKS[2],
    SHORT_TICKS[3],
    "time:31,worker:4,sequence:20;tick=1s",
    "time:10d,worker:1d,sequence:5d,table:3d:random;tick=1s",
    "time:22,worker:4,sequence:24;tick=3600s",
    "time:17,region:2:constant(1),worker:8,sequence:20;tick=86400s",
    "time:=1800000060000,worker:4,sequence:8",
];

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) rng: fastrand::Rng,
    pub(crate) machine: Machine,
    pub(crate) storage: Storage,
    /// The number of writers that make ceilings durable.
    pub(crate) writers: usize,
    /// The directory of the machine's worker ID locks with their marks; empty after a boot.
    pub(crate) locks: TempDir,
    /// Backups of the state, made in this boot.
    pub(crate) backups: Vec<State>,
    /// The state that a backup has replaced. `None` once a process has used the backup.
    pub(crate) newest: Option<State>,
    /// The number of states that were lost.
    pub(crate) lost: u128,
    pub(crate) numbering: Numbering,
    pub(crate) rules: Rules,
    pub(crate) order: Order,
    pub(crate) daemon: Option<Daemon>,
    /// All positions handed out by any process: from, to.
    pub(crate) handed_out: BTreeMap<u64, u64>,
    pub(crate) highest_wall_us: i64,
    pub(crate) granted: u64,
}

impl World {
    /// Makes a world with any layout.
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, &LAYOUTS)
    }

    /// Makes a world with one of these layouts.
    pub(crate) fn with(seed: u64, layouts: &[&str]) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let layout = Layout::resolve(layouts[rng.usize(..layouts.len())]).expect("a layout");
        let tick = Duration::from_millis(layout.tick_ms());
        let workers: WorkerSet = ["0", "0-3", "1,5"][rng.usize(..3)].parse().expect("worker IDs");
        let numbering = Numbering::new(layout, workers).expect("the worker IDs exist");
        let rules = Rules {
            burst_window: if rng.u8(..4) == 0 { Duration::ZERO } else { BURST_WINDOW },
            max_ahead: MAX_AHEAD.max(4 * tick),
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
            usual_us: 0..2 * MS,
            in_flight: Vec::new(),
        };
        let true_us = WORLDS_BEGIN_US + rng.i64(0..SECOND);
        World {
            seed,
            order: if rng.bool() { Order::Relaxed } else { Order::Strict },
            machine: Machine::booted_before(true_us),
            storage,
            writers: rng.usize(1..=2),
            locks: directory(),
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

    pub(crate) fn tick_us(&self) -> i64 {
        self.numbering.tick_ms() as i64 * MS
    }

    pub(crate) fn max_ahead_us(&self) -> i64 {
        self.rules.max_ahead.as_micros() as i64
    }

    /// Returns the horizon that the settings give for the tick.
    pub(crate) fn horizon(&self) -> Duration {
        let two_ticks = 2 * Duration::from_micros(self.tick_us() as u64);
        HORIZON.max(two_ticks).min(self.rules.max_ahead - two_ticks)
    }

    pub(crate) fn instant(&self, position: Position) -> UnixMicros {
        self.numbering.start_of(self.numbering.tick_of(position))
    }
}
