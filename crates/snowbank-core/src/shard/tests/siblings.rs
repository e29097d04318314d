//! Blocks of siblings: which of them a shard may take, and that each is handed out once.

use super::*;

/// Returns two shards. The first has blocks, and the cursor has nothing left to claim.
fn at_the_edge() -> (Vec<Shard>, Now) {
    let (source, shards, now) = busy_shards(2);
    drain(&source, now);
    (shards, now)
}

fn take_singles(shard: &mut Shard, now: Now) -> Vec<Run> {
    std::iter::from_fn(|| take(shard, now, 1).ok()).flatten().collect()
}

#[test]
fn what_a_sibling_takes_is_handed_out_once() {
    let (mut shards, now) = at_the_edge();
    let all = ids(&take_singles(&mut shards[1], now));
    assert!(all > 100, "{all}");
    // Again, but with one request for all.
    let (mut shards, now) = at_the_edge();
    let runs = take(&mut shards[1], now, all).expect("the sibling has as many");
    assert_once(&[runs, take_singles(&mut shards[0], now)].concat());
}
