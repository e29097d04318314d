//! The core's cost: taking IDs, the arithmetic of layouts, the wire format, the clock.
//!
//! `cargo bench --bench core`; a word after `--` picks benchmarks by name. No socket and no system call is in the way
//! (but for `clock::read`), and the clock never limits anything: the layout's tick is a second and holds 2^41 IDs.
//!
//! One iteration of `take` and of its peers hands out a million IDs, so that a median in **milliseconds reads as
//! nanoseconds per ID**. With several threads that is what each thread takes for its own IDs: all of them share one source,
//! as a daemon's shards do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use snowbank::ceiling::Grant;
use snowbank::clock::{BootMicros, Now};
use snowbank::numbering::Numbering;
use snowbank::shard::{Lane, Order, Ring, Rings, Shard};
use snowbank::source::{OnStepBack, Rules, SequenceStart, Source};
use snowbank_client::layout::{Layout, Run, UnixMicros, WorkerSet};

fn main() {
    divan::main();
}

/// IDs handed out in one iteration.
const IDS: u64 = 1_000_000;
/// Requests that a connection pipelines: this many takes come to one reading of the clock.
const DEEP: u64 = 64;
/// The time between two wake-ups.
const BETWEEN: Duration = Duration::from_micros(1);
const UNLIMITED: &str = "time:22,sequence:41;tick=1s;epoch=1700000000000";

/// Well within the layout's life, at the start of a tick.
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

    /// The next shard: divan makes one for each thread, and as many again for the next sample.
    fn taker(&self) -> Taker {
        let index = self.shards_made.fetch_add(1, Ordering::Relaxed) % self.rings.len();
        let lane = Lane::new(Arc::clone(&self.source), Arc::clone(&self.rings), index, self.order, NOW);
        Taker { shard: Shard::new(index, vec![lane], 1, NOW), now: NOW, runs: Vec::new() }
    }
}

/// One shard, driven as the server drives it.
struct Taker {
    shard: Shard,
    now: Now,
    runs: Vec<Run>,
}

impl Taker {
    /// Hands out a million IDs, `each` in one request, and as many requests in one wake-up as a connection pipelines.
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
                assert_eq!(taken, Ok(()), "the clock limits nothing");
                black_box(&self.runs);
            }
            self.shard.top_up();
        }
    }
}

/// Takes through a shard: the current block, the ring, a claim; with a wake-up every 64 requests.
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

/// The crates that are nearest, one ID at a time.
mod peers {
    use super::*;
    use ferroid::generator::{AtomicSnowflakeGenerator, BasicSnowflakeGenerator};
    use ferroid::id::SnowflakeTwitterId;
    use ferroid::time::TimeSource;

    ferroid::define_snowflake_id!(
        /// Enough sequence for the clock never to limit it, as in ferroid's own benchmark.
        Wide, u64,
        reserved: 1,
        timestamp: 22,
        machine_id: 0,
        sequence: 41
    );

    /// A clock that stands: the sequence never runs out.
    struct Standing;

    impl TimeSource<u64> for Standing {
        fn current_millis(&self) -> u64 {
            1_000
        }
    }

    /// A clock that advances whenever Twitter's sequence has run out.
    #[derive(Default)]
    struct Stepping {
        readings: std::cell::Cell<u64>,
    }

    impl TimeSource<u64> for Stepping {
        fn current_millis(&self) -> u64 {
            let readings = self.readings.get();
            self.readings.set(readings + 1);
            1_000 + (readings >> 12)
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

    #[divan::bench(sample_size = 1, sample_count = 50)]
    fn ferroid_unsynchronised_twitter(bencher: Bencher<'_, '_>) {
        let generator = BasicSnowflakeGenerator::<SnowflakeTwitterId, _>::new(0, Stepping::default());
        bencher.counter(ItemsCount::new(IDS)).bench_local(|| {
            for _ in 0..IDS {
                black_box(generator.next_id(|_| {}));
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

    /// It reads the clock itself and has 4,096 IDs a ms, so an iteration takes a thousand at the start of one: here
    /// microseconds are nanoseconds per ID.
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
}

/// One call of each step that claims are made of.
mod claims {
    use super::*;

    #[divan::bench]
    fn clock_read() -> snowbank::clock::Reading {
        snowbank::clock::os::read()
    }

    #[divan::bench(args = ["twitter", "clearing", "kubernetes"])]
    fn window(bencher: Bencher<'_, '_>, spec: &str) {
        let source = source(numbering(spec, [0]), NOW_OF_TODAY);
        bencher.bench(|| source.window(black_box(NOW_OF_TODAY)));
    }

    /// The cursor of one source, by one thread and by all cores at once. A million claims in each iteration: milliseconds
    /// are nanoseconds per claim.
    #[divan::bench(sample_size = 1, sample_count = 50, threads = [1, 0])]
    fn claim(bencher: Bencher<'_, '_>) {
        let source = source(numbering(UNLIMITED, [0]), NOW);
        let window = source.window(NOW);
        bencher.counter(ItemsCount::new(IDS)).bench(|| {
            let mut rng = fastrand::Rng::with_seed(1);
            for _ in 0..IDS {
                black_box(source.claim(&window, black_box(1), &mut rng));
            }
        });
    }

    /// Within the life of every layout here.
    const NOW_OF_TODAY: Now = Now {
        wall: UnixMicros::from_unix_ms(1_763_596_800_000),
        boot: BootMicros(1_000_000_000),
        jumped: false,
    };
}

/// From positions to IDs and back.
mod layouts {
    use super::*;

    #[divan::bench(args = ["twitter", "clearing", "kubernetes"])]
    fn id_at(bencher: Bencher<'_, '_>, spec: &str) {
        let numbering = numbering(spec, [0]);
        let position = numbering.first_of(numbering.tick_at(NOW.wall));
        bencher.bench(|| numbering.id_at(black_box(position)));
    }

    #[divan::bench(args = ["twitter", "clearing", "kubernetes"])]
    fn run_at(bencher: Bencher<'_, '_>, spec: &str) {
        let numbering = numbering(spec, [0]);
        let position = numbering.first_of(numbering.tick_at(NOW.wall));
        bencher.bench(|| numbering.run_at(black_box(position), black_box(1_000)));
    }

    #[divan::bench(args = ["twitter", "clearing", "kubernetes"])]
    fn decode(bencher: Bencher<'_, '_>, spec: &str) {
        let numbering = numbering(spec, [0]);
        let id = numbering.id_at(numbering.first_of(numbering.tick_at(NOW.wall)));
        let (layout, _) = numbering.snowflake().expect("a layout");
        bencher.bench(|| layout.decode(black_box(id)));
    }
}

/// One ID as a text, and back.
mod formats {
    use super::*;
    use snowbank_client::format::{AliasKeys, Codec, Context, Format};

    const EACH: &[&str] = &[
        "decimal",
        "hex",
        "base62",
        "base62-shuffled",
        "base32-crockford",
        "base32-crockford-check",
        "objectid",
        "uuidv7",
        "uuidv8",
        "alias",
        "dictionary:01",
    ];
    const ID: u64 = 1_541_815_603_606_036_480;

    fn codec(name: &str) -> Codec {
        let layout = Layout::resolve("twitter").expect("a preset");
        let keys = AliasKeys::parse(&format!("1 {}", "2b7e151628aed2a6".repeat(4))).expect("a key");
        let context = Context::new("default", Some(&layout)).alias_keys(&keys);
        name.parse::<Format>().and_then(|format| format.codec(context)).expect("a format")
    }

    #[divan::bench(args = EACH)]
    fn write(bencher: Bencher<'_, '_>, name: &str) {
        let (codec, mut text) = (codec(name), String::with_capacity(64));
        bencher.bench_local(|| {
            text.clear();
            codec.write(black_box(ID), &mut text).expect("an ID");
            black_box(&text);
        });
    }

    #[divan::bench(args = EACH)]
    fn read(bencher: Bencher<'_, '_>, name: &str) {
        let codec = codec(name);
        let text = codec.text(ID).expect("an ID");
        bencher.bench_local(|| codec.read(black_box(&text)));
    }
}

/// The wait queue, behind this many requests that wait for one ID each.
mod waiting {
    use super::*;
    use snowbank::source::wait_queue::{Signals, WaitRequest};

    struct Unheard;

    impl Signals for Unheard {
        fn finished(&self, _: usize) {}
        fn ceiling_reached(&self) {}
    }

    const BEHIND: &[u64] = &[1, 100, 10_000];

    /// Requests that are due one after another, within ten seconds.
    fn request(number: u64) -> WaitRequest {
        let due = NOW.boot.after(Duration::from_secs(5) + Duration::from_micros(400 * number));
        WaitRequest { count: 1 + number % 3, due, partial: false, shard: 0 }
    }

    /// A source of 10 IDs a millisecond, with nothing left in this one.
    fn source_with(waiting: u64) -> Arc<Source> {
        let source = source(numbering("time:42,sequence:=10,worker:5;epoch=1700000000000", [0]), NOW);
        let mut rng = fastrand::Rng::with_seed(1);
        while source.claim(&source.window(NOW), 1, &mut rng).is_some() {}
        for number in 0..waiting {
            source.admit(&source.window(NOW), request(number)).expect("the ticks to come hold it");
        }
        source.advance(NOW, &mut rng, &Unheard);
        source
    }

    /// An admission in their midst, and its cancellation.
    #[divan::bench(args = BEHIND)]
    fn admit(bencher: Bencher<'_, '_>, behind: u64) {
        let source = source_with(behind);
        let window = source.window(NOW);
        bencher.bench_local(|| {
            let id = source.admit(&window, request(behind / 2)).expect("the ticks to come hold it");
            source.cancel(id)
        });
    }

    /// A look by a shard in a tick that another shard has shared out.
    #[divan::bench(args = BEHIND)]
    fn look(bencher: Bencher<'_, '_>, behind: u64) {
        let (source, mut rng) = (source_with(behind), fastrand::Rng::with_seed(1));
        bencher.bench_local(|| source.advance(NOW, &mut rng, &Unheard));
    }

    /// The next tick's share-out, of ten IDs.
    #[divan::bench(args = BEHIND, sample_size = 1, sample_count = 50)]
    fn share_out(bencher: Bencher<'_, '_>, behind: u64) {
        let next = NOW.after(Duration::from_millis(1));
        let with = || (source_with(behind), fastrand::Rng::with_seed(1));
        bencher.with_inputs(with).bench_local_refs(|(source, rng)| source.advance(next, rng, &Unheard));
    }
}

/// The wire format; one frame in each iteration.
mod protocol {
    use super::*;
    use snowbank_client::protocol::reply::{self, Reply};
    use snowbank_client::protocol::{Next, Parsed, Wait, request};

    const NEXT: Next = Next { count: 1_000, source: 0, wait: Wait::DEFAULT, explicit: false, partial: false };
    const RUNS: [Run; 1] = [Run { first: 1_541_815_603_606_036_480, count: 1_000, stride: 1 }];

    #[divan::bench]
    fn encode_next(bencher: Bencher<'_, '_>) {
        let mut out = Vec::with_capacity(64);
        bencher.bench_local(|| {
            out.clear();
            request::encode_next(&mut out, 7, black_box(&NEXT));
            black_box(&out);
        });
    }

    #[divan::bench]
    fn parse_next(bencher: Bencher<'_, '_>) {
        let mut frame = Vec::new();
        request::encode_next(&mut frame, 7, &NEXT);
        bencher.bench(|| request::parse(black_box(&frame)));
    }

    #[divan::bench]
    fn encode_runs(bencher: Bencher<'_, '_>) {
        let mut out = Vec::with_capacity(64);
        bencher.bench_local(|| {
            out.clear();
            let encoded = reply::encode_runs_frame(&mut out, 7, black_box(&RUNS), false);
            black_box(&out);
            encoded
        });
    }

    /// Its run read as well.
    #[divan::bench]
    fn parse_runs(bencher: Bencher<'_, '_>) {
        let mut frame = Vec::new();
        reply::encode_runs_frame(&mut frame, 7, &RUNS, false).expect("one run fits a frame");
        bencher.bench(|| match reply::parse(black_box(&frame)) {
            Parsed::Frame { content: Ok(Reply::Runs { runs, .. }), .. } => runs.iter().next(),
            _ => None,
        });
    }
}
