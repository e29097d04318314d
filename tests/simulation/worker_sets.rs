//! Worker IDs that change over clean restarts with long ticks. The shipped start, keeper, state
//! file and locks run, without the daemon's threads.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use snowbank::clock::{BootMicros, Reading, StepRule};
use snowbank::config::{self, Overrides, Settings};
use snowbank::server::simulated::{Ceilings, Place};
use snowbank::source::Source;
use snowbank_client::layout::{Position, Tick, UnixMicros};

use crate::with_locks;

const TICK_US: i64 = 3_600_000_000;
const STEP_RULE: StepRule =
    StepRule { max_step: Duration::from_secs(60), step_hold: Duration::from_secs(60) };
/// With the node above the sequence, the last IDs of a tick belong to one worker ID. With the node
/// below it, worker IDs alternate.
const LAYOUTS: [&str; 2] = [
    "time:30,worker:4,sequence:8;tick=3600s;epoch=2020-01-01",
    "time:30,sequence:8,worker:4;tick=3600s;epoch=2020-01-01",
];

/// The clocks this many seconds after the first start, which is a third of a tick after the start
/// of a tick.
fn after(elapsed_s: u64) -> Reading {
    let elapsed_us = elapsed_s.cast_signed() * 1_000_000;
    Reading {
        wall: UnixMicros(1_800_000_000_000_000 + TICK_US / 3 + elapsed_us),
        boot: BootMicros(500_000_000 + elapsed_us),
    }
}

/// One life of the daemon, with one source of this name.
#[derive(Clone, Debug)]
struct Life {
    name: &'static str,
    workers: BTreeSet<u64>,
    /// The IDs of each request.
    requests: Vec<u64>,
    pause_s: u64,
}

fn a_life(
    names: Vec<&'static str>,
    requests: impl Strategy<Value = Vec<u64>>,
) -> impl Strategy<Value = Life> {
    let workers = prop::collection::btree_set(0_u64..8, 1..5);
    (prop::sample::select(names), workers, requests, 0_u64..100)
        .prop_map(|(name, workers, requests, pause_s)| Life { name, workers, requests, pause_s })
}

fn settings(layout: &str, life: &Life, now: Reading) -> Settings {
    let workers: Vec<String> = life.workers.iter().map(u64::to_string).collect();
    let name = life.name;
    let workers = workers.join(",");
    let toml = format!("[[sources]]\nname = {name:?}\nlayout = {layout:?}\nworker_ids = {workers:?}\n");
    let file = Some((Path::new("snowbank.toml"), &*toml));
    config::load(file, &Overrides::default(), NonZeroUsize::MIN, now.wall).expect("they are right")
}

/// A life that has started, and its source.
fn begin(home: &Path, layout: &str, life: &Life, now: Reading) -> (Ceilings, Arc<Source>) {
    let state = home.join("state");
    let locks = home.join("locks");
    let place = Place { directory: Some(&state), adopt: false, lock_dir: &locks, boot: "one" };
    let started = Ceilings::start(place, &settings(layout, life, now).sources, STEP_RULE, now);
    let ceilings = started.unwrap_or_else(|error| panic!("{life:?} does not start: {error}"));
    let source = Arc::clone(ceilings.keeper.sources().next().expect("one source"));
    (ceilings, source)
}

/// Runs one life, and returns its IDs.
fn live(home: &Path, layout: &str, life: &Life, now: Reading) -> Vec<u64> {
    let (mut ceilings, source) = begin(home, layout, life, now);
    let moment = ceilings.keeper.believe(now);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut ids = Vec::new();
    for &count in &life.requests {
        if let Some(from) = source.claim(&source.window(moment), count, &mut rng) {
            let positions = (from.0..from.0 + count).map(Position);
            ids.extend(positions.map(|position| source.numbering().id_at(position)));
        }
        for write in ceilings.keeper.look(now).writes {
            let outcome = ceilings.write(&write);
            ceilings.written(outcome, now);
        }
    }
    ceilings.stop().expect("the state is trimmed");
    ids
}

proptest! {
    // A failure prints its sets. A regression file beside the test would not be found.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Each clean restart over the previous state succeeds, and no ID comes twice.
    #[test]
    fn sets_that_change_in_turn_repeat_no_id_and_always_start(
        layout in prop::sample::select(LAYOUTS.to_vec()),
        lives in prop::collection::vec(a_life(vec!["orders", "invoices"], prop::collection::vec(1_u64..300, 0..3)), 1..25),
    ) {
        let _locks = with_locks();
        let home = tempfile::tempdir().unwrap();
        let mut elapsed_s = 0;
        let mut seen = BTreeSet::new();
        for life in &lives {
            elapsed_s += life.pause_s;
            let ids = live(home.path(), layout, life, after(elapsed_s));
            for id in ids {
                prop_assert!(seen.insert(id), "{id} came twice: {life:?}");
            }
        }
    }

    /// Sets that contain earlier ones, and renamed sources, too. A life that hands out nothing
    /// changes nothing.
    #[test]
    fn lives_without_an_id_never_get_ahead_of_the_next_tick(
        layout in prop::sample::select(LAYOUTS.to_vec()),
        used in a_life(vec!["orders"], Just(vec![1])),
        unused in prop::collection::vec(a_life(vec!["orders", "invoices", "users"], Just(Vec::new())), 1..25),
    ) {
        let _locks = with_locks();
        let home = tempfile::tempdir().unwrap();
        let mut highest = live(home.path(), layout, &used, after(0)).into_iter().max();
        let mut elapsed_s = 0;
        for life in &unused {
            elapsed_s += life.pause_s;
            let now = after(elapsed_s);
            let (ceilings, source) = begin(home.path(), layout, life, now);
            let start = source.cursor().expect("not sealed");
            let numbering = source.numbering();
            let tick = source.numbering().tick_at(now.wall);
            // The first start skips a tick. For a lower worker ID, the ID after its last belongs to
            // the tick after that.
            prop_assert!(start <= numbering.first_of(Tick(tick.0 + 2)), "{life:?} starts in {:?}", numbering.tick_of(start));
            prop_assert!(Some(numbering.id_at(start)) > highest, "{life:?} starts below the IDs before");
            ceilings.stop().expect("the state is trimmed");
        }
        let asks = Life { requests: vec![1], ..unused[unused.len() - 1].clone() };
        highest = highest.max(live(home.path(), layout, &asks, after(elapsed_s)).into_iter().max());
        prop_assert!(highest.is_some(), "no life hands out an ID");
    }
}
