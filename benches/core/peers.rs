//! The crates that are nearest, one ID at a time.

use super::*;
use ferroid::generator::{AtomicSnowflakeGenerator, BasicSnowflakeGenerator};
use ferroid::time::TimeSource;

ferroid::define_snowflake_id!(
    /// Enough sequence for the clock never to limit it, as in ferroid's own benchmark.
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

/// `snowflaked` reads the clock itself and has 4,096 IDs a millisecond. So an iteration takes a
/// thousand IDs at the start of a millisecond: here a median in microseconds reads as nanoseconds
/// per ID.
#[divan::bench(sample_size = 1, sample_count = 200)]
fn snowflaked_unsynchronised(bencher: Bencher<'_, '_>) {
    let mut generator = snowflaked::Generator::new(0);
    bencher.counter(ItemsCount::new(1_000_u32)).with_inputs(wait_for_next_ms).bench_local_refs(|()| {
        for _ in 0..1_000 {
            black_box(generator.generate::<u64>());
        }
    });
}

#[divan::bench(sample_size = 1, sample_count = 200)]
fn snowflaked_atomic(bencher: Bencher<'_, '_>) {
    let generator = snowflaked::sync::Generator::new(0);
    bencher.counter(ItemsCount::new(1_000_u32)).with_inputs(wait_for_next_ms).bench_local_refs(|()| {
        for _ in 0..1_000 {
            black_box(generator.generate::<u64>());
        }
    });
}

fn wait_for_next_ms() {
    let ms = || snowbank::clock::os::read().wall.0 / 1_000;
    let begin = ms();
    while ms() == begin {
        std::hint::spin_loop();
    }
}
