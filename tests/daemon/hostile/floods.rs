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
                let mut replies = wire.tcp();
                let mut discarded = [0; 65_536];
                while replies.read(&mut discarded).is_ok_and(|size| size > 0) {}
            });
        }
    });
}

#[test]
fn a_flood_of_malformed_frames_keeps_nobody_from_its_ids() {
    let malformed: Vec<u8> = (0..400).flat_map(|tag| frame(1, 0xF0, tag, b"malformed")).collect();
    let daemon = Setup::configured("shards = 1\nworker_ids = \"0-255\"\n").start();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| flood(&daemon, 200, &malformed, &stop));
        let _done = Done(&stop);
        let mut wire = daemon.connect();
        for _ in 0..REQUESTS {
            assert_eq!(wire.next(Ask::of(1)).id_count(), Some(1));
            thread::sleep(Duration::from_millis(1));
        }
    });
    daemon.stop();
}
