//! Tests of the IDs that a request got before it had to wait, and of the end of its wait.

use super::*;
use crate::grant::Grant;
use crate::source::wait_queue::{Finished, WaitRequest};

/// Takes some IDs for a request and waits for the rest. Calls `lose` before the wait ends.
fn waits_for_more(lose: impl FnOnce(&Source)) -> (Arc<Source>, Shard, Taken, Finished) {
    let source = source(TWITTER, "0");
    let mut shard = shards(&source, 1, Order::Relaxed).remove(0);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut runs = Vec::new();
    shard.wake(START);
    let (lane, shards_rng) = shard.lane(0);
    lane.take(40, || 0, shards_rng, &mut runs).expect("there is room");
    let window = lane.window();
    drain(&source, START);
    let request = WaitRequest {
        count: 60,
        due: after_us(500_000).boot,
        wait: Duration::from_millis(500),
        partial: false,
        shard: 0,
    };
    source.admit(&window, request).expect("available with the next tick");
    let taken = lane.keep(runs);
    assert_eq!(taken.count(), 40);
    lose(&source);
    source.advance(after_us(1_000), &mut rng);
    let finished = source.collect(0).remove(0);
    (source, shard, taken, finished)
}

#[test]
fn a_wait_ends_with_the_ids_from_before_and_during_it() {
    let (_, mut shard, taken, finished) = waits_for_more(|_| {});
    let mut runs = Vec::new();
    assert_eq!(shard.lane(0).0.end_wait(taken, &finished, &mut runs), Ok(None));
    assert_eq!(ids(&runs), 100);
}

#[test]
fn ids_taken_before_a_wait_are_dropped_with_the_grant() {
    let lose = |source: &Source| {
        source.grant().revoke();
        source.grant().raise(source.numbering().end());
    };
    let (_, mut shard, taken, finished) = waits_for_more(lose);
    assert_eq!(finished.refusal, None, "the wait queue claimed the rest under the new grant");
    let mut runs = Vec::new();
    assert_eq!(shard.lane(0).0.end_wait(taken, &finished, &mut runs), Err(IdsLost));
    assert_eq!(runs, [], "the request must get none of the lost IDs");
}

#[test]
fn ids_claimed_during_a_wait_are_dropped_with_the_grant() {
    for lose in [Grant::revoke, Grant::lose] {
        let (source, mut shard, _, finished) = waits_for_more(|_| {});
        let (lane, _) = shard.lane(0);
        let nothing_before = lane.keep(Vec::new());
        lose(source.grant());
        let mut runs = Vec::new();
        assert_eq!(lane.end_wait(nothing_before, &finished, &mut runs), Err(IdsLost));
        assert_eq!(runs, []);
    }
}
