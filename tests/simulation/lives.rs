//! A deterministic simulation of one daemon's life: the shipped source, shards, wait queue, keeper
//! and ID clock. The machine's wall clock steps, freezes, stays wrong, and is read late. Ticks last
//! from 1 ms to a day, and one layout ends during the simulation. One or two writers make ceilings
//! durable. Their writes take time, overtake each other, hang, fail, and end after they were
//! abandoned. The shipped code for state files writes and reads a disk in memory. A crash cuts a
//! write off at any call. A power failure loses sectors that were not synced, and may damage one of
//! the two copies. The process crashes and stops at any point, clients pause for minutes or hours,
//! and a second daemon tries to start. Older copies replace the state. Until the next boot, the
//! marks in the machine's lock files reveal these copies.
//!
//! [`world`] holds this world, [`events`] chooses the events, [`starts`] begins and ends processes,
//! [`requests`] asks for IDs, [`checks`] and [`recovery`] check the promises. In [`counter`] the
//! source is a ticket source. [`lead`] watches the ID clock after a step back by more than
//! `max_ahead`. [`layouts`] makes random layouts.
//!
//! Four modules have worlds of their own. [`site`] is a machine with two daemons and several
//! sources, whose layouts, worker IDs and states change from one start to the next. [`turns`]
//! changes the worker IDs at clean restarts, with ticks of any length. In [`tenants`], clients
//! share a source that yields too little. In [`commands`], an operator changes settings and runs
//! commands between starts.
//!
//! A failing test prints its seed: `SNOWBANK_SEED=N cargo test --test simulation lives::` replays
//! that seed alone. `SNOWBANK_SEEDS=100000 cargo test --release --test simulation lives::` runs
//! longer, on all processors; `SNOWBANK_FIRST_SEED=N` begins with another seed than 0.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use snowbank::config::{self, Mistakes, Overrides, Settings};
use snowbank_core::clock::{Now, StepRule};
use snowbank_core::shard::{Lane, Order, Ring, Rings, Shard};
use snowbank_core::source::Source;
use snowbank_id::layout::UnixMicros;

use crate::seeds;
use turns::Sets;
use world::{SHORT_TICKS, World};

mod checks;
mod commands;
mod counter;
mod daemon;
mod disk;
mod events;
mod layouts;
mod lead;
mod machine;
mod places;
mod recovery;
mod requests;
mod site;
mod site_faults;
mod starts;
mod storage;
mod tenants;
mod turns;
mod world;

const MS: i64 = 1_000;
const SECOND: i64 = 1_000 * MS;
const MAX_AHEAD: Duration = Duration::from_secs(10);
const HORIZON: Duration = Duration::from_secs(3);
const BURST_WINDOW: Duration = Duration::from_millis(10);
pub(crate) const STEP_RULE: StepRule =
    StepRule { max_step: Duration::from_secs(60), step_hold: Duration::from_secs(60) };
/// The true time at which worlds begin. Each world adds a random part of a second.
const WORLDS_BEGIN_US: i64 = 1_800_000_000 * SECOND;
const SHARDS: usize = 3;
const STEPS: usize = 400;

/// Makes the shards of a process, each with a lane of every source.
fn shards(count: usize, sources: &[Arc<Source>], order: Order, seed: u64, now: Now) -> Vec<Shard> {
    let rings: Vec<Rings> = sources.iter().map(|_| (0..count).map(|_| Ring::default()).collect()).collect();
    let shard = |index| {
        let lane = |(source, rings): (&Arc<Source>, &Rings)| {
            Lane::new(Arc::clone(source), Arc::clone(rings), index, order, now)
        };
        Shard::new(index, sources.iter().zip(&rings).map(lane).collect(), seed + index as u64, now)
    };
    (0..count).map(shard).collect()
}

/// Returns the table of a source in a configuration.
fn source_toml(name: &str, layout: &str, workers: &str) -> String {
    format!("[[sources]]\nname = {name:?}\nlayout = {layout:?}\nworker_ids = {workers:?}\n")
}

/// Reads a configuration file at this wall time.
pub(crate) fn load(toml: &str, now: UnixMicros) -> Result<Settings, Mistakes> {
    let file = Some((Path::new("snowbank.toml"), toml));
    config::load(file, &Overrides::default(), NonZeroUsize::MIN, now)
}

fn live(seed: u64) {
    live_in(World::new(seed));
}

/// Runs a life with a random layout.
fn live_with_any_layout(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(!seed);
    let layout = layouts::random(&mut rng, UnixMicros(WORLDS_BEGIN_US)).to_string();
    live_in(World::with(seed, &[&layout]));
}

fn live_in(mut world: World) {
    world.start();
    for _ in 0..STEPS {
        world.step();
    }
    match world.seed % 40 {
        0 => world.idle(Duration::from_secs(3 * 3_600)),
        1 => world.idle_over_a_forward_step(),
        _ => {}
    }
    world.recover();
}

/// Serves requests for this many steps of this length.
fn serve(world: &mut World, steps: u32, step_us: i64) {
    for _ in 0..steps {
        world.machine.true_us += step_us;
        world.record_wall();
        world.keep();
        world.advance();
        world.draw();
    }
}

/// Kills a process again and again after it has served for a while.
fn crash_again_and_again(seed: u64) {
    let mut world = World::new(seed);
    (world.storage.fails_one_in, world.storage.is_slow_one_in) = (0, 0);
    let step_us = MS.max(world.tick_us() / 5);
    for _ in 0..200 {
        world.start();
        serve(&mut world, 50, step_us);
        world.kill();
    }
    let ceiling = world.read().expect("a stored ceiling").ceiling();
    let ahead_us = world.numbering.start_of(world.numbering.tick_of(ceiling)).0 - world.machine.wall();
    let most_us = world.horizon().as_micros() as i64 + SECOND.max(2 * world.tick_us());
    assert!(ahead_us <= most_us, "seed {seed}: the next start is {ahead_us} us ahead of the wall clock");
    world.recover();
}

/// Boots a machine again, with a clock that is an hour behind until a time server corrects it. The
/// daemon believes the correction at once, because the grants of the earlier boot prove that it is
/// right.
fn boot_with_a_slow_clock(seed: u64) {
    let mut world = World::with(seed, &SHORT_TICKS);
    (world.storage.fails_one_in, world.storage.is_slow_one_in) = (0, 0);
    world.start();
    serve(&mut world, 20, 100 * MS);
    let before = world.granted;
    assert!(before > 0, "seed {seed}: no IDs");
    if seed.is_multiple_of(2) {
        world.stop();
    }
    world.reboot();
    // Less time than `max_step`, the largest step that is believed at once.
    world.machine.true_us += world.rng.i64(0..55 * SECOND);
    world.machine.wall_offset_us = -3_600 * SECOND;
    world.start();
    serve(&mut world, 20, 100 * MS);
    assert_eq!(world.granted, before, "seed {seed}: IDs an hour ahead of the clock");
    world.machine.wall_offset_us = 0;
    serve(&mut world, 20, 100 * MS);
    assert!(world.granted > before, "seed {seed}: no IDs, although the clock is right");
}

#[test]
fn a_clock_that_is_slow_at_boot_is_followed_once_corrected() {
    seeds::run_fixed(0..100, boot_with_a_slow_clock);
}

#[test]
fn the_lead_shrinks_and_raises_delay_nobody_after_a_step_back() {
    seeds::run_fixed(0..40, lead::step_back_far);
}

#[test]
fn tenants_get_their_promised_ids_and_even_shares_of_the_rest() {
    seeds::run(200, tenants::share);
}

#[test]
fn a_crash_loop_does_not_run_ahead_of_the_wall_clock() {
    seeds::run_fixed(0..20, crash_again_and_again);
}

#[test]
fn a_daemons_life_keeps_the_promises() {
    seeds::run(3_000, live);
}

#[test]
fn a_daemons_life_keeps_the_promises_with_any_layout() {
    seeds::run(500, live_with_any_layout);
}

#[test]
fn changing_worker_ids_delays_no_first_id() {
    seeds::run(60, |seed| turns::take_turns(seed, Sets::Disjoint));
}

#[test]
fn a_start_with_new_worker_ids_is_at_most_two_ticks_ahead() {
    seeds::run(60, |seed| turns::take_turns(seed, Sets::MixedAndIdle));
}

#[test]
fn changing_worker_ids_repeats_no_id() {
    seeds::run(60, |seed| turns::take_turns(seed, Sets::MixedAndBusy));
}

#[test]
fn a_ticket_sources_life_keeps_the_promises() {
    seeds::run(300, counter::live);
}

#[test]
fn no_command_and_no_changed_setting_repeats_an_id() {
    seeds::run(300, commands::live);
}

#[test]
fn a_machine_with_two_daemons_keeps_the_promises() {
    seeds::run(60, site::live);
}
