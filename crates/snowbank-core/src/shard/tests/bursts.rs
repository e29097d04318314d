//! Tests of bursts: a busy daemon answers a burst at once if the burst is no larger than seven
//! eighths of the burst window.

use super::*;

/// Layouts whose runs have different lengths: whole ticks, rows of four IDs, uneven rows, rows in
/// two groups, and ticks with few IDs.
const LAYOUTS: [(&str, &str); 5] = [
    (TWITTER, "0-3"),
    ("time:41,sequence:12,worker:10", "0-3"),
    ("time:41,sequence:12,worker:10", "0,5,9,1000"),
    ("time:41,rack:2,sequence:10,machine:8", "0-3,256-259"),
    (SCARCE, "0-3"),
];
const SHARDS: usize = 3;
const BETWEEN_US: u64 = 50;

/// A daemon under a steady load, on a clock that is driven by hand.
struct Busy {
    source: Arc<Source>,
    shards: Vec<Shard>,
    now_us: u64,
    /// The load, in percent of the full rate.
    percent: u64,
    rng: fastrand::Rng,
    owed: u64,
}

impl Busy {
    fn ids_per_tick(&self) -> u64 {
        self.source.numbering().ids_per_tick()
    }

    /// Serves the load for a while. Each wake-up of a random shard answers one request.
    fn serve(&mut self, for_us: u64) {
        let until_us = self.now_us + for_us;
        while self.now_us < until_us {
            self.now_us += BETWEEN_US;
            self.owed += self.ids_per_tick() * self.percent * BETWEEN_US;
            let count = self.owed / 100_000;
            if count > 0 {
                self.owed -= count * 100_000;
                let shard = self.rng.usize(..SHARDS);
                take(&mut self.shards[shard], after_us(self.now_us), count).expect("less than the full rate");
            }
        }
    }

    /// Returns whether a shard answers at once a request for this fraction of the burst window's
    /// IDs.
    fn burst(&mut self, window_part: f64) -> bool {
        let count = (self.ids_per_tick() * 10) as f64 * window_part;
        let shard = self.rng.usize(..SHARDS);
        take(&mut self.shards[shard], after_us(self.now_us), count as u64).is_ok()
    }
}

/// Makes 20 bursts, each after a rest, and counts the bursts that are answered at once.
fn answered(layout: &str, workers: &str, order: Order, percent: u64, window_part: f64) -> usize {
    let source = source(layout, workers);
    let shards = shards(&source, SHARDS, order);
    let rng = fastrand::Rng::with_seed(percent);
    let mut busy = Busy { source, shards, now_us: 0, percent, rng, owed: 0 };
    let bursts = (0..20).filter(|_| {
        // The load does not use all IDs of a tick. The unused ones fill the window again.
        let rest_us = 12_000 * 100 / (100 - percent) + busy.rng.u64(..3_000);
        busy.serve(rest_us);
        busy.burst(window_part)
    });
    bursts.count()
}

#[test]
fn a_busy_daemon_answers_seven_eighths_of_the_window_at_once() {
    for (layout, workers) in LAYOUTS {
        for percent in [2, 15, 75] {
            for order in [Order::Relaxed, Order::Strict] {
                let answered = answered(layout, workers, order, percent, 7.0 / 8.0);
                assert_eq!(answered, 20, "{layout} {workers}, {order:?}, a load of {percent} %");
            }
        }
    }
}
