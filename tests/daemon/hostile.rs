//! Clients that send malformed frames, never read, come by the thousand, fall silent, or leave:
//! they harm only themselves.
//!
//! [`pending`]: clients without a token. [`admin`]: clients of the admin listener. [`queues`]:
//! clients that do not read. [`turns`]: the order in which a shard serves those that never stop
//! sending, and others.

mod admin;
mod pending;
mod queues;
mod turns;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::wire::frame;
use crate::support::{Ask, Daemon, Random, Setup, poll};

/// Ends the other threads, also if this one panics.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs `harm` while another connection draws IDs, which increase.
fn undisturbed(daemon: &Daemon, harm: impl FnOnce()) {
    let harmed = AtomicBool::new(false);
    thread::scope(|scope| {
        let drawing = scope.spawn(|| {
            let mut wire = daemon.connect();
            let mut last = 0;
            // At least once after the harm.
            let mut is_harmed = false;
            while !is_harmed {
                is_harmed = harmed.load(Ordering::SeqCst);
                let ids = wire.next(Ask::of(100).wait_ms(10_000)).ids();
                assert!(ids[0] > last);
                last = ids[ids.len() - 1];
                thread::sleep(Duration::from_millis(1));
            }
        });
        let done = Done(&harmed);
        harm();
        drop(done);
        drawing.join().expect("the other connection is not disturbed");
    });
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    let daemon = Setup::new().args(["--shards", "2"]).start();
    daemon.connect().assert_open();
    let files_at_rest = poll("a daemon at rest", || {
        let files = daemon.open_files();
        thread::sleep(Duration::from_millis(50));
        (files == daemon.open_files()).then_some(files)
    });
    undisturbed(&daemon, || {
        thread::scope(|scope| {
            for seed in 0..4 {
                let daemon = &daemon;
                scope.spawn(move || {
                    let mut random = Random::seeded(seed);
                    for _ in 0..750 {
                        let mut wire = daemon.connect();
                        let how = random.below(4);
                        if how > 0 {
                            let _ = wire.try_send(&Ask::of(3).bytes()[..5 * how as usize]);
                        }
                        if how == 2 {
                            // Closed with a reset.
                            let _ = socket2::SockRef::from(wire.tcp()).set_linger(Some(Duration::ZERO));
                        }
                    }
                });
            }
        });
    });
    poll("the files of closed connections to be closed", || {
        (daemon.open_files() <= files_at_rest).then_some(())
    });
    daemon.connect().assert_open();
    daemon.stop();
}

#[test]
fn a_peer_that_sends_only_errors_is_closed() {
    let daemon = Setup::new().start();
    let error = frame(1, 0xF0, 1, b"malformed");
    let mut wire = daemon.connect();
    // With an answer that is no error between them, the connection stays open.
    for _ in 0..3 {
        for _ in 0..999 {
            wire.call(&error).error();
        }
        assert_eq!(wire.next(Ask::of(1)).id_count(), Some(1));
    }
    for _ in 0..1_000 {
        wire.call(&error).error();
    }
    wire.assert_closed();
    daemon.assert_logs("a thousand requests in a row that are errors");
}
