//! The latency of requests for IDs, as a histogram.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The upper bounds of the latency histogram, in microseconds. They reach from the time of a busy
/// turn to the default of `max_wait`. With their steps of 1, 2 and 5, a percentile between two
/// bounds is wrong by a factor of 2.5 at most.
///
/// 2 ms is a bound, because an alert counts the requests that take longer. Another bound is just
/// above the default wait. Without this bound, requests that waited for the whole default wait
/// would seem to take up to twice as long.
pub(crate) const BOUNDS_US: [u64; 20] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 1_100_000, 2_000_000, 5_000_000, 10_000_000,
];

/// The histogram of the latencies of requests for IDs. A latency counts from the read of the
/// request, or from when its client's rate allows it, to the write of its reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// The upper bounds, increasing.
    pub(crate) bounds_us: Vec<u64>,
    /// For each bound, the number of requests that took at most this long, and longer than the
    /// bound before it. The last element counts the requests above all bounds.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum_us: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Latency { bounds_us: BOUNDS_US.to_vec(), counts: vec![0; BOUNDS_US.len() + 1], sum_us: 0 }
    }
}

impl Latency {
    /// Reads a histogram as it is in `/status`.
    pub(crate) fn read(json: &Value) -> Latency {
        Latency::deserialize(json).unwrap_or_default()
    }

    pub(crate) fn value(&self) -> Value {
        json!(self)
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the histogram of the requests since an earlier histogram.
    pub(crate) fn since(&self, earlier: &Latency) -> Latency {
        let counts = self.counts.iter().zip(&earlier.counts).map(|(now, then)| now.saturating_sub(*then));
        let sum_us = self.sum_us.saturating_sub(earlier.sum_us);
        Latency { bounds_us: self.bounds_us.clone(), counts: counts.collect(), sum_us }
    }

    /// Returns the time within which `share` of the requests were answered, in microseconds, or
    /// `None` if there were no requests.
    ///
    /// Interpolates linearly between the bounds, as Prometheus does. For requests above all bounds,
    /// returns the highest bound.
    pub(crate) fn quantile_us(&self, share: f64) -> Option<f64> {
        let wanted = self.count() as f64 * share;
        let mut below = 0.0;
        let mut low_us = 0.0;
        for (&count, &high_us) in self.counts.iter().zip(&self.bounds_us) {
            let count = count as f64;
            let high_us = high_us as f64;
            if count > 0.0 && below + count >= wanted {
                return Some(low_us + (high_us - low_us) * (wanted - below).max(0.0) / count);
            }
            below += count;
            low_us = high_us;
        }
        (self.count() > 0).then_some(low_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated_between_bounds() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile_us(0.5), None);
        latency.counts[1] = 10;
        assert_eq!(latency.quantile_us(0.5), Some(15.0));
        assert_eq!(latency.quantile_us(1.0), Some(20.0));
        latency.counts[3] = 10;
        assert_eq!(latency.quantile_us(0.5), Some(20.0));
        assert_eq!(latency.quantile_us(0.75), Some(75.0));
        *latency.counts.last_mut().expect("a last bucket") = 1_000;
        assert_eq!(latency.quantile_us(0.99), Some(10_000_000.0), "the highest bound, as Prometheus returns");
    }

    #[test]
    fn a_full_default_wait_counts_as_at_most_a_tenth_longer() {
        let mut latency = Latency::default();
        latency.counts[BOUNDS_US.partition_point(|&bound_us| bound_us < 1_010_000)] = 1_000;
        assert!(latency.quantile_us(0.999).is_some_and(|us| us <= 1_100_000.0));
    }
}
