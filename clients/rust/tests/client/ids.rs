//! `Ids`: the buffer that hands out IDs one at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use snowbank_client::layout::Run;
use snowbank_client::protocol::ErrorCode;
use snowbank_client::{Error, IdsOptions};
use tokio::time::sleep;

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
async fn every_id_once_and_in_order() {
    let asked = Arc::new(AtomicUsize::new(0));
    let daemon = counting(&asked);
    let options = IdsOptions::default().max_batch(3_000).max_age(Duration::from_secs(3_600));
    let mut ids = client(&[&daemon]).ids(options).expect("IDs");
    for expected in 1_000..101_000 {
        assert_eq!(ids.next().await.expect("an ID"), expected);
    }
    assert!(asked.load(Ordering::SeqCst) < 100_000 + 2 * 3_000 + 1);
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

#[tokio::test]
async fn ids_older_than_the_limit_are_dropped_and_none_are_fetched_while_idle() {
    let asked = Arc::new(AtomicUsize::new(0));
    let daemon = counting(&asked);
    let mut ids = client(&[&daemon]).ids(IdsOptions::default().max_age(ms(6_000))).expect("IDs");
    assert_eq!(ids.next().await.expect("an ID"), 1_000);
    assert_eq!(ids.try_next().expect("an ID"), Some(1_001));
    sleep(ms(7_000)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 16, "nobody asked");
    assert_eq!(ids.try_next().expect("no error"), None, "what is there is too old");
    assert_eq!(ids.next().await.expect("a new ID"), 1_016);
    assert_eq!(asked.load(Ordering::SeqCst), 18, "two were used of the last batch");
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
async fn a_reconnect_to_the_same_daemon_keeps_the_order() {
    let daemon = FakeDaemon::start(|number, peer| {
        peer.greet();
        let (next, tag) = peer.read_next();
        match number {
            0 => {
                peer.send_run(tag, 1_000, next.count);
            }
            // First all IDs, then some, lie below those handed out before.
            _ => {
                peer.send_run(tag, 900, next.count);
                let (next, tag) = peer.read_next();
                let runs = [
                    Run { first: 950, count: 1, stride: 1 },
                    Run { first: 1_000, count: next.count - 1, stride: 10 },
                ];
                peer.send_runs(tag, &runs, false);
                peer.wait_for_close();
            }
        }
    });
    let options = IdsOptions::default().max_age(Duration::from_secs(3_600));
    let mut ids = client(&[&daemon]).ids(options).expect("IDs");
    let mut seen = Vec::new();
    for _ in 0..20 {
        seen.push(ids.next().await.expect("an ID"));
    }
    let expected: Vec<u64> = (1_000..1_016).chain([1_020, 1_030, 1_040, 1_050]).collect();
    assert_eq!(seen, expected);
}

/// A daemon is replaced by one on the same address whose IDs are lower.
#[tokio::test]
async fn lower_ids_of_another_daemon_are_one_error_and_then_served() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let lower = Arc::new(std::sync::Mutex::new(1_000));
    let daemon = FakeDaemon::start(move |number, peer| {
        peer.greet();
        if number == 0 {
            let (next, tag) = peer.read_next();
            peer.send_run(tag, 1_000_000_000, next.count);
            return;
        }
        while let Some((request, tag)) = peer.read() {
            if let Asked::Next(next) = &request {
                counter.fetch_add(next.count as usize, Ordering::SeqCst);
            }
            peer.answer(&request, tag, &mut lower.lock().expect("no panic"));
        }
    });
    let options = IdsOptions::default().max_age(Duration::from_secs(3_600));
    let mut ids = client(&[&daemon]).ids(options).expect("IDs");
    for id in 1_000_000_000..1_000_000_016 {
        assert_eq!(ids.next().await, Ok(id));
    }
    let error = ids.next().await.expect_err("lower IDs");
    assert!(matches!(error, Error::WentBack { highest: 1_000_000_015, .. }), "{error:?}");
    assert!(error.to_string().contains(&daemon.name()), "{error}");
    let skipped = asked.load(Ordering::SeqCst);
    assert!(skipped < 2_000, "{skipped} IDs are skipped");
    let mut last = 0;
    for _ in 0..100 {
        let id = ids.next().await.expect("the lower IDs");
        assert!((last + 1..1_000_000).contains(&id), "{id} after {last}");
        last = id;
    }
}

#[tokio::test]
async fn an_error_comes_when_the_buffer_is_empty_and_the_next_call_recovers() {
    let daemon = FakeDaemon::start(|_, peer| {
        peer.greet();
        let (_, tag) = peer.read_next();
        peer.send_run(tag, 1, 2);
        let (_, tag) = peer.read_next();
        peer.refuse(tag, ErrorCode::Exhausted, None, "");
        let (_, tag) = peer.read_next();
        peer.send_run(tag, 10, 2);
        peer.wait_for_close();
    });
    let options = IdsOptions::default().max_age(Duration::from_secs(3_600));
    let mut ids = client(&[&daemon]).ids(options).expect("IDs");
    assert_eq!(ids.next().await, Ok(1));
    assert_eq!(ids.next().await, Ok(2));
    let error = ids.next().await.expect_err("none left");
    assert_eq!(error.code(), Some(ErrorCode::Exhausted));
    assert_eq!(ids.next().await, Ok(10));
}

#[tokio::test]
async fn try_next_works_outside_a_runtime() {
    let daemon = FakeDaemon::honest(7);
    let mut ids = client(&[&daemon]).ids(IdsOptions::default()).expect("IDs");
    let id = tokio::task::spawn_blocking(move || {
        std::thread::spawn(move || {
            loop {
                if let Some(id) = ids.try_next().expect("no error") {
                    return id;
                }
                std::thread::sleep(ms(1));
            }
        })
        .join()
        .expect("no panic")
    });
    assert_eq!(id.await.expect("no panic"), 7);
}

#[tokio::test]
async fn options_out_of_range_are_refused() {
    let client = client(&[&FakeDaemon::honest(1)]);
    for options in [IdsOptions::default().max_batch(0), IdsOptions::default().max_age(Duration::ZERO)] {
        assert!(matches!(client.ids(options), Err(Error::BadOption(_))));
    }
}

/// The daemon allows fewer IDs a request than the buffer wants, for example since a reload.
#[tokio::test]
async fn a_buffer_follows_a_daemons_max_count() {
    let daemon = FakeDaemon::start(|_, peer| {
        peer.greet();
        let mut next_id = 1;
        while let Some((Asked::Next(next), tag)) = peer.read() {
            match next.count {
                0..=10 => peer.send_run(tag, next_id, next.count),
                _ => peer.refuse(tag, ErrorCode::BadCount, None, "1 to 10 are allowed"),
            };
            next_id += u64::from(next.count.min(10));
        }
    });
    let mut ids = client(&[&daemon]).ids(IdsOptions::default()).expect("IDs");
    for _ in 0..1_000 {
        ids.next().await.expect("an ID");
    }
}
