//! Order: over the whole daemon with `order = "strict"`, otherwise on each connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::support::wire::PARTIAL;
use crate::support::{Ask, Daemon, Random, Setup, Wire};

const CONNECTIONS: u64 = 8;

/// A daemon, and the load of each of its connections: how often it sends requests, how many at
/// once, and of what sizes.
struct Load {
    name: &'static str,
    shards: &'static str,
    layout: &'static str,
    rounds: usize,
    depth: u16,
    sizes: &'static [u32],
}

/// Every tick of this layout is scarce, so waits and immediate answers follow each other closely.
const SCARCE: &str = "time:38,worker:10,sequence:4;tick=10ms;epoch=2025-01-01T00:00:00Z";

const LOADS: [Load; 4] = [
    Load {
        name: "low demand",
        shards: "4",
        layout: "twitter",
        rounds: 1_500,
        depth: 1,
        sizes: &[1, 1, 1, 2, 10],
    },
    Load {
        name: "the full rate",
        shards: "4",
        layout: "twitter",
        rounds: 250,
        depth: 1,
        sizes: &[1, 1, 300, 4_096, 10_000],
    },
    Load {
        name: "pipelined requests",
        shards: "3",
        layout: "twitter",
        rounds: 150,
        depth: 8,
        sizes: &[1, 50, 2_000],
    },
    Load {
        name: "scarce ticks",
        shards: "2",
        layout: SCARCE,
        rounds: 30,
        depth: 1,
        sizes: &[1, 1, 3, 16, 40],
    },
];

/// Sends requests on one connection. Each reply lies above all IDs that any connection had received
/// before its request.
fn ask_after_others(daemon: &Daemon, seed: u64, load: &Load, highest: &AtomicU64) {
    let mut random = Random::seeded(seed);
    let mut wire = daemon.connect();
    for _ in 0..load.rounds {
        let ask = |tag| Ask::of(random.pick(load.sizes)).tag(tag).wait_ms(10_000);
        let asks: Vec<Ask> = (0..load.depth).map(ask).collect();
        let mut above = highest.load(Ordering::SeqCst);
        wire.send(&asks.iter().flat_map(|ask| ask.bytes()).collect::<Vec<u8>>());
        for ask in asks {
            let (first, last) = reply_to(&mut wire, ask);
            assert!(first > above, "{}: {ask:?} got {first} after {above} had been received", load.name);
            above = last;
            highest.fetch_max(last, Ordering::SeqCst);
        }
    }
}

#[test]
fn strict_order_holds_over_the_daemon() {
    for load in &LOADS {
        let strict = ["--order", "strict", "--shards", load.shards, "--layout", load.layout];
        let daemon = Setup::new().args(strict).start();
        let highest = AtomicU64::new(0);
        thread::scope(|scope| {
            for seed in 0..CONNECTIONS {
                let daemon = &daemon;
                let highest = &highest;
                scope.spawn(move || ask_after_others(daemon, seed, load, highest));
            }
        });
        daemon.stop();
    }
}

/// Returns the first and the last ID of the next reply, which must be for `ask`.
fn reply_to(wire: &mut Wire, ask: Ask) -> (u64, u64) {
    let reply = wire.reply();
    assert_eq!(reply.tag(), ask.tag);
    let count = reply.id_count();
    let is_partial = ask.flags & PARTIAL != 0 && count.is_some_and(|count| count < u64::from(ask.count));
    assert!(count == Some(u64::from(ask.count)) || is_partial, "{ask:?} got {reply:?}");
    let runs = reply.runs();
    (runs[0].first, runs[runs.len() - 1].last())
}

/// Requests of all sizes and waits, with many in flight on each connection, and far more than the
/// full rate. Most wait, some are refused, and on each connection IDs increase.
#[test]
fn ids_of_each_connection_increase_across_waits_too() {
    const DEPTH: u16 = 16;
    let daemon = Setup::new().args(["--order", "relaxed", "--shards", "2"]).start();
    thread::scope(|scope| {
        for seed in 0..CONNECTIONS {
            let daemon = &daemon;
            scope.spawn(move || {
                let mut random = Random::seeded(seed);
                let mut wire = daemon.connect();
                let mut last = 0;
                let mut granted = 0;
                for _ in 0..60 {
                    let asks: Vec<Ask> = (0..DEPTH)
                        .map(|tag| {
                            let wait_ms = random.pick(&[0, 1, 5, 10_000, 10_000]);
                            let flags = random.pick(&[0, 0, PARTIAL]);
                            let size = random.pick(&[1, 1, 17, 255, 257, 3_000, 20_000]);
                            Ask::of(size).tag(tag).wait_ms(wait_ms).flags(flags)
                        })
                        .collect();
                    wire.send(&asks.iter().flat_map(|ask| ask.bytes()).collect::<Vec<u8>>());
                    for ask in asks {
                        let reply = wire.reply();
                        assert_eq!(reply.tag(), ask.tag);
                        if reply.id_count().is_none() {
                            reply.assert_error(ask.tag, crate::support::wire::EXHAUSTED);
                            continue;
                        }
                        granted += 1;
                        let runs = reply.runs();
                        assert!(runs[0].first > last, "{ask:?} got {} after {last}", runs[0].first);
                        last = runs[runs.len() - 1].last();
                    }
                }
                assert!(granted > 0);
            });
        }
    });
    daemon.stop();
}
