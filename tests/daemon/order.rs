//! Order: over the whole daemon with `order = "strict"`, otherwise on each connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::support::wire::{EXHAUSTED, PARTIAL};
use crate::support::{Ask, Daemon, Random, Setup};

const CONNECTIONS: u64 = 8;

/// A daemon, and the load of each of its connections.
struct Load {
    name: &'static str,
    order: &'static str,
    shards: &'static str,
    layout: &'static str,
    /// The number of times that it sends requests, and of requests at once.
    rounds: usize,
    depth: u16,
    sizes: &'static [u32],
    waits_ms: &'static [u16],
}

/// Every tick of this layout is scarce, so waits and immediate answers follow each other closely.
const SCARCE: &str = "time:38,worker:10,sequence:4;tick=10ms;epoch=2025-01-01T00:00:00Z";

const LOW_DEMAND: Load = Load {
    name: "low demand",
    order: "strict",
    shards: "4",
    layout: "twitter",
    rounds: 1_500,
    depth: 1,
    sizes: &[1, 1, 1, 2, 10],
    waits_ms: &[10_000],
};

const LOADS: [Load; 5] = [
    LOW_DEMAND,
    Load { name: "the full rate", rounds: 250, sizes: &[1, 1, 300, 4_096, 10_000], ..LOW_DEMAND },
    Load {
        name: "pipelined requests",
        shards: "3",
        rounds: 150,
        depth: 8,
        sizes: &[1, 50, 2_000],
        ..LOW_DEMAND
    },
    Load {
        name: "scarce ticks",
        shards: "2",
        layout: SCARCE,
        rounds: 30,
        sizes: &[1, 1, 3, 16, 40],
        ..LOW_DEMAND
    },
    // Far more than the full rate, with many in flight. Most wait, some are refused.
    Load {
        name: "all sizes and waits, on each connection",
        order: "relaxed",
        shards: "2",
        rounds: 60,
        depth: 16,
        sizes: &[1, 1, 17, 255, 257, 3_000, 20_000],
        waits_ms: &[0, 1, 5, 10_000, 10_000],
        ..LOW_DEMAND
    },
];

/// Sends requests on one connection. Each reply lies above all IDs that had been received before
/// its request: with strict order on any connection, otherwise on this one.
fn ask_after_others(daemon: &Daemon, seed: u64, load: &Load, highest: &AtomicU64) {
    let is_strict = load.order == "strict";
    let mut random = Random::seeded(seed);
    let mut wire = daemon.connect();
    let mut above = 0;
    for _ in 0..load.rounds {
        let ask = |tag| {
            let flags = if is_strict { 0 } else { random.pick(&[0, 0, PARTIAL]) };
            let ask = Ask::of(random.pick(load.sizes)).tag(tag).flags(flags);
            ask.wait_ms(random.pick(load.waits_ms))
        };
        let asks: Vec<Ask> = (0..load.depth).map(ask).collect();
        if is_strict {
            above = highest.load(Ordering::SeqCst);
        }
        wire.send(&asks.iter().flat_map(|ask| ask.bytes()).collect::<Vec<u8>>());
        for ask in asks {
            let reply = wire.reply();
            assert_eq!(reply.tag(), ask.tag);
            if !is_strict && reply.id_count().is_none() {
                reply.assert_error(ask.tag, EXHAUSTED);
                continue;
            }
            let is_whole = reply.id_count() == Some(ask.count.into());
            assert!(is_whole || ask.flags == PARTIAL, "{}: {ask:?} got {reply:?}", load.name);
            let runs = reply.runs();
            let first = runs[0].first;
            assert!(first > above, "{}: {ask:?} got {first} after {above} had been received", load.name);
            above = runs[runs.len() - 1].last();
            highest.fetch_max(above, Ordering::SeqCst);
        }
    }
    assert!(above > 0, "{}: all is refused", load.name);
}

#[test]
fn ids_increase_over_the_daemon_or_on_each_connection() {
    for load in &LOADS {
        let options = ["--order", load.order, "--shards", load.shards, "--layout", load.layout];
        let daemon = Setup::new().args(options).start();
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
