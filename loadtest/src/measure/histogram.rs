//! Histograms of times, with a fixed precision.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use hdrhistogram::Histogram;

const MAX_VALUE_NS: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// A histogram of times in nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct TimeHistogram(Histogram<u64>);

impl TimeHistogram {
    /// Returns the time at a quantile from 0 to 1.
    pub(crate) fn at(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(quantile))
    }

    /// Returns the time at a quantile; `None` if the histogram is empty.
    pub(crate) fn known_at(&self, quantile: f64) -> Option<Duration> {
        (!self.0.is_empty()).then(|| self.at(quantile))
    }

    /// Adds the times of another histogram.
    pub(crate) fn merge(&mut self, other: &Self) {
        // Fails only for a histogram of a larger range, and all have the same range.
        let added = self.0.add(&other.0);
        debug_assert!(added.is_ok());
    }
}

impl Default for TimeHistogram {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, MAX_VALUE_NS, SIGNIFICANT_DIGITS);
        Self(histogram.unwrap_or_else(|_| unreachable!("the bounds are constants")))
    }
}

impl Deref for TimeHistogram {
    type Target = Histogram<u64>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for TimeHistogram {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
