//! `Ids`: the buffer that hands out IDs one at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use snowbank_client::{Error, IdsOptions};

use crate::fake_daemon::{Asked, FakeDaemon};
use crate::{client, eventually, ms};

/// Counts the IDs that were requested, and answers correctly.
fn counting(asked: &Arc<AtomicUsize>) -> FakeDaemon {
    let asked = Arc::clone(asked);
    let next_id = Arc::new(std::sync::Mutex::new(1_000));
    FakeDaemon::start(move |_, peer| {
        peer.greet();
        while let Some((request, tag)) = peer.read() {
            if let Asked::Next(next) = &request {
                assert!(next.partial);
                asked.fetch_add(next.count as usize, Ordering::SeqCst);
            }
            peer.answer(&request, tag, &mut next_id.lock().expect("no panic"));
        }
    })
}

#[tokio::test]
async fn the_buffer_is_refilled_before_it_is_empty() {
    let asked = Arc::new(AtomicUsize::new(0));
    let daemon = counting(&asked);
    let options = IdsOptions::default().max_age(Duration::from_secs(3_600));
    let mut ids = client(&[&daemon]).ids(options).expect("IDs");
    ids.next().await.expect("an ID");
    let first = asked.load(Ordering::SeqCst);
    assert_eq!(first, 16);
    for _ in 1..=first / 2 {
        ids.try_next().expect("an ID").expect("the buffer has it");
    }
    eventually("the next batch is asked for", || asked.load(Ordering::SeqCst) > first).await;
    // The first buffer still has its other half.
    for _ in first / 2 + 1..first {
        ids.try_next().expect("an ID").expect("the buffer has it");
    }
}

/// A blocked runtime runs no timers, so the age is checked where a slice begins.
#[tokio::test]
async fn old_ids_are_dropped_on_a_blocked_runtime_too() {
    let daemon = FakeDaemon::honest(1);
    let options = IdsOptions::default().max_age(ms(100));
    let mut ids = client(&[&daemon]).ids(options).expect("IDs");
    for _ in 0..5_000 {
        ids.next().await.expect("an ID");
    }
    std::thread::sleep(ms(200));
    let left = std::iter::from_fn(|| ids.try_next().expect("no error")).count();
    assert!(left <= 256, "{left} IDs after their time");
}

#[tokio::test]
async fn options_out_of_range_are_refused() {
    let client = client(&[&FakeDaemon::honest(1)]);
    for options in [IdsOptions::default().max_batch(0), IdsOptions::default().max_age(Duration::ZERO)] {
        assert!(matches!(client.ids(options), Err(Error::BadOption(_))));
    }
}
