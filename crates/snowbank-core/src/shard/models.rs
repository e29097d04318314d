//! Loom models: every interleaving of a few threads, run on the real cursor, rings, wait queue and
//! grant.
//!
//! Run with `RUSTFLAGS="--cfg snowbank_loom"` and `cargo test --release --package snowbank-core
//! --lib models`.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::*;
use crate::clock::BootMicros;
use crate::grant::Grant;
use crate::source::wait_queue::WaitRequest;
use crate::source::{OnStepBack, Rules, SequenceStart, Source};
use crate::sync::check_model;
use snowbank_id::layout::{Layout, Position, Run, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;

const NOW: Now = Now { wall: UnixMicros(1_800_000_000_000_000), boot: BootMicros(0), jumped: false };

/// Returns a source with four IDs in each tick of 1 ms. The IDs of `ticks` ticks can be claimed at
/// `NOW`.
fn source(ticks: u64, ceiling: impl FnOnce(Position) -> Position) -> Arc<Source> {
    let layout = Layout::resolve("time:41,worker:5,sequence:2").expect("a layout");
    let numbering = Numbering::new(layout, WorkerSet::single(0)).expect("worker 0 exists");
    let rules = Rules {
        burst_window: Duration::from_millis(ticks - 1),
        max_ahead: Duration::from_secs(10),
        on_step_back: OnStepBack::Ride,
        sequence_start: SequenceStart::Zero,
    };
    let started = Now { wall: UnixMicros(NOW.wall.0 - (ticks as i64 - 1) * 1_000), ..NOW };
    let floor = numbering.first_of(numbering.tick_at(started.wall));
    let grant = Grant::new(ceiling(floor));
    Arc::new(Source::new(String::from("model"), numbering, rules, grant, floor, started))
}

fn unlimited(_: Position) -> Position {
    Position(u64::MAX / 2)
}

fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(1)
}

#[test]
fn claims_are_disjoint_and_complete() {
    check_model(|| {
        let source = source(1, unlimited);
        let window = source.window(NOW);
        let claim = |source: Arc<Source>, count| move || source.claim(&window, count, &mut rng());
        let one = thread::spawn(claim(Arc::clone(&source), 1));
        let two = thread::spawn(claim(Arc::clone(&source), 2));
        let three = claim(Arc::clone(&source), 1)();
        let claims = [one.join().expect("no panic"), two.join().expect("no panic"), three];
        let mut positions = Vec::new();
        for (from, count) in claims.into_iter().zip([1, 2, 1]) {
            let from = from.expect("the tick has four IDs").0 - window.floor.0;
            positions.extend(from..from + count);
        }
        positions.sort_unstable();
        assert_eq!(positions, [0, 1, 2, 3]);
    });
}

#[test]
fn a_seal_returns_the_end_of_all_claims() {
    check_model(|| {
        let source = source(2, unlimited);
        let window = source.window(NOW);
        let claimer = {
            let source = Arc::clone(&source);
            thread::spawn(move || {
                let first = source.claim(&window, 1, &mut rng());
                (first, source.claim(&window, 2, &mut rng()))
            })
        };
        let end = source.seal().expect("sealed once");
        let (first, second) = claimer.join().expect("no panic");
        let claimed = first.map_or(0, |_| 1) + second.map_or(0, |_| 2);
        assert_eq!(end.0 - window.floor.0, claimed, "the seal returns exactly the end of what was claimed");
    });
}

#[test]
fn an_id_is_claimed_only_after_its_ceiling_is_raised() {
    use loom::sync::atomic::{AtomicU64, Ordering};
    check_model(|| {
        let source = source(1, |floor| Position(floor.0 + 1));
        let durable = Arc::new(AtomicU64::new(1));
        let keeper = {
            let source = Arc::clone(&source);
            let durable = Arc::clone(&durable);
            thread::spawn(move || {
                let floor = source.window(NOW).floor;
                // This store stands for the ceiling's sync to disk, which happens before the raise.
                // The store is relaxed, so that only the raise makes other threads see it.
                durable.store(3, Ordering::Relaxed);
                source.grant().raise(Position(floor.0 + 3));
            })
        };
        let window = source.window(NOW);
        for _ in 0..2 {
            let window = source.window(NOW);
            if let Some(from) = source.claim(&window, 1, &mut rng()) {
                assert!(
                    from.0 - window.floor.0 < durable.load(Ordering::Relaxed),
                    "claimed before its ceiling was durable"
                );
            }
        }
        keeper.join().expect("no panic");
        assert!(source.cursor().expect("not sealed").0 <= window.floor.0 + 3);
    });
}

/// A delayed thread must not begin a catch-up at a position that a later thread has claimed.
/// Otherwise the ID clock would run too far ahead.
#[test]
fn a_delayed_thread_does_not_move_the_catch_up_ahead() {
    check_model(|| {
        let source = source(1, unlimited);
        source.claim(&source.window(NOW), 4, &mut rng()).expect("the tick has IDs left");
        source.begin_catch_up(NOW);
        let later = Now { boot: BootMicros(20_000), ..NOW };
        let late = {
            let source = Arc::clone(&source);
            thread::spawn(move || source.begin_catch_up(NOW))
        };
        source.claim(&source.window(later), 1, &mut rng()).expect("the tick has IDs left");
        late.join().expect("no panic");
        assert_eq!(source.id_time(later), UnixMicros(NOW.wall.0 + 10_000), "20 ms at half speed");
    });
}

fn two_shards(source: &Arc<Source>) -> (Shard, Shard, Rings) {
    let rings: Rings = (0..2).map(|_| Ring::default()).collect();
    let shard = |index| {
        let lane = Lane::new(Arc::clone(source), Arc::clone(&rings), index, Order::Relaxed, NOW);
        Shard::new(index, vec![lane], 1, NOW)
    };
    (shard(0), shard(1), Arc::clone(&rings))
}

fn take(shard: &mut Shard, count: u64) -> Vec<Run> {
    let mut runs = Vec::new();
    shard.wake(NOW);
    let (lane, rng) = shard.lane(0);
    let _ = lane.take(count, || 0, rng, &mut runs);
    runs
}

#[test]
fn no_id_of_a_ring_is_taken_by_both_owner_and_sibling() {
    check_model(|| {
        let source = source(2, unlimited);
        let (mut owner, mut sibling, rings) = two_shards(&source);
        let window = source.window(NOW);
        // All eight IDs of the window are in the owner's ring, in blocks of two. Nothing is left to
        // claim.
        let from = source.claim(&window, 8, &mut rng()).expect("the whole window");
        for block in 0..4 {
            let span = crate::source::Span { from: Position(from.0 + 2 * block), count: 2 };
            assert!(rings[0].push(Block { span, generation: 0 }));
        }
        let thief = thread::spawn(move || {
            [take(&mut sibling, 1), take(&mut sibling, 1), take(&mut sibling, 1)].concat()
        });
        let own = [take(&mut owner, 1), take(&mut owner, 2), take(&mut owner, 1)].concat();
        let stolen = thief.join().expect("no panic");
        for runs in [&own, &stolen] {
            assert!(runs.windows(2).all(|pair| pair[0].last() < pair[1].first), "{runs:?}");
        }
        let mut all: Vec<u64> = own.iter().chain(&stolen).flat_map(Run::ids).collect();
        let handed_out = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), handed_out, "an ID was handed out twice: {own:?} {stolen:?}");
        assert!(handed_out >= 4, "the owner gets the rest: {own:?} {stolen:?}");
    });
}

#[test]
fn two_threads_advancing_the_queue_serve_each_request_once() {
    check_model(|| {
        let source = source(1, unlimited);
        let request = |shard| WaitRequest {
            count: 2,
            due: BootMicros(1_000_000),
            wait: Duration::from_secs(1),
            partial: false,
            shard,
        };
        let other = {
            let source = Arc::clone(&source);
            thread::spawn(move || {
                let id = source.admit(&source.window(NOW), request(1)).expect("there is time");
                source.advance(NOW, &mut rng());
                id
            })
        };
        let mine = source.admit(&source.window(NOW), request(0)).expect("there is time");
        source.advance(NOW, &mut rng());
        let theirs = other.join().expect("no panic");
        let later = NOW.after(Duration::from_millis(5));
        source.advance(later, &mut rng());
        let mut positions = Vec::new();
        for (shard, id) in [(0, mine), (1, theirs)] {
            let finished = source.collect(shard);
            assert_eq!(finished.len(), 1);
            assert_eq!((finished[0].id, finished[0].refusal), (id, None));
            let spans = finished[0].spans.iter();
            positions.extend(spans.flat_map(|span| span.from.0..span.end().0));
        }
        positions.sort_unstable();
        positions.dedup();
        assert_eq!(positions.len(), 4);
        assert_eq!(source.wait_queue().admitted_ids(), 0);
    });
}

#[test]
fn a_shard_drops_a_claim_that_races_with_the_loss_of_the_grant() {
    check_model(|| {
        let source = source(2, unlimited);
        let (mut shard, _sibling, _rings) = two_shards(&source);
        let other = {
            let source = Arc::clone(&source);
            thread::spawn(move || source.grant().revoke())
        };
        // The request wants one ID. The claim covers two more, which the shard keeps for later.
        shard.wake(NOW);
        let (lane, rng) = shard.lane(0);
        let _ = lane.take(1, || 2, rng, &mut Vec::new());
        other.join().expect("no panic");
        let later = take(&mut shard, 1);
        assert!(later.is_empty(), "handed out after the grant was taken away: {later:?}");
    });
}

#[test]
fn a_wait_drops_a_claim_that_races_with_the_loss_of_the_grant() {
    check_model(|| {
        let source = source(1, unlimited);
        let request = WaitRequest {
            count: 2,
            due: BootMicros(1_000_000),
            wait: Duration::from_secs(1),
            partial: false,
            shard: 0,
        };
        source.admit(&source.window(NOW), request).expect("there is time");
        let other = {
            let source = Arc::clone(&source);
            thread::spawn(move || source.grant().revoke())
        };
        source.advance(NOW, &mut rng());
        other.join().expect("no panic");
        let generation = source.grant().generation();
        for finished in source.collect(0) {
            let is_lost = finished.spans.is_empty() || finished.generation != generation;
            assert!(is_lost, "handed out after the grant was taken away: {finished:?}");
        }
    });
}

/// The keeper has made a ceiling durable while another thread notices a restored snapshot.
#[test]
fn a_ceiling_durable_before_a_loss_is_not_granted_afterwards() {
    check_model(|| {
        let grant = Arc::new(Grant::new(Position(1)));
        let other = {
            let grant = Arc::clone(&grant);
            thread::spawn(move || grant.revoke())
        };
        grant.raise_if(0, Position(2));
        other.join().expect("no panic");
        assert_eq!(grant.ceiling(), Position(0));
    });
}
