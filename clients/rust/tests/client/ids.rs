//! `Ids`: the buffer that hands out IDs one at a time.

use std::sync::mpsc;
use std::time::Duration;

use snowbank_client::{Error, IdsOptions};

use crate::fake_daemon::FakeDaemon;
use crate::{client, eventually, ms};

#[tokio::test]
async fn the_buffer_is_refilled_before_it_is_empty() {
    let (asked, requests) = mpsc::channel();
    let daemon = FakeDaemon::start(move |_, peer| {
        peer.greet();
        let (first, tag) = peer.read_next();
        asked.send(first).expect("the test listens");
        peer.send_run(tag, 1_000, first.count);
        asked.send(peer.read_next().0).expect("the test listens");
        peer.wait_for_close();
    });
    let options = IdsOptions::default().max_age(Duration::from_secs(3_600));
    let mut ids = client(&[&daemon]).ids(options).expect("IDs");
    ids.next().await.expect("an ID");
    let first = requests.recv().expect("a request");
    assert_eq!((first.count, first.partial), (16, true));
    for _ in 1..=first.count / 2 {
        ids.try_next().expect("an ID").expect("the buffer has an ID");
    }
    eventually("the client asks for the next batch", || requests.try_recv().is_ok()).await;
    // The first batch still has its other half.
    for _ in first.count / 2 + 1..first.count {
        ids.try_next().expect("an ID").expect("the buffer has an ID");
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
    assert!(left <= 256, "{left} IDs that were too old");
}

#[tokio::test]
async fn options_out_of_range_are_refused() {
    let client = client(&[&FakeDaemon::honest(1)]);
    for options in [IdsOptions::default().max_batch(0), IdsOptions::default().max_age(Duration::ZERO)] {
        assert!(matches!(client.ids(options), Err(Error::BadOption(_))));
    }
}
