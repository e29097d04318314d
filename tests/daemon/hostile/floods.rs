//! Floods of requests: other clients get their IDs.

use super::*;

/// The requests beside a flood.
const REQUESTS: usize = 25;

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

/// Requests single IDs. Each request must get its ID.
fn ask_beside_a_flood(requests: &[u8]) {
    let daemon = Setup::configured("shards = 1\nworker_ids = \"0-255\"\n").start();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (daemon, stop) = (&daemon, &stop);
        scope.spawn(move || flood(daemon, 200, requests, stop));
        let _done = Done(stop);
        let mut wire = daemon.connect();
        for _ in 0..REQUESTS {
            assert_eq!(wire.next(Ask::of(1).wait_ms(10_000)).id_count(), Some(1));
            thread::sleep(Duration::from_millis(1));
        }
    });
    daemon.stop();
}

#[test]
fn a_flood_of_requests_keeps_no_other_client_from_its_ids() {
    ask_beside_a_flood(&(0..1_000).flat_map(|tag| Ask::of(1).tag(tag).bytes()).collect::<Vec<u8>>());
}

#[test]
fn a_flood_of_malformed_frames_keeps_nobody_from_its_ids() {
    ask_beside_a_flood(&(0..400).flat_map(|tag| frame(1, 0xF0, tag, b"malformed")).collect::<Vec<u8>>());
}

#[test]
fn a_flood_of_long_replies_keeps_no_other_client_from_its_ids() {
    let ask = |tag| Ask::of(4_096).tag(tag).flags(EXPLICIT).bytes();
    ask_beside_a_flood(&(0..100).flat_map(ask).collect::<Vec<u8>>());
}
