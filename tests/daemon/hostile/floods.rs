//! Floods of requests: other clients get their IDs.

use super::*;

/// The requests beside a flood.
const REQUESTS: usize = 60;

/// Connections that send requests as fast as they can, and read the replies, until they are closed.
fn flood(daemon: &Daemon, connections: usize, requests: &[u8], stop: &AtomicBool) {
    thread::scope(|scope| {
        for _ in 0..connections {
            let wire = daemon.connect();
            let mut writer = wire.writer();
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) && writer.try_send(requests).is_ok() {}
                // Requests in flight would take long to answer.
                let _ = writer.tcp().shutdown(Shutdown::Both);
            });
            scope.spawn(move || {
                let (mut replies, mut discarded) = (wire.tcp(), [0; 65_536]);
                while replies.read(&mut discarded).is_ok_and(|size| size > 0) {}
            });
        }
    });
}

/// Requests single IDs a thousand times a second. Each request must get its ID within its wait.
fn ask_beside_a_flood(what: &str, requests: &[u8]) {
    let daemon = Setup::configured("shards = 1\nworker_ids = \"0-255\"\n").start();
    let stop = AtomicBool::new(false);
    let mut latencies = thread::scope(|scope| {
        let (daemon, stop) = (&daemon, &stop);
        scope.spawn(move || flood(daemon, 200, requests, stop));
        let mut wire = daemon.connect();
        let asked = (0..REQUESTS).map(|_| {
            let asked = Instant::now();
            assert_eq!(wire.next(Ask::of(1)).id_count(), Some(1), "beside {what}");
            let took = asked.elapsed();
            thread::sleep(Duration::from_millis(1).saturating_sub(took));
            took
        });
        let latencies: Vec<Duration> = asked.collect();
        stop.store(true, Ordering::Relaxed);
        latencies
    });
    latencies.sort_unstable();
    println!(
        "single IDs beside {what}: median {:?}, 99 % {:?}",
        latencies[REQUESTS / 2],
        latencies[REQUESTS * 99 / 100]
    );
    daemon.stop();
}

#[test]
fn a_flood_of_requests_keeps_no_other_client_from_its_ids() {
    let requests: Vec<u8> = (0..1_000).flat_map(|tag| Ask::of(1).tag(tag).bytes()).collect();
    ask_beside_a_flood("200 connections that flood requests", &requests);
}

#[test]
fn a_flood_of_malformed_frames_keeps_nobody_from_its_ids() {
    let requests: Vec<u8> = (0..400).flat_map(|tag| frame(1, 0xF0, tag, b"malformed")).collect();
    ask_beside_a_flood("200 connections that flood malformed frames", &requests);
}

#[test]
fn a_flood_of_long_replies_keeps_no_other_client_from_its_ids() {
    let requests: Vec<u8> =
        (0..100).flat_map(|tag| Ask::of(4_096).tag(tag).flags(EXPLICIT).bytes()).collect();
    ask_beside_a_flood("200 connections that ask for 4,096 IDs one by one", &requests);
}
