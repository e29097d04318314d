//! Short runs that find how many threads a closed loop needs.
//!
//! One thread that is busy all the time measures itself, and on few cores a second one takes time from the
//! target. So each number is tried.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::scenario::{Length, Scenario};

/// Long enough for thousands of requests, and short in comparison with a run.
const LENGTH: Duration = Duration::from_millis(300);

/// Long enough for all connections to be busy.
const WARM_UP: Duration = Duration::from_millis(100);

/// A smaller gain is chance.
const MIN_GAIN: f64 = 1.05;

/// Returns the number of threads with which a closed loop is fastest: 1, 2, 4 … as long as more of them help.
pub(crate) fn fastest_threads(scenario: &Scenario, interrupt: &AtomicBool) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Each target has at least one connection of each thread.
    let most = cores.min(scenario.connections / scenario.addresses.len().max(1)).max(1);
    // The run itself says why it cannot be run.
    fastest(most, |threads| ids_per_s(scenario, threads, interrupt))
}

fn fastest(most: usize, mut rate_of: impl FnMut(usize) -> Option<f64>) -> usize {
    let (mut fastest, mut best) = (1, 0.0);
    let numbers = std::iter::successors(Some(1), |threads| Some(threads * 2));
    for threads in numbers.take_while(|&threads| threads <= most) {
        match rate_of(threads) {
            Some(rate) if rate >= best * MIN_GAIN => (fastest, best) = (threads, rate),
            _ => break,
        }
    }
    fastest
}

fn ids_per_s(scenario: &Scenario, threads: usize, interrupt: &AtomicBool) -> Option<f64> {
    let pilot =
        Scenario { threads, length: Length::For(LENGTH), warm_up: WARM_UP, ..scenario.without_events() };
    let outcome = super::run(&pilot, interrupt, &mut |_| {}).ok()?;
    Some(outcome.collected.counts.ids as f64 / outcome.elapsed.as_secs_f64().max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_threads_are_used_as_the_rate_needs() {
        let of = |rates: &[f64]| fastest(rates.len(), |threads| rates.get(threads - 1).copied());
        assert_eq!(of(&[278e3, 198e3]), 1, "a target of one thread");
        assert_eq!(of(&[200e3, 390e3]), 2);
        assert_eq!(of(&[200e3, 205e3]), 1, "so small a gain is chance");
        assert_eq!(of(&[200e3, 390e3, 400e3, 380e3]), 2, "four are no faster");
        assert_eq!(fastest(4, |_| None), 1, "no run, no answer");
    }
}
