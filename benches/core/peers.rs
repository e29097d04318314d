//! The cost of an ID in ferroid, the most similar crate.

use super::*;
use ferroid::generator::{AtomicSnowflakeGenerator, BasicSnowflakeGenerator};
use ferroid::time::TimeSource;

ferroid::define_snowflake_id!(
    /// A sequence so wide that the clock never limits it, as in ferroid's own benchmark.
    Wide, u64,
    reserved: 1,
    timestamp: 22,
    machine_id: 0,
    sequence: 41
);

/// A clock that stands still: the wide sequence never runs out.
struct Standing;

impl TimeSource<u64> for Standing {
    fn current_millis(&self) -> u64 {
        1_000
    }
}

#[divan::bench(sample_size = 1, sample_count = 50)]
fn ferroid_unsynchronised(bencher: Bencher<'_, '_>) {
    let generator = BasicSnowflakeGenerator::<Wide, _>::new(0, Standing);
    bencher.counter(ItemsCount::new(IDS)).bench_local(|| {
        for _ in 0..IDS {
            black_box(generator.next_id(|_| unreachable!("the sequence never runs out")));
        }
    });
}

#[divan::bench(sample_size = 1, sample_count = 50, threads = [1, 0])]
fn ferroid_atomic(bencher: Bencher<'_, '_>) {
    let generator = AtomicSnowflakeGenerator::<Wide, _>::new(0, Standing);
    bencher.counter(ItemsCount::new(IDS)).bench(|| {
        for _ in 0..IDS {
            black_box(generator.next_id(|_| std::hint::spin_loop()));
        }
    });
}
