//! A source that nobody uses. The shipped start, keeper, state file and locks run, without the daemon's threads.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use snowbank::clock::{BootMicros, Reading, StepRule};
use snowbank::config::{self, Overrides, SourceSettings};
use snowbank::server::simulated::{Ceilings, Place};
use snowbank_client::layout::UnixMicros;

use crate::with_locks;

const STEP_RULE: StepRule =
    StepRule { max_step: Duration::from_secs(60), step_hold: Duration::from_secs(60) };

fn after(elapsed_ms: i64) -> Reading {
    let elapsed_us = elapsed_ms * 1_000;
    Reading {
        wall: UnixMicros(1_800_000_000_000_000 + elapsed_us),
        boot: BootMicros(500_000_000 + elapsed_us),
    }
}

/// A source from the start, and one that waits for a clock that went back.
fn sources() -> [SourceSettings; 2] {
    const TOML: &str = "[[sources]]\nname = \"first\"\nworker_ids = 1\n\
                        [[sources]]\nname = \"second\"\nworker_ids = 2\non_step_back = \"wait\"\n";
    let file = Some((Path::new("snowbank.toml"), TOML));
    let settings = config::load(file, &Overrides::default(), NonZeroUsize::MIN, after(0).wall);
    settings.expect("they are right").sources.try_into().expect("two sources")
}

/// A process that has served for a moment.
fn serve(home: &Path, sources: &[SourceSettings], now: Reading) -> Ceilings {
    let (state, locks) = (home.join("state"), home.join("locks"));
    let place = Place { directory: Some(&state), adopt: false, lock_dir: &locks, boot: "one" };
    let mut ceilings = Ceilings::start(place, sources, STEP_RULE, now).expect("it starts");
    for write in ceilings.keeper.look(now).writes {
        let outcome = ceilings.write(&write);
        ceilings.written(outcome, now);
    }
    ceilings
}

/// A clock that never stepped lies behind a crash's ceiling. A life in which the source was not used does not change
/// that.
#[test]
fn an_unused_source_keeps_the_ceiling_of_a_crash() {
    let _locks = with_locks();
    let home = tempfile::tempdir().unwrap();
    let sources = sources();
    drop(serve(home.path(), &sources, after(0)));
    serve(home.path(), &sources, after(10)).stop().expect("the state is trimmed");

    let now = after(20);
    let ceilings = serve(home.path(), &sources, now);
    let source = ceilings.keeper.sources().nth(1).expect("two sources");
    let window = source.window(ceilings.keeper.believe(now));
    let claimed = source.claim(&window, 1, &mut fastrand::Rng::with_seed(1));
    assert!(claimed.is_some(), "it waits for the clock: {:?}", window.bound);
}
