//! Error codes and limits: clients that do too much, too slowly, or nothing.
//!
//! `clock_behind` and `no_ceiling` are tested with clock steps and failing storage.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::wire::{self, MALFORMED, UNSUPPORTED, frame};
use crate::support::{Ask, Reply, Setup, TWO_SOURCES, Wire, poll};
use rustix::process::Signal;

/// 16 IDs in each second: a few IDs are enough to make requests wait.
const SECONDS: &str = "time:31,worker:10,sequence:4;tick=1s;epoch=2025-01-01T00:00:00Z";

/// The vectors of docs/protocol.md: bytes that the daemon cannot use, and its answers.
#[test]
fn faults_are_answered_as_the_vectors_say() {
    let daemon = Setup::new().start();
    let vectors = include_str!("../vectors/faults.txt").lines().filter(|line| !line.starts_with('#'));
    for vector in vectors {
        let [name, _, hex, code, tag, connection] = vector.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{vector:?}")
        };
        let mut wire = daemon.connect();
        wire.send(&wire::ping(1, b"before"));
        wire.send(&wire::bytes_of_hex(hex));
        assert_eq!(wire.reply(), Reply::Pong(1, b"before".to_vec()), "{name}");
        let expected = if code == "malformed" { MALFORMED } else { UNSUPPORTED };
        wire.reply().assert_error(tag.parse().expect("a tag"), expected);
        match connection {
            "closed" => wire.assert_closed(),
            _ => wire.assert_open(),
        }
    }
}

/// The error also arrives if the client sends more, even after the daemon has closed.
#[test]
fn a_length_out_of_range_is_malformed_with_tag_0_and_the_end() {
    let daemon = Setup::new().start();
    for length in [0_u32, 3, 1_025, u32::MAX] {
        for more in [0, 4, 300_000] {
            let mut wire = daemon.connect();
            let mut bytes = length.to_le_bytes().to_vec();
            bytes.resize(bytes.len() + more, 0x01);
            let _ = wire.try_send(&bytes);
            let message = wire.reply().assert_error(0, MALFORMED);
            assert!(message.contains(&length.to_string()) && message.contains("1024"), "{message}");
            wire.assert_closed();
        }
    }
    // The longest allowed frame.
    let mut wire = daemon.connect();
    wire.call(&frame(0x7E, 0, 3, &[0; 1_020])).assert_error(3, UNSUPPORTED);
    wire.assert_open();
}

/// A client that has shut down its writing side may still read. A client that resets its connection
/// is gone.
#[test]
fn a_connection_that_is_reset_leaves_the_wait_queue_at_once() {
    let daemon = Setup::configured("[limits]\nmax_wait = \"60s\"").args(["--layout", SECONDS]).start();
    let mut gone = daemon.connect();
    // The request gets a share of the next 60 seconds.
    gone.send(&[wire::ping(1, b""), Ask::of(800).wait_ms(60_000).bytes()].concat());
    assert_eq!(gone.reply(), Reply::Pong(1, vec![]));
    // Asks for more than half of the 80 to 96 IDs of the next five seconds.
    let refused = daemon.connect().next(Ask::of(60).wait_ms(5_000));
    assert!(refused.id_count().is_none(), "{refused:?}");
    socket2::SockRef::from(gone.tcp()).set_linger(Some(Duration::ZERO)).expect("a socket");
    drop(gone);
    poll("the wait queue without it", || daemon.connect().next(Ask::of(60).wait_ms(5_000)).id_count());
}

#[test]
fn a_frame_that_comes_byte_by_byte_closes_its_connection() {
    let daemon = Setup::configured("[limits]\nstall_timeout = \"200ms\"").start();
    let mut wire = daemon.connect();
    let is_sent = wire::ping(1, &[0; 64]).iter().all(|byte| {
        thread::sleep(Duration::from_millis(100));
        wire.try_send(&[*byte]).is_ok()
    });
    let end = wire.try_reply();
    assert!(!is_sent || !matches!(end, Ok(Some(_))), "a frame that took 7 s was answered: {end:?}");
}

/// Each write ends within a frame, so the server always has half a frame. No single frame takes
/// long.
#[test]
fn the_time_of_a_frame_counts_from_its_own_first_byte() {
    let daemon = Setup::configured("[limits]\nstall_timeout = \"6s\"").start();
    let mut wire = daemon.connect();
    let request = Ask::of(5_000).tag(1).wait_ms(10_000).bytes();
    let (head, tail) = request.split_at(9);
    wire.send(head);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(7) {
        thread::sleep(Duration::from_millis(50));
        // Eight requests for 40,000 IDs, ten ticks' worth, so some of them wait.
        wire.send(&[tail, &request.repeat(7), head].concat());
        for _ in 0..8 {
            assert_eq!(wire.reply().id_count(), Some(5_000), "{:?} after the first byte", started.elapsed());
        }
    }
}

/// More bytes than a turn reads, so turns end within a frame. All bytes have arrived before the
/// daemon reads.
#[test]
fn an_arrived_request_is_not_late_during_others_turns() {
    let daemon = Setup::configured("shards = 1\n[limits]\nstall_timeout = \"1ms\"").start();
    let mut wires: Vec<Wire> = (0..40).map(|_| daemon.connect()).collect();
    wires.iter_mut().for_each(Wire::assert_open);
    let pings: Vec<u8> = (0..1_500).flat_map(|tag| wire::ping(tag, b"odd")).collect();
    daemon.stand_still();
    wires.iter_mut().for_each(|wire| wire.send(&pings));
    daemon.signal(Signal::CONT);
    for wire in &mut wires {
        for tag in 0..1_500 {
            assert_eq!(wire.reply(), Reply::Pong(tag, b"odd".to_vec()));
        }
        wire.assert_open();
    }
}

#[test]
fn silence_is_allowed_unless_idle_timeout_is_set() {
    let limits = "[limits]\nidle_timeout = \"6s\"\nmax_wait = \"30s\"\n";
    let daemon = Setup::configured(&format!("{limits}{TWO_SOURCES}")).start();
    let mut never_spoke = daemon.connect();
    let mut spoke = daemon.connect();
    spoke.assert_open();
    let mut waits = daemon.connect();
    // This connection is silent for longer than the timeout, because it waits for the server's
    // answer.
    waits.send(&Ask::of(128).source(1).wait_ms(30_000).bytes());
    never_spoke.assert_closed();
    spoke.assert_closed();
    assert_eq!(waits.reply().id_count(), Some(128));
    waits.assert_closed();
}
