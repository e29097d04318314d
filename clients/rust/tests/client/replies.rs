//! Replies: runs, lists, pipelining, and calls that were cancelled.

use std::sync::mpsc;

use snowbank_client::layout::Run;
use snowbank_client::protocol::{Next, Wait, reply};
use snowbank_client::{Client, Error};

use crate::fake_daemon::FakeDaemon;
use crate::{client, ms, patient};

#[tokio::test]
async fn a_batch_has_the_requested_ids() {
    let daemon = FakeDaemon::start(|_, peer| {
        peer.greet();
        let (next, tag) = peer.read_next();
        let wait = Wait::at_most(ms(250));
        assert_eq!(next, Next { count: 5, source: 3, wait, explicit: false, partial: true });
        let runs = [Run { first: 100, count: 2, stride: 10 }, Run { first: 200, count: 1, stride: 0 }];
        peer.send_runs(tag, &runs, true);
        peer.send_run(tag, 300, 1);
        peer.wait_for_close();
    });
    let client = client(&[&daemon]);
    let batch = client.batch(5).source(3).max_wait(ms(250)).partial().await.expect("IDs");
    assert_eq!(batch.iter().collect::<Vec<_>>(), [100, 110, 200, 300]);
    assert_eq!((batch.len(), batch.endpoint()), (4, &*daemon.name()));
}

#[tokio::test]
async fn an_explicit_batch_comes_as_a_list() {
    let daemon = FakeDaemon::start(|_, peer| {
        peer.greet();
        let (next, tag) = peer.read_next();
        assert!(next.explicit);
        peer.send(|out| reply::encode_list_frame(out, tag, 1..8_000, true).expect("fits"));
        peer.send(|out| reply::encode_list_frame(out, tag, 8_000..=10_000, false).expect("fits"));
        peer.wait_for_close();
    });
    let batch = client(&[&daemon]).batch(10_000).explicit().await.expect("IDs");
    assert!(batch.iter().eq(1..=10_000));
}

#[tokio::test]
async fn info_and_ping() {
    let daemon = FakeDaemon::honest(1);
    let client = client(&[&daemon]);
    assert_eq!(client.info().await.expect("INFO").max_count, 1_000_000);
    client.ping().await.expect("PONG");
    assert_eq!(daemon.connections(), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_serves() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let daemon = FakeDaemon::honest(42);
    let upstream = daemon.address;
    std::thread::spawn(move || {
        let (mut near, _) = listener.accept().expect("a connection");
        let mut far = std::net::TcpStream::connect(upstream).expect("the daemon");
        let (mut near_again, mut far_again) =
            (near.try_clone().expect("a clone"), far.try_clone().expect("a clone"));
        std::thread::spawn(move || std::io::copy(&mut near, &mut far));
        std::io::copy(&mut far_again, &mut near_again)
    });
    let client = Client::new(patient([format!("unix:{}", path.display())])).expect("a client");
    let batch = client.batch(1).await.expect("an ID");
    assert_eq!(batch.iter().next(), Some(42));
}

/// The daemon reads all requests before it answers one: the calls do not wait for each other.
#[tokio::test]
async fn calls_of_clones_are_pipelined_on_one_connection() {
    const CALLS: u32 = 100;
    let daemon = FakeDaemon::start(|_, peer| {
        peer.greet();
        let asked: Vec<_> = (0..CALLS).map(|_| peer.read_next()).collect();
        for (next, tag) in asked {
            peer.send_run(tag, u64::from(next.count) * 1_000, next.count);
        }
        peer.wait_for_close();
    });
    let client = client(&[&daemon]);
    let calls: Vec<_> = (1..=CALLS)
        .map(|count| {
            let client = client.clone();
            tokio::spawn(async move { client.batch(count).await.expect("IDs") })
        })
        .collect();
    for (count, call) in (1..).zip(calls) {
        let batch = call.await.expect("no panic");
        assert_eq!((batch.len() as u64, batch.iter().next()), (count, Some(count * 1_000)));
    }
    assert_eq!(daemon.connections(), 1);
}

#[tokio::test]
async fn a_cancelled_call_leaves_the_others_matched() {
    let (answer, answers) = mpsc::channel();
    let answers = std::sync::Mutex::new(answers);
    let daemon = FakeDaemon::start(move |_, peer| {
        peer.greet();
        let (_, cancelled) = peer.read_next();
        answers.lock().expect("no panic").recv().expect("a word from the test");
        let (_, kept) = peer.read_next();
        peer.send_run(cancelled, 1_000, 7);
        peer.send_run(kept, 2_000, 7);
        peer.wait_for_close();
    });
    let client = client(&[&daemon]);
    // Long enough for the greeting and the request, also on a busy machine.
    let cancelled = client.batch(7).timeout(ms(6_000)).await;
    assert!(matches!(cancelled, Err(Error::Deadline { .. })), "{cancelled:?}");
    answer.send(()).expect("the daemon waits");
    let kept = client.batch(7).await.expect("IDs");
    assert_eq!(kept.iter().next(), Some(2_000));
    assert_eq!(daemon.connections(), 1);
}
