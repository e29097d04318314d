//! Several targets in one run: no ID may come from two targets.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::scripted::fake_daemon::FakeDaemon;
use crate::support::scripted::{WORKER_4, sound_target, target};
use crate::support::{CLOSED, Ran, loadtest};

const OTHER_LAYOUT: &str = r#"{"protocol":1,"max_count":1000,"sources":[
    {"name":"default","layout":"time:41,worker:10,sequence:12;tick=1ms;epoch=0","worker_ids":[4]}]}"#;

/// The distance from an ID of worker 3 to the ID of worker 4 with the same time and sequence.
const NEXT_WORKER: u64 = 1 << 12;

fn load(targets: [&FakeDaemon; 2]) -> Ran {
    let [one, other] = targets.map(FakeDaemon::name);
    loadtest(&format!("{CLOSED} --threads 2 --address={one} --address={other}"))
}

#[test]
fn two_targets_are_loaded_together() {
    let one = sound_target();
    let other = target(WORKER_4, |_, ids, peer, next, tag| {
        peer.send_run(tag, ids.take(next.count) + NEXT_WORKER, next.count)
    });
    let ran = load([&one, &other]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.figure("target", "address"), format!("{}, {}", one.name(), other.name()), "{ran:?}");
    assert_eq!(ran.figure("IDs", "answered"), ran.figure("IDs", "requests"), "{ran:?}");
}

#[test]
fn targets_that_can_hand_out_the_same_id_are_refused() {
    let ran = load([&sound_target(), &sound_target()]);
    ran.assert_refused(1, "hand out the same IDs");
    let other = target(OTHER_LAYOUT, |_, _, _, _, _| true);
    load([&sound_target(), &other]).assert_refused(2, "have no common layout");
}

#[test]
fn an_id_that_comes_twice_from_one_target_is_found() {
    let given = AtomicU64::new(0);
    let repeats = target(WORKER_4, move |number, ids, peer, next, tag| {
        let fresh = ids.take(next.count) + NEXT_WORKER;
        let first = if number == 20 { given.load(Ordering::SeqCst) } else { fresh };
        given.store(first, Ordering::SeqCst);
        peer.send_run(tag, first, next.count)
    });
    let ran = load([&sound_target(), &repeats]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("duplicate: ") && ran.result().contains("worker=4"), "{ran:?}");
}

/// Two daemons of a fleet share a counter, so no number may come from both. But here each of the
/// two hands out all numbers.
#[test]
fn a_number_from_two_targets_that_share_a_counter_is_found() {
    const SHARED: &str = r#"{"protocol":1,"max_count":1000,"sources":[
        {"name":"orders","kind":"ticket","increment":1,"offset":1,"fleet":"one"}]}"#;
    let counter = || {
        let next_number = AtomicU64::new(1);
        target(SHARED, move |_, _, peer, next, tag| {
            peer.send_run(tag, next_number.fetch_add(next.count.into(), Ordering::SeqCst), next.count)
        })
    };
    let ran = load([&counter(), &counter()]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("duplicate: "), "{ran:?}");
}
