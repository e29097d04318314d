//! A common request allocates nothing.

use std::sync::Arc;
use std::time::Duration;

use snowbank::access::{self, Session};
use snowbank::config::{Settings, SourceSettings};
use snowbank::frontends::{Conditions, Daemon, Facts, FrameIds, FrontEnd, IncrConnections, Native, Step};
use snowbank_core::clock::{BootMicros, Now};
use snowbank_core::grant::Grant;
use snowbank_core::shard::{Lane, Order, Ring, Shard};
use snowbank_core::source::{OnStepBack, Rules, SequenceStart, Source};
use snowbank_id::layout::{Layout, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;
use snowbank_wire::{Next, Wait, request};

/// The number of requests in one wake-up.
const DEEP: usize = 16;
/// The number of turns that are measured.
const TURNS: usize = 100;

const NOW: Now =
    Now { wall: UnixMicros::from_unix_ms(1_763_596_800_000), boot: BootMicros(1_000_000_000), jumped: false };

/// Does the work of one turn: decodes the requests, takes their IDs, and encodes the replies.
fn turn(shard: &mut Shard, source: &Source, now: Now, input: &[u8], facts: &Facts, scratch: &mut Scratch) {
    scratch.output.clear();
    shard.wake(now);
    let mut at = 0;
    let mut conditions = Conditions {
        facts,
        session: &mut scratch.session,
        draining: false,
        is_stopping: false,
        wall: now.wall,
        incr_connections: &IncrConnections::default(),
        daemon: &Silent,
        rejection: None,
    };
    while let Step::Ids { consumed, ask, form } =
        scratch.front.step(&input[at..], &mut conditions, &mut scratch.output)
    {
        at += consumed;
        scratch.runs.clear();
        let (lane, rng) = shard.lane(ask.source);
        let ahead = || scratch.front.demand(&input[at..], ask.source, facts);
        assert_eq!(lane.take(ask.count, ahead, rng, &mut scratch.runs), Ok(()));
        let numbering = source.numbering();
        let frame_ids = FrameIds {
            runs: &scratch.runs,
            reply_count: Some(ask.count),
            more: false,
            random: numbering.random_parts(),
            needs_list: numbering.needs_list(),
        };
        scratch.front.encode_ids(&mut scratch.output, form, &frame_ids, rng);
    }
    assert_eq!(at, input.len(), "every request is answered");
    shard.top_up();
}

/// Greets nobody.
struct Silent;

impl Daemon for Silent {
    fn welcome(&self, _: u16, _: &mut Vec<u8>) {}
}

/// The buffers that turns share.
struct Scratch {
    front: Native,
    session: Session,
    runs: Vec<snowbank_id::layout::Run>,
    output: Vec<u8>,
}

fn turns_allocate_nothing(order: Order, layout: &str, count: u32) {
    let layout = Layout::resolve(layout).unwrap();
    let numbering = Numbering::new(layout, WorkerSet::single(0)).unwrap();
    let rules = Rules {
        burst_window: Duration::from_millis(10),
        max_ahead: Duration::from_secs(10),
        on_step_back: OnStepBack::Ride,
        sequence_start: SequenceStart::Spread,
    };
    let start = numbering.first_of(numbering.tick_at(NOW.wall));
    let grant = Grant::new(numbering.end());
    let source = Arc::new(Source::new(String::from("default"), numbering, rules, grant, start, NOW));
    let rings = [Ring::default()].into_iter().collect();
    let lane = Lane::new(Arc::clone(&source), rings, 0, order, NOW);
    let mut shard = Shard::new(0, vec![lane], 1, NOW);
    let settings = Settings { sources: vec![SourceSettings::default()], ..Settings::default() };
    let facts = Facts::new(&settings, Vec::new(), access::Rules::default());
    let session = Session::new(&facts.access, 0, None, true);
    let mut scratch = Scratch { front: Native::default(), session, runs: Vec::new(), output: Vec::new() };
    let mut input = Vec::new();
    let next = Next { count, source: b"", wait: Wait::DEFAULT, explicit: false, partial: false };
    (0..DEEP).for_each(|_| request::encode_next(&mut input, 7, &next).expect("a short name"));

    // The first `TURNS` turns are not measured, because the buffers grow in them. With this pause
    // between turns, the requests use half of the layout's rate, so no request waits.
    let ids = u64::from(count) * DEEP as u64;
    let pause = Duration::from_secs_f64(
        2.0 * ids as f64 / source.numbering().snowflake().unwrap().0.ids_per_second() as f64,
    );
    let mut now = NOW.after(Duration::from_millis(20));
    let mut some_turns = || {
        for _ in 0..TURNS {
            turn(&mut shard, &source, now, &input, &facts, &mut scratch);
            now = now.after(pause);
        }
    };
    some_turns();
    let allocated = allocation_counter::measure(some_turns);
    assert_eq!(allocated.count_total, 0, "{order:?}, {count} IDs: {allocated:?}");
}

#[test]
fn a_common_request_allocates_nothing() {
    for order in [Order::Relaxed, Order::Strict] {
        turns_allocate_nothing(order, "twitter", 1);
        turns_allocate_nothing(order, "twitter", 100);
        turns_allocate_nothing(order, "twitter", 1_000);
        turns_allocate_nothing(order, "clearing", 1);
    }
}

#[test]
fn the_allocation_counter_sees_an_allocation() {
    let allocated = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(7))));
    assert_eq!(allocated.count_total, 1);
}
