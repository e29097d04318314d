//! Worker IDs that change over clean restarts, where ticks are long. The shipped start, keeper, state file and locks run,
//! without the daemon's threads.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use snowbank::clock::{BootMicros, Reading, StepRule};
use snowbank::config::{self, Overrides, Settings};
use snowbank::server::simulated::{Ceilings, Place};
use snowbank_client::layout::UnixMicros;

const TICK_US: i64 = 3_600_000_000;
const STEP_RULE: StepRule =
    StepRule { max_step: Duration::from_secs(60), step_hold: Duration::from_secs(60) };
/// The node above the sequence, and below it: the last ID of a tick belongs to one worker ID, or to all in turn.
const LAYOUTS: [&str; 2] = [
    "time:30,worker:4,sequence:8;tick=3600s;epoch=2020-01-01",
    "time:30,sequence:8,worker:4;tick=3600s;epoch=2020-01-01",
];

/// A third into a tick, so long after the first start.
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
    let (name, workers) = (life.name, workers.join(","));
    let toml = format!("[[sources]]\nname = {name:?}\nlayout = {layout:?}\nworker_ids = {workers:?}\n");
    let file = Some((Path::new("snowbank.toml"), &*toml));
    config::load(file, &Overrides::default(), NonZeroUsize::MIN, now.wall).expect("they are right")
}

/// Lives through one life, and returns its IDs.
fn live(home: &Path, layout: &str, life: &Life, now: Reading) -> Vec<u64> {
    let (state, locks) = (home.join("state"), home.join("locks"));
    let place = Place { directory: Some(&state), adopt: false, lock_dir: &locks, boot: "one" };
    let settings = settings(layout, life, now);
    let started = Ceilings::start(place, &settings.sources, STEP_RULE, now);
    let mut ceilings = started.unwrap_or_else(|error| panic!("{life:?} does not start: {error}"));
    let source = ceilings.keeper.sources().next().expect("one source").clone();
    let moment = ceilings.keeper.believe(now);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut ids = Vec::new();
    for &count in &life.requests {
        if let Some(from) = source.claim(&source.window(moment), count, &mut rng) {
            let positions = (from.0..from.0 + count).map(snowbank_client::layout::Position);
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
    // A failure prints its sets; a file beside the test would not be found again.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Each clean restart over the state of the one before succeeds, and no ID comes twice.
    #[test]
    fn sets_that_change_in_turn_repeat_no_id_and_always_start(
        layout in prop::sample::select(LAYOUTS.to_vec()),
        lives in prop::collection::vec(a_life(vec!["orders", "invoices"], prop::collection::vec(1_u64..300, 0..3)), 1..25),
    ) {
        let home = tempfile::tempdir().unwrap();
        let (mut elapsed_s, mut seen) = (0, BTreeSet::new());
        for life in &lives {
            elapsed_s += life.pause_s;
            let ids = live(home.path(), layout, life, after(elapsed_s));
            for id in ids {
                prop_assert!(seen.insert(id), "{id} came twice: {life:?}");
            }
        }
    }
}
