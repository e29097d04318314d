//! Clients that send malformed bytes, never read, flood the daemon, fall silent, or disconnect.
//! They do not disturb other clients.
//!
//! [`pending`]: clients without a token. [`admin`]: clients of the admin listener. [`queues`]:
//! clients that do not read. [`turns`]: the order in which a shard serves a flood and other
//! clients.

mod admin;
mod pending;
mod queues;
mod turns;

use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::ids::assert_distinct;
use crate::support::wire::{self, Run, frame};
use crate::support::{Ask, Daemon, Random, Reply, Setup, poll};

/// Sets a flag when it is dropped, so that other threads end even if this thread panics.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs `harm` while another connection draws IDs and checks their order. Returns those IDs.
fn undisturbed(daemon: &Daemon, harm: impl FnOnce()) -> Vec<Run> {
    let harmed = AtomicBool::new(false);
    thread::scope(|scope| {
        let drawing = scope.spawn(|| {
            let mut wire = daemon.connect();
            let mut drawn: Vec<Run> = Vec::new();
            // Draws at least once after `harm` has returned.
            loop {
                let last_time = harmed.load(Ordering::SeqCst);
                let size = [1, 10, 1_000][drawn.len() % 3];
                for run in wire.next(Ask::of(size).wait_ms(10_000)).runs() {
                    assert!(drawn.last().is_none_or(|last| last.last() < run.first));
                    drawn.push(run);
                }
                if last_time {
                    return drawn;
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        let done = Done(&harmed);
        harm();
        drop(done);
        drawing.join().expect("the other connection is not disturbed")
    })
}

/// Returns random bytes that resemble the protocol: whole frames, frames with a flipped bit,
/// truncated frames, and noise.
fn rubbish(random: &mut Random) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..random.below(6) {
        let tag = random.next() as u16;
        let count = random.pick(&[0, 1, 2, 77, 70_000, u32::MAX]);
        let flags = random.pick(&[0, 0, 1, 2, 3, 4, 255]);
        let length = random.below(40) as usize;
        let mut piece = match random.below(6) {
            0 => random.bytes(length),
            1 => frame(random.next() as u8, flags, tag, &random.bytes(length)),
            2 => wire::ping(tag, &random.bytes(length)),
            3 => wire::info(tag),
            _ => Ask::of(count).tag(tag).wait_ms(random.pick(&[0, 0, 5, 65_535])).flags(flags).bytes(),
        };
        match random.below(4) {
            0 if !piece.is_empty() => {
                let at = random.below(piece.len() as u64) as usize;
                piece[at] ^= 1 << random.below(8);
            }
            1 => piece.truncate(random.below(piece.len() as u64 + 1) as usize),
            _ => {}
        }
        stream.extend_from_slice(&piece);
    }
    stream
}

/// Sends [`rubbish`] in pieces, and reads until the connection ends. Adds the IDs of all replies to
/// `drawn`.
fn send_rubbish(daemon: &Daemon, random: &mut Random, drawn: &mut Vec<Run>) {
    let stream = rubbish(random);
    let mut wire = daemon.connect();
    let mut rest = &stream[..];
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(1 + random.below(rest.len() as u64) as usize);
        if wire.try_send(piece).is_err() {
            // The daemon may have closed the connection after an invalid length.
            break;
        }
        rest = later;
    }
    if random.below(4) == 0 {
        // Closes without reading the replies.
        return;
    }
    let _ = wire.tcp().shutdown(Shutdown::Write);
    while let Ok(Some(reply)) = wire.try_reply() {
        match reply {
            Reply::Runs(_, runs) => drawn.extend(runs),
            Reply::List(_, ids) => {
                drawn.extend(ids.into_iter().map(|first| Run { first, count: 1, stride: 1 }))
            }
            _ => {}
        }
    }
}

#[test]
fn random_bytes_do_not_disturb_other_clients() {
    let daemon = Setup::new().args(["--shards", "2", "--worker-id", "0-7"]).start();
    let amid_rubbish = Mutex::new(Vec::new());
    let drawn = undisturbed(&daemon, || {
        thread::scope(|scope| {
            for seed in 0..3 {
                let daemon = &daemon;
                let amid_rubbish = &amid_rubbish;
                scope.spawn(move || {
                    let mut random = Random::seeded(seed);
                    let mut drawn = Vec::new();
                    (0..500).for_each(|_| send_rubbish(daemon, &mut random, &mut drawn));
                    amid_rubbish.lock().expect("no panic").extend(drawn);
                });
            }
        });
    });
    // IDs that were requested between malformed frames are distinct as well.
    let amid_rubbish = amid_rubbish.into_inner().expect("no panic");
    assert!(!amid_rubbish.is_empty());
    assert_distinct([drawn, amid_rubbish].concat());
    daemon.stop();
}

#[test]
fn closed_connections_leave_no_open_files() {
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
                            let _ = wire.try_send(&Ask::of(3).bytes()[..4 * how as usize]);
                        }
                        if how == 2 {
                            // The connection closes with a reset.
                            let _ = socket2::SockRef::from(wire.tcp()).set_linger(Some(Duration::ZERO));
                        }
                    }
                });
            }
        });
    });
    poll("the end of all files of closed connections", || {
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
    // The connection stays open, because a request succeeds before there are a thousand errors in a
    // row.
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
    daemon.assert_logs("its last thousand requests were errors");
    // What is sent at once is answered before the end.
    let mut wire = daemon.connect();
    wire.send(&error.repeat(1_100));
    for _ in 0..1_100 {
        wire.reply().error();
    }
    wire.assert_closed();
}
