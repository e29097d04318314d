//! Short runs that find how many threads a closed loop needs.
//!
//! One thread that is busy all the time measures itself, and on few cores a second one takes time from the
//! target. So each number is tried.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::scenario::{Length, Scenario};

/// Long enough for thousands of requests, and short beside a run.
const LENGTH: Duration = Duration::from_millis(300);

/// Long enough for all connections to be busy.
const WARM_UP: Duration = Duration::from_millis(100);

/// A smaller gain is chance.
const MIN_GAIN: f64 = 1.05;

/// Returns the number of threads with which a closed loop is fastest: 1, 2, 4 … as long as more of them help.
pub(crate) fn fastest_threads(scenario: &Scenario, interrupt: &AtomicBool) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut fastest, mut best) = (1, 0.0);
    let mut threads = 1;
    while threads <= cores.min(scenario.connections) {
        let (length, warm_up) = (Length::For(LENGTH), WARM_UP);
        let pilot = Scenario {
            threads,
            length,
            warm_up,
            outage: None,
            client_stall: None,
            keeps_interval_log: false,
            ..scenario.clone()
        };
        // The run itself says why it cannot be run.
        let Ok(outcome) = super::run(&pilot, interrupt, &mut |_| {}) else { break };
        let ids_per_s = outcome.collected.counts.ids as f64 / outcome.elapsed.as_secs_f64().max(1e-9);
        if ids_per_s < best * MIN_GAIN {
            break;
        }
        (fastest, best) = (threads, ids_per_s);
        threads *= 2;
    }
    fastest
}
