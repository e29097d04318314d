//! The cost of the core: taking IDs, and writing and reading them in each format.
//!
//! Run `cargo bench --bench core`. A word after `--` picks benchmarks by name. The benchmarks use
//! no socket and read no clock. The layout never limits the rate, because a tick lasts a second and
//! has 2^41 IDs.
//!
//! One iteration of the benchmarks in `take` and in `peers` hands out a million IDs. So a median in
//! **milliseconds reads as nanoseconds per ID**. With several threads, each thread hands out a
//! million IDs, and the median is the time of one thread. All threads share one source, as a
//! daemon's shards do.

mod formats;
mod peers;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use snowbank_core::clock::{BootMicros, Now};
use snowbank_core::grant::Grant;
use snowbank_core::shard::{Lane, Order, Ring, Rings, Shard};
use snowbank_core::source::{OnStepBack, Rules, SequenceStart, Source};
use snowbank_id::layout::{Layout, Run, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;

fn main() {
    divan::main();
}

/// The number of IDs that one iteration hands out.
const IDS: u64 = 1_000_000;
/// The number of requests that a connection pipelines. All of them share one reading of the clock.
const DEEP: u64 = 64;
/// The time between two wake-ups.
const BETWEEN: Duration = Duration::from_micros(1);
const UNLIMITED: &str = "time:22,sequence:41;tick=1s;epoch=1700000000000";

/// An instant at the start of a tick, long after the layout's epoch and long before its end.
const NOW: Now =
    Now { wall: UnixMicros::from_unix_ms(1_700_001_000_000), boot: BootMicros(1_000_000_000), jumped: false };

fn numbering(spec: &str, workers: impl IntoIterator<Item = u64>) -> Numbering {
    let layout = Layout::resolve(spec).expect("the layout is sound");
    let workers = WorkerSet::from_list(workers).expect("the worker IDs are distinct");
    Numbering::new(layout, workers).expect("the worker IDs fit the layout")
}

fn source(numbering: Numbering, now: Now) -> Arc<Source> {
    let rules = Rules {
        burst_window: Duration::from_millis(10),
        max_ahead: Duration::from_secs(10),
        on_step_back: OnStepBack::Ride,
        sequence_start: SequenceStart::Spread,
    };
    let start = numbering.first_of(numbering.tick_at(now.wall));
    let grant = Grant::new(numbering.end());
    Arc::new(Source::new(String::from("default"), numbering, rules, grant, start, now))
}

/// A source and its shards, one for each thread of a benchmark.
struct Daemon {
    source: Arc<Source>,
    rings: Rings,
    order: Order,
    shards_made: AtomicUsize,
}

impl Daemon {
    fn new(order: Order) -> Daemon {
        let shards = std::thread::available_parallelism().map_or(1, usize::from);
        let source = source(numbering(UNLIMITED, [0]), NOW);
        let rings = (0..shards).map(|_| Ring::default()).collect();
        Daemon { source, rings, order, shards_made: AtomicUsize::new(0) }
    }

    /// Returns the next shard. In each sample, Divan asks for one shard for each thread.
    fn taker(&self) -> Taker {
        let index = self.shards_made.fetch_add(1, Ordering::Relaxed) % self.rings.len();
        let lane = Lane::new(Arc::clone(&self.source), Arc::clone(&self.rings), index, self.order, NOW);
        Taker { shard: Shard::new(index, vec![lane], 1, NOW), now: NOW, runs: Vec::new() }
    }
}

/// One shard, driven as the server drives its shards.
struct Taker {
    shard: Shard,
    now: Now,
    runs: Vec<Run>,
}

impl Taker {
    /// Hands out a million IDs, `each` per request, with [`DEEP`] requests per wake-up.
    fn hand_out(&mut self, each: u64) {
        let mut left = IDS / each;
        while left > 0 {
            let requests = left.min(DEEP);
            left -= requests;
            self.now = self.now.after(BETWEEN);
            self.shard.wake(self.now);
            for later in (0..requests).rev() {
                self.runs.clear();
                let (lane, rng) = self.shard.lane(0);
                let taken = lane.take(each, || later * each, rng, &mut self.runs);
                assert_eq!(taken, Ok(()), "the layout never limits the rate");
                black_box(&self.runs);
            }
            self.shard.top_up();
        }
    }
}

/// Measures how fast a shard takes IDs from its current run, its ring or a claim, with [`DEEP`]
/// requests per wake-up.
#[divan::bench_group(sample_size = 1, sample_count = 50, threads = [1, 0])]
mod take {
    use super::*;

    #[divan::bench(args = [1, 100, 1_000, 10_000])]
    fn relaxed(bencher: Bencher<'_, '_>, each: u64) {
        hand_out(bencher, Order::Relaxed, each);
    }

    #[divan::bench(args = [1, 100, 1_000, 10_000])]
    fn strict(bencher: Bencher<'_, '_>, each: u64) {
        hand_out(bencher, Order::Strict, each);
    }

    fn hand_out(bencher: Bencher<'_, '_>, order: Order, each: u64) {
        let daemon = Daemon::new(order);
        bencher
            .counter(ItemsCount::new(IDS))
            .with_inputs(|| daemon.taker())
            .bench_refs(|taker| taker.hand_out(each));
    }
}
