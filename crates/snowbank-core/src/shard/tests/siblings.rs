//! Blocks of siblings: which of them a shard may take, and that each is handed out once.

use super::*;

#[test]
fn at_the_edge_siblings_blocks_are_within_reach() {
    let source = source(TWITTER, "0");
    let mut shards = shards(&source, 2, Order::Relaxed);
    let now_us = warm_up(&mut shards[0], 0);
    let now = after_us(now_us);
    let window = source.window(now);
    let mut rng = fastrand::Rng::with_seed(3);
    let left = source.left(&window);
    source.claim(&window, left, &mut rng).expect("somebody takes all that is left");
    let runs = take(&mut shards[1], now, 2).expect("the sibling has some");
    assert_eq!(ids(&runs), 2);
}

#[test]
fn a_siblings_block_below_what_was_handed_out_is_dropped() {
    let source = source(TWITTER, "0");
    let mut shards = shards(&source, 2, Order::Relaxed);
    let now_us = warm_up(&mut shards[0], 0);
    let now = after_us(now_us);
    let window = source.window(now);
    let left = source.left(&window);
    let high = take(&mut shards[1], now, left).expect("all that is left");
    assert_eq!(take(&mut shards[1], now, 1), Err(1), "the sibling's are lower");
    let next = take(&mut shards[1], after_us(now_us + 1_000), 1).expect("the next tick");
    assert!(next[0].first > high[high.len() - 1].last());
}

#[test]
fn a_lost_grants_blocks_are_out_of_siblings_reach() {
    let source = source(TWITTER, "0");
    let mut shards = shards(&source, 2, Order::Relaxed);
    let now = after_us(warm_up(&mut shards[0], 0));
    source.grant().revoke();
    assert_eq!(take(&mut shards[1], now, 1), Err(1));
    let cursor = source.cursor().expect("not sealed");
    source.grant().raise(source.numbering().end());
    let runs = take(&mut shards[1], now, 1).expect("granted again");
    assert!(
        source.numbering().position_of(runs[0].first) >= Some(cursor),
        "not what the lost grant had claimed"
    );
}

#[test]
fn a_shut_window_shuts_siblings_rings_too() {
    let source = source(TWITTER, "0");
    let mut shards = shards(&source, 2, Order::Relaxed);
    let now = after_us(warm_up(&mut shards[0], 0));
    let back = Now { wall: UnixMicros(now.wall.0 - 60 * SECOND_US), ..now };
    assert_eq!(take(&mut shards[1], back, 1), Err(1));
    assert_eq!(take(&mut shards[1], Now { jumped: true, ..now }, 1), Err(1));
}

/// Two shards. The first has blocks, and the cursor has nothing left to claim.
fn at_the_edge() -> (Vec<Shard>, Now) {
    let source = source(TWITTER, "0");
    let mut shards = shards(&source, 2, Order::Relaxed);
    let now = after_us(warm_up(&mut shards[0], 0));
    let window = source.window(now);
    source.claim(&window, source.left(&window), &mut fastrand::Rng::with_seed(3)).expect("all that is left");
    (shards, now)
}

fn take_singles(shard: &mut Shard, now: Now) -> Vec<u64> {
    std::iter::from_fn(|| take(shard, now, 1).ok()).flat_map(|runs| runs[0].ids()).collect()
}

#[test]
fn what_a_sibling_takes_is_handed_out_once() {
    let (mut shards, now) = at_the_edge();
    let all = take_singles(&mut shards[1], now).len() as u64;
    assert!(all > 100, "{all}");
    // The same again, but all at once.
    let (mut shards, now) = at_the_edge();
    let runs = take(&mut shards[1], now, all).expect("the sibling has as many");
    let mut every: Vec<u64> = runs.iter().flat_map(Run::ids).collect();
    every.extend(take_singles(&mut shards[0], now));
    let handed_out = every.len();
    every.sort_unstable();
    every.dedup();
    assert_eq!(every.len(), handed_out, "an ID twice");
}
