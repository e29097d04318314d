use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::grant::Grant;
use crate::source::tests::{BEFORE, RULES, START, TWITTER, counter};
use crate::source::{Source, Span};
use snowbank_id::layout::{Layout, Position, Run, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;

mod bursts;
mod waits;

const SCARCE: &str = "time:41,sequence:=10,worker:5";
/// The time from `START` to the end of [`warm_up`].
const WARM_US: u64 = 4_000;

fn source(layout: &str, workers: &str) -> Arc<Source> {
    let layout = Layout::resolve(layout).expect("a layout");
    let workers: WorkerSet = workers.parse().expect("worker IDs");
    let numbering = Numbering::new(layout, workers).expect("the workers exist");
    let grant = Grant::new(numbering.end());
    Arc::new(Source::new(String::from("test"), numbering, RULES, grant, Position(0), BEFORE))
}

fn shards(source: &Arc<Source>, count: usize, order: Order) -> Vec<Shard> {
    let rings: Rings = (0..count).map(|_| Ring::default()).collect();
    let shard = |index| {
        let lane = Lane::new(Arc::clone(source), Arc::clone(&rings), index, order, START);
        Shard::new(index, vec![lane], index as u64, START)
    };
    (0..count).map(shard).collect()
}

fn after_us(us: u64) -> Now {
    START.after(Duration::from_micros(us))
}

/// Runs one wake-up that takes `count` IDs at once.
fn take(shard: &mut Shard, now: Now, count: u64) -> Result<Vec<Run>, u64> {
    let mut runs = Vec::new();
    shard.wake(now);
    let (lane, rng) = shard.lane(0);
    let taken = lane.take(count, || 0, rng, &mut runs);
    shard.top_up();
    taken.map(|()| runs)
}

/// Keeps the shard busy until it claims ahead.
fn warm_up(shard: &mut Shard) -> Now {
    for wake_up in 0..400 {
        take(shard, after_us(wake_up * 10), 4).expect("there is room");
    }
    after_us(WARM_US)
}

/// Returns a source with this many shards, and a moment at which the first shard has claimed ahead.
fn busy_shards(count: usize) -> (Arc<Source>, Vec<Shard>, Now) {
    let source = source(TWITTER, "0");
    let mut shards = shards(&source, count, Order::Relaxed);
    let now = warm_up(&mut shards[0]);
    (source, shards, now)
}

/// Claims all positions that are left, as another shard would.
fn drain(source: &Source, now: Now) {
    let window = source.window(now);
    source
        .claim(&window, source.left(&window), &mut fastrand::Rng::with_seed(3))
        .expect("nobody else claims");
}

fn position(source: &Source, runs: &[Run]) -> Position {
    source.numbering().position_of(runs[0].first).expect("an ID of this source")
}

#[track_caller]
fn assert_once(runs: &[Run]) {
    let mut every: Vec<u64> = runs.iter().flat_map(Run::ids).collect();
    every.sort_unstable();
    every.dedup();
    assert_eq!(every.len() as u64, ids(runs), "an ID was handed out twice");
}

fn ids(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

#[test]
fn a_busy_shard_serves_each_id_once_from_blocks_claimed_ahead() {
    let source = source(TWITTER, "0");
    let mut shard = shards(&source, 1, Order::Relaxed).remove(0);
    let mut direct_claims = 0;
    let mut cursor = source.cursor();
    let mut last = 0;
    for wake_up in 0..1_400 {
        let is_warm = wake_up * 10 >= WARM_US;
        shard.wake(after_us(wake_up * 10));
        let (lane, rng) = shard.lane(0);
        let mut runs = Vec::new();
        lane.take(wake_up % 7 + 1, || 0, rng, &mut runs).expect("there is room");
        direct_claims += u64::from(is_warm && source.cursor() != cursor);
        shard.top_up();
        cursor = source.cursor();
        assert_eq!(ids(&runs), wake_up % 7 + 1);
        for run in runs {
            assert!(run.first > last, "{run:?} after {last}");
            last = run.last();
        }
        let last = source.numbering().position_of(last).expect("an ID of this source");
        assert!(Some(last) < cursor, "an ID was handed out that was never claimed");
    }
    assert!(direct_claims < 20, "{direct_claims} of the last 1,000 wake-ups claimed on the request's path");
}

#[test]
fn one_wake_up_claims_once_for_all_its_requests() {
    let source = source(TWITTER, "0");
    let mut shard = shards(&source, 1, Order::Strict).remove(0);
    let mut runs = Vec::new();
    shard.wake(START);
    let (lane, rng) = shard.lane(0);
    lane.take(100, || 900, rng, &mut runs).expect("there is room");
    let cursor = source.cursor();
    for _ in 0..9 {
        lane.take(100, || panic!("a second claim"), rng, &mut runs).expect("claimed already");
    }
    assert_eq!(source.cursor(), cursor);
    assert_eq!(runs.len(), 1, "one run: {runs:?}");
}

#[test]
fn a_request_gets_its_count_and_the_rest_of_the_claim_stays() {
    let source = source(TWITTER, "0");
    let mut shard = shards(&source, 1, Order::Relaxed).remove(0);
    shard.wake(START);
    let (lane, rng) = shard.lane(0);
    let mut runs = Vec::new();
    lane.take(3, || 5_000, rng, &mut runs).expect("there is room");
    assert_eq!((ids(&runs), lane.at_hand()), (3, 4_093), "the first tick has 4,096");
    runs.extend(lane.take_at_hand(10));
    let cursor = source.cursor();
    lane.take(4_990, || panic!("a second claim"), rng, &mut runs).expect("claimed already");
    assert_eq!((ids(&runs), source.cursor()), (5_003, cursor));
    assert_once(&runs);
}

/// The rest of a claim lies below the IDs that other shards get after the wake-up.
#[test]
fn a_shard_in_strict_order_keeps_nothing_after_its_wake_up() {
    let source = source(TWITTER, "0");
    let mut shards = shards(&source, 2, Order::Strict);
    shards[0].wake(START);
    let (lane, rng) = shards[0].lane(0);
    lane.take(3, || 5_000, rng, &mut Vec::new()).expect("there is room");
    shards[0].top_up();
    let others = take(&mut shards[1], START, 1).expect("there is room");
    let again = take(&mut shards[0], START, 1).expect("there is room");
    assert!(again[0].first > others[0].last(), "{again:?} after {others:?}");
}

#[test]
fn a_request_for_tickets_gets_its_count() {
    let mut shard = shards(&Arc::new(counter(100)), 1, Order::Relaxed).remove(0);
    assert_eq!(ids(&take(&mut shard, START, 5).expect("there is room")), 5);
}

#[test]
fn ids_older_than_the_burst_window_are_dropped() {
    let (source, mut shards, _) = busy_shards(1);
    let later = after_us(WARM_US + 1_000_000);
    let runs = take(&mut shards[0], later, 4).expect("there is room");
    assert!(position(&source, &runs) >= source.window(later).floor);
    shards[0].wake(later);
    let (lane, rng) = shards[0].lane(0);
    lane.take(1, || 100, rng, &mut Vec::new()).expect("there is room");
    let later = later.after(Duration::from_secs(1));
    let runs = take(&mut shards[0], later, 1).expect("there is room");
    assert!(position(&source, &runs) >= source.window(later).floor, "an ID at hand is too old");
}

#[test]
fn no_block_is_handed_out_while_a_jump_is_unchecked() {
    let (source, mut shards, now) = busy_shards(2);
    drain(&source, now);
    let jumped = Now { jumped: true, ..now };
    assert_eq!(take(&mut shards[1], jumped, 4), Err(4), "blocks of the sibling");
    assert_eq!(take(&mut shards[0], jumped, 4), Err(4), "its own blocks");
    assert_eq!(take(&mut shards[1], now, 4), Err(4), "the sibling has dropped its blocks");
}

/// A shard drops its blocks even if no request comes before the grant is back. If a sibling serves
/// the next request, the sibling does not use those blocks either.
#[test]
fn all_blocks_are_dropped_when_the_grant_is_lost() {
    for (index, is_tried) in [(0, true), (0, false), (1, true)] {
        let (source, mut shards, now) = busy_shards(2);
        let cursor = source.cursor().expect("not sealed");
        source.grant().revoke();
        if is_tried {
            assert_eq!(take(&mut shards[index], now, 1), Err(1));
        }
        source.grant().raise(source.numbering().end());
        let runs = take(&mut shards[index], now, 1).expect("granted again");
        assert!(position(&source, &runs) >= cursor, "an ID of a dropped block was handed out");
    }
}

proptest! {
    /// Shards run at random moments, with clock readings that differ a little. No ID is handed out
    /// twice, each shard's IDs increase, and no ID is older than the burst window or newer than the
    /// clock.
    #[test]
    fn shards_keep_the_promises(
        steps in prop::collection::vec((0_usize..3, 0_u64..1_500, 1_u64..6_000, 0_u64..100, any::<bool>()), 1..300),
        scarce: bool,
        strict: bool,
        workers in prop::sample::select(vec!["0", "0-3", "1,5,9"]),
    ) {
        let source = source(if scarce { SCARCE } else { TWITTER }, workers);
        let order = if strict { Order::Strict } else { Order::Relaxed };
        let mut shards = shards(&source, 3, order);
        let mut last_of_shard = [0; 3];
        let mut last_of_all = 0;
        let mut all: Vec<Run> = Vec::new();
        let mut now_us = 1_000;
        for (index, sleep_us, count, skew_us, big) in steps {
            now_us += sleep_us;
            let now = after_us(now_us - skew_us);
            let count = if big { count } else { count % 10 + 1 };
            let Ok(runs) = take(&mut shards[index], now, count) else {
                continue;
            };
            prop_assert_eq!(ids(&runs), count);
            let oldest = source.numbering().tick_at(UnixMicros(now.wall.0 - 10_000));
            for run in &runs {
                prop_assert!(run.first > last_of_shard[index], "{run:?} on shard {index}");
                last_of_shard[index] = run.last();
                if strict {
                    prop_assert!(run.first > last_of_all);
                    last_of_all = run.last();
                }
                let position = source.numbering().position_of(run.first).expect("an ID of this source");
                let tick = source.numbering().tick_of(position);
                prop_assert!(tick >= oldest);
                prop_assert!(source.numbering().start_of(tick).0 <= after_us(now_us).wall.0);
            }
            all.extend(runs);
        }
        assert_once(&all);
    }
}

#[test]
fn a_shard_continues_above_its_ids_after_a_wait() {
    let (source, mut shards, now) = busy_shards(1);
    let window = source.window(now);
    let mut rng = fastrand::Rng::with_seed(3);
    let from = source.claim(&window, 10, &mut rng).expect("for a request that waited");
    let mut waited = Vec::new();
    shards[0].wake(now);
    shards[0].lane(0).0.hand_out_waited(&[Span { from, count: 10 }], &mut waited);
    assert_eq!(ids(&waited), 10);
    let next = take(&mut shards[0], now, 1).expect("there is room");
    assert!(next[0].first > waited[0].last(), "blocks claimed ahead lie lower and are dropped");
}

#[test]
fn ids_of_an_ended_wait_do_not_lower_the_shards_floor() {
    let source = source(TWITTER, "0");
    let mut shards = shards(&source, 2, Order::Relaxed);
    let mut rng = fastrand::Rng::with_seed(3);
    let from = source.claim(&source.window(START), 10, &mut rng).expect("for a request that waits");
    // The sibling's blocks lie above this claim. IDs of another connection of this shard lie above
    // those blocks.
    let now = warm_up(&mut shards[1]);
    let high = take(&mut shards[0], now, 3).expect("there is room");
    let mut waited = Vec::new();
    shards[0].lane(0).0.hand_out_waited(&[Span { from, count: 10 }], &mut waited);
    assert!(waited[0].last() < high[0].first);
    drain(&source, now);
    assert_eq!(take(&mut shards[0], now, 1), Err(1), "the sibling's blocks lie below IDs already handed out");
}

/// Returns two shards. The first has blocks, and the source has nothing left to claim.
fn at_the_edge() -> (Vec<Shard>, Now) {
    let (source, shards, now) = busy_shards(2);
    drain(&source, now);
    (shards, now)
}

fn take_singles(shard: &mut Shard, now: Now) -> Vec<Run> {
    std::iter::from_fn(|| take(shard, now, 1).ok()).flatten().collect()
}

#[test]
fn ids_taken_from_a_sibling_are_handed_out_once() {
    let (mut shards, now) = at_the_edge();
    let all = ids(&take_singles(&mut shards[1], now));
    assert!(all > 100, "{all}");
    // Now a single request takes all these IDs.
    let (mut shards, now) = at_the_edge();
    let runs = take(&mut shards[1], now, all).expect("the sibling has that many");
    assert_once(&[runs, take_singles(&mut shards[0], now)].concat());
}
