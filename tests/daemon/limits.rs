//! Malformed frames, and the limits for clients that send slowly or send nothing.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::http::{sample, scrape};
use crate::support::wire::{self, BAD_COUNT, MALFORMED, PARTIAL, UNKNOWN_SOURCE, UNSUPPORTED, frame};
use crate::support::{Ask, Reply, Setup, TWO_SOURCES, Wire, poll};
use rustix::process::Signal;

/// A layout with only 16 IDs in each second, so that requests soon have to wait.
const SECONDS: &str = "time:31,worker:10,sequence:4;tick=1s;epoch=2025-01-01T00:00:00Z";

/// Each vector is a malformed frame, the code and the tag of the daemon's answer, and whether the
/// daemon closes the connection.
#[test]
fn malformed_frames_are_answered_as_in_the_test_vectors() {
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
        let expected = match code {
            "malformed" => MALFORMED,
            "unsupported" => UNSUPPORTED,
            "bad_count" => BAD_COUNT,
            _ => UNKNOWN_SOURCE,
        };
        wire.reply().assert_error(tag.parse().expect("a tag"), expected);
        match connection {
            "closed" => wire.assert_closed(),
            _ => wire.assert_open(),
        }
    }
}

/// The client gets the error even if the client continues to send after the daemon has closed the
/// connection.
#[test]
fn a_length_out_of_range_is_malformed_and_closes_the_connection() {
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
    // A frame of the longest allowed length gets another error, and the connection stays open.
    let mut wire = daemon.connect();
    wire.call(&frame(0x7E, 0, 3, &[0; 1_020])).assert_error(3, UNSUPPORTED);
    wire.assert_open();
}

#[test]
fn a_count_of_zero_or_above_the_limit_is_refused_with_the_limit() {
    let daemon = Setup::configured("[limits]\nmax_count = 500").start();
    let mut wire = daemon.connect();
    for count in [0, 501, 1_000_000, u32::MAX] {
        let message = wire.call(&Ask::of(count).tag(8).bytes()).assert_error(8, BAD_COUNT);
        assert!(message.contains("500"), "{message}");
        // With PARTIAL the daemon may send fewer IDs, but it still refuses a wrong count.
        wire.call(&Ask::of(count).tag(9).flags(PARTIAL).bytes()).assert_error(9, BAD_COUNT);
    }
    assert_eq!(wire.next(Ask::of(500)).id_count(), Some(500));
}

/// A client that has shut down its writing side may still read, but a client that resets its
/// connection has left.
#[test]
fn a_connection_that_is_reset_leaves_the_wait_queue_at_once() {
    let setup = Setup::configured("[limits]\nmax_wait = \"60s\"").args(["--layout", SECONDS]);
    let daemon = setup.admin().start();
    let mut gone = daemon.connect();
    // The daemon admits this request, and promises it a share of the next 60 seconds.
    gone.send(&[wire::ping(1, b""), Ask::of(800).wait_ms(60_000).bytes()].concat());
    assert_eq!(gone.reply(), Reply::Pong(1, vec![]));
    // Requests more than half of the 80 to 96 IDs of the next five seconds.
    let refused = daemon.connect().next(Ask::of(60).wait_ms(5_000));
    assert!(refused.id_count().is_none(), "{refused:?}");
    socket2::SockRef::from(gone.tcp()).set_linger(Some(Duration::ZERO)).expect("a socket");
    drop(gone);
    let mut requests = 1.0;
    poll("a grant after the reset", || {
        requests += 1.0;
        daemon.connect().next(Ask::of(60).wait_ms(5_000)).id_count()
    });
    let counted = sample(&scrape(&daemon), "snowbank_requests_total{source=\"default\"}");
    assert_eq!(counted, requests, "the request of the reset connection was answered");
}

/// The clients are busy, so their turns read the most that a turn may read.
#[test]
fn at_most_9_kib_are_read_behind_a_request_that_waits() {
    const CLIENTS: usize = 4;
    let setup = Setup::configured("shards = 1\n[limits]\nmax_wait = \"60s\"").args(["--layout", SECONDS]);
    let daemon = setup.admin().start();
    // A first turn reads 1 KiB of these. Then the client counts as busy.
    let before_it = wire::ping(1, &[7; 4]).repeat(100);
    let waits = Ask::of(200).wait_ms(60_000).bytes();
    let sent = [&*before_it, &waits, &wire::ping(1, &[7; 4]).repeat(1_500)].concat();
    let mut wires: Vec<Wire> = (0..CLIENTS).map(|_| daemon.connect()).collect();
    wires.iter_mut().for_each(Wire::assert_open);
    let before = sample(&scrape(&daemon), "snowbank_received_bytes_total");
    // All bytes are there before the daemon reads the first.
    daemon.stand_still();
    wires.iter_mut().for_each(|wire| wire.send(&sent));
    daemon.signal(Signal::CONT);
    let samples = poll("requests that wait", || {
        let samples = scrape(&daemon);
        (sample(&samples, "snowbank_waiting_requests{source=\"default\"}") == CLIENTS as f64)
            .then_some(samples)
    });
    let read = sample(&samples, "snowbank_received_bytes_total") - before;
    let behind = read / CLIENTS as f64 - (before_it.len() + waits.len()) as f64;
    assert!(behind <= 9.0 * 1_024.0, "{behind} bytes behind a request that waits");
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
    assert!(!is_sent || !matches!(end, Ok(Some(_))), "a frame that took seconds was answered: {end:?}");
}

/// Each write ends within a frame, so the daemon always has an unfinished frame. But no single
/// frame is unfinished for longer than the timeout.
#[test]
fn stall_timeout_counts_from_the_first_byte_of_each_frame() {
    let daemon = Setup::configured("[limits]\nstall_timeout = \"6s\"").start();
    let mut wire = daemon.connect();
    let request = Ask::of(5_000).tag(1).wait_ms(10_000).bytes();
    let (head, tail) = request.split_at(9);
    wire.send(head);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(7) {
        thread::sleep(Duration::from_millis(50));
        // Eight requests ask for the IDs of about ten ticks, so some of them may wait.
        wire.send(&[tail, &request.repeat(7), head].concat());
        for _ in 0..8 {
            assert_eq!(wire.reply().id_count(), Some(5_000), "{:?} after the first byte", started.elapsed());
        }
    }
}

/// Each connection sends more bytes than a turn reads, so a turn ends within a frame. All bytes
/// have arrived before the daemon reads them, so the clients are never late.
#[test]
fn stall_timeout_ignores_the_turns_of_other_connections() {
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
fn silent_connections_are_closed_only_after_idle_timeout() {
    let limits = "[limits]\nidle_timeout = \"6s\"\nmax_wait = \"30s\"\n";
    let daemon = Setup::configured(&format!("{limits}{TWO_SOURCES}")).start();
    let mut never_spoke = daemon.connect();
    let mut spoke = daemon.connect();
    spoke.assert_open();
    let mut waits = daemon.connect();
    // The client of this connection waits for a reply, so the connection may be silent for longer
    // than the timeout.
    waits.send(&Ask::of(128).source("slow").wait_ms(30_000).bytes());
    never_spoke.assert_closed();
    spoke.assert_closed();
    assert_eq!(waits.reply().id_count(), Some(128));
    waits.assert_closed();
}
