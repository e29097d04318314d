//! Strict order across all connections of a daemon.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::support::{Ask, Daemon, Random, Setup};

const CONNECTIONS: u64 = 8;

/// A layout with so few IDs in a tick that some requests wait and others do not.
const SCARCE: &str = "time:38,worker:10,sequence:4;tick=10ms;epoch=2025-01-01T00:00:00Z";

/// The layout of a daemon, and the load of each of its connections.
struct Load {
    layout: &'static str,
    /// The number of times that a connection sends requests.
    rounds: usize,
    /// The number of requests that a connection sends each time.
    depth: u16,
    /// The counts from which each request takes one at random.
    sizes: &'static [u32],
}

const LOADS: [Load; 4] = [
    Load { layout: "twitter", rounds: 1_500, depth: 1, sizes: &[1, 1, 1, 2, 10] },
    Load { layout: "twitter", rounds: 250, depth: 1, sizes: &[1, 1, 300, 4_096, 10_000] },
    Load { layout: "twitter", rounds: 150, depth: 8, sizes: &[1, 50, 2_000] },
    Load { layout: SCARCE, rounds: 30, depth: 1, sizes: &[1, 1, 3, 16, 40] },
];

/// Sends requests on one connection. Checks that each reply has larger IDs than every reply that
/// any connection received before the request.
fn ask_after_others(daemon: &Daemon, seed: u64, load: &Load, highest: &AtomicU64) {
    let mut random = Random::seeded(seed);
    let mut wire = daemon.connect();
    for _ in 0..load.rounds {
        let ask = |tag| Ask::of(random.pick(load.sizes)).tag(tag).wait_ms(10_000);
        let asks: Vec<Ask> = (0..load.depth).map(ask).collect();
        let mut above = highest.load(Ordering::SeqCst);
        wire.send(&asks.iter().flat_map(|ask| ask.bytes()).collect::<Vec<u8>>());
        for ask in asks {
            let reply = wire.reply();
            assert_eq!((reply.tag(), reply.id_count()), (ask.tag, Some(ask.count.into())));
            let runs = reply.runs();
            let first = runs[0].first;
            assert!(first > above, "{ask:?} got {first} after {above} had been received");
            above = runs[runs.len() - 1].last();
            highest.fetch_max(above, Ordering::SeqCst);
        }
    }
}

#[test]
fn ids_increase_over_the_whole_daemon_in_strict_order() {
    for load in &LOADS {
        let options = ["--order", "strict", "--shards", "4", "--layout", load.layout];
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
