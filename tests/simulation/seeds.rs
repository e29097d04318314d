//! Runs a simulation for many seeds, on all processors. `SNOWBANK_SEED=N` runs seed N alone.
//! `SNOWBANK_SEEDS=N` runs N seeds, from `SNOWBANK_FIRST_SEED` on (default 0).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Runs the seeds that the environment names, or else the first `usual` seeds. Returns the number
/// of seeds. If a seed fails, prints it, and fails the test.
pub(crate) fn run(usual: u64, life: impl Fn(u64) + Sync) -> u64 {
    let first = from_environment("SNOWBANK_FIRST_SEED").unwrap_or(0);
    let count = from_environment("SNOWBANK_SEEDS").unwrap_or(usual);
    run_fixed(first..first + count, life)
}

/// Runs these seeds, or `SNOWBANK_SEED` alone. Returns the number of seeds.
pub(crate) fn run_fixed(seeds: Range<u64>, life: impl Fn(u64) + Sync) -> u64 {
    let seeds = from_environment("SNOWBANK_SEED").map_or(seeds, |seed| seed..seed + 1);
    let next = AtomicU64::new(seeds.start);
    let has_failed = AtomicBool::new(false);
    let work = || {
        while !has_failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let _reporter = Reporter { seed, has_failed: &has_failed };
            let _locks = crate::with_locks();
            life(seed);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    seeds.end - seeds.start
}

/// Prints the seed of a life that panics.
struct Reporter<'a> {
    seed: u64,
    has_failed: &'a AtomicBool,
}

impl Drop for Reporter<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("seed {0} failed: SNOWBANK_SEED={0} runs it alone", self.seed);
            self.has_failed.store(true, Ordering::Relaxed);
        }
    }
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}
