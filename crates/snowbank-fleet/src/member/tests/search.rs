//! An exhaustive breadth-first search through all orders of events in a small fleet: three
//! machines, two numbers, and at most two faults. The search runs the shipped members and rules.
//! The coordinator is simulated, and the search tries each of its faults. Each clock shows one of a
//! few times. One may be slow and be set right, a step that its daemons hold at first. A state that
//! differs from an earlier one only in the names of writes and terms is not visited again.
//!
//! [`world`]: the events. [`machine`]: a machine. [`operator`]: the shipped commands. [`wire`]: the
//! coordinator. [`canonical`]: the decision which states are the same.
//!
//! The search has no shared counters, no daemons with several sources, and no starts that wait and
//! try again. The simulation in `tests/simulation/fleet.rs` has the last two of these. No time
//! passes within an event. So the search lets the pause of a start end only after a daemon that
//! lost a write has asked the coordinator. `noticed.rs` tests that daemons ask in time. The
//! coordinator goes back only if no two clocks differ by more than the shortest `max_ahead`. The
//! coordinator never comes back as another cluster: `went_back.rs` tests that. No daemon restarts
//! with a longer reach than before.
//!
//! `SNOWBANK_SEARCH_DEPTH` sets the number of events in a row, and `SNOWBANK_SEARCH_FAULTS` the
//! number of faults. `tests/long` searches deeper than `cargo test`.

mod canonical;
mod machine;
mod operator;
mod wire;
mod world;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::thread;

use self::machine::Ids;
use self::world::{AllClocks, World};

/// The most states that are visited. The search keeps the states of the last layer in memory, a
/// kilobyte each. Of all other states, it keeps only the hash.
const STATES_MAX: usize = 20_000_000;
/// The number of states whose successors are computed together, so that the successors fit into
/// memory.
const CHUNK: usize = 20_000;

/// The states that were visited, each with the most faults that could still happen at a visit.
#[derive(Default)]
struct Visited(HashMap<u128, u8>);

impl Visited {
    /// Records a visit of a state. Returns `false` if an earlier visit had at least as many faults
    /// left, because then nothing new can follow.
    fn is_new(&mut self, hash: u128, faults_left: u8) -> bool {
        match self.0.entry(hash) {
            Entry::Occupied(most) if *most.get() >= faults_left => false,
            visit => {
                visit.insert_entry(faults_left);
                true
            }
        }
    }
}

/// Visits every state that at most `depth` events can reach. Returns the number of states.
fn search(start: World, depth: usize) -> usize {
    let mut visited = Visited::default();
    visited.is_new(canonical::hash(&start), start.server.faults_left);
    let mut layer = vec![start];
    for _ in 0..depth {
        let mut next = Vec::new();
        for chunk in layer.chunks(CHUNK) {
            let new = successors(chunk).into_iter();
            next.extend(new.filter(|(hash, world)| visited.is_new(*hash, world.server.faults_left)));
            assert!(
                visited.0.len() < STATES_MAX,
                "too many states: set SNOWBANK_SEARCH_DEPTH or SNOWBANK_SEARCH_FAULTS lower"
            );
        }
        layer = next.into_iter().map(|(_, world)| world).collect();
    }
    visited.0.len()
}

/// Returns the states that one event leads to from these states. Uses all processors.
fn successors(worlds: &[World]) -> Vec<(u128, World)> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let part = worlds.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let running: Vec<_> =
            worlds.chunks(part).map(|part| scope.spawn(move || successors_of_part(part))).collect();
        let ended = running.into_iter().map(thread::ScopedJoinHandle::join);
        ended.flat_map(|found| found.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn successors_of_part(worlds: &[World]) -> Vec<(u128, World)> {
    let mut seen = Visited::default();
    let mut all = Vec::new();
    for world in worlds {
        world.for_each_successor(|next| {
            let hash = canonical::hash(&next);
            if seen.is_new(hash, next.server.faults_left) {
                all.push((hash, next));
            }
        });
    }
    all
}

/// Reads a number from the environment.
fn number<T: std::str::FromStr>(name: &str, usual: T) -> T {
    let Ok(text) = std::env::var(name) else { return usual };
    text.parse().unwrap_or_else(|_| panic!("found {name}={text}, allowed: a number"))
}

/// Returns the number of events in a row. The default is `usual`, with which the search takes
/// seconds.
fn depth(usual: usize) -> usize {
    number("SNOWBANK_SEARCH_DEPTH", usual)
}

/// Returns how many faults may happen.
fn faults(usual: u8) -> u8 {
    number("SNOWBANK_SEARCH_FAULTS", usual)
}

fn search_from(start: World, depth: usize) {
    let states = search(start, depth);
    eprintln!("{states} states after up to {depth} events, and no ID twice");
}

#[test]
fn no_order_of_events_repeats_an_id() {
    search_from(World::new(faults(2), AllClocks::Differ), depth(5));
}

/// A restore repeats no ID if a daemon that lost a write asks the coordinator before a pause ends.
#[test]
fn no_restore_of_the_coordinator_repeats_an_id() {
    // For a restore to matter, more events must happen than for other faults: daemons must take
    // numbers before the restore and after it.
    search_from(World::new(faults(1), AllClocks::Agree), depth(6));
}

/// A daemon holds the step of a slow clock that was set right, while the coordinator is restored.
#[test]
fn no_restore_repeats_an_id_while_a_step_is_held() {
    search_from(World::new(faults(1), AllClocks::OneIsSetRight).with_a_daemon(), depth(5));
    search_from(World::new(faults(1), AllClocks::OneIsSetRight).with_a_held_step(), depth(5));
}

/// By one machine's clock, a daemon's number is free. By another machine's clock, it is still held.
#[test]
fn no_restore_repeats_an_id_where_clocks_differ() {
    search_from(World::new(faults(1), AllClocks::AreSkewed).with_a_daemon(), depth(5));
}

/// A restore loses the write by which a number changed hands after a clean stop.
#[test]
fn no_restore_repeats_an_id_after_a_clean_stop() {
    for clocks in [AllClocks::Agree, AllClocks::AreSkewed] {
        search_from(World::new(faults(1), clocks).with_a_number_that_changed_hands(), depth(4));
    }
}

/// An operator replaces the ID space of two machines with the third machine's space, and back. Both
/// spaces can make the same IDs.
#[test]
fn no_change_of_the_id_space_repeats_an_id() {
    search_from(World::new(faults(1), AllClocks::Agree).with_two_spaces(), depth(5));
}

/// An operator frees the number of a daemon that runs: before a restore that loses the release, or
/// after a restore that the daemon has not noticed.
#[test]
fn no_release_beside_a_restore_repeats_an_id() {
    for clocks in [AllClocks::Agree, AllClocks::AreSkewed] {
        search_from(World::new(faults(1), clocks).with_releases(), depth(5));
    }
}

/// Some machines are configured with both worker IDs. An operator frees one of the two worker IDs,
/// and another machine's daemon takes it.
#[test]
fn no_daemon_with_two_worker_ids_repeats_an_id() {
    for clocks in [AllClocks::Agree, AllClocks::AreSkewed] {
        search_from(World::new(faults(1), clocks).with_two_worker_ids(), depth(5));
        for lost in [Ids::Zero, Ids::One] {
            let start = World::new(faults(1), clocks).with_one_of_two_worker_ids_lost(lost);
            search_from(start, depth(5) - 1);
        }
    }
}

/// A daemon that started at the floor of the first restore is cut off. A second restore comes
/// meanwhile. The first restore counts as a fault too.
#[test]
fn no_second_restore_of_the_coordinator_repeats_an_id() {
    for clocks in [AllClocks::Agree, AllClocks::AreSkewed] {
        search_from(World::new(faults(1) + 1, clocks).with_a_start_at_a_far_floor(), depth(5));
    }
}
