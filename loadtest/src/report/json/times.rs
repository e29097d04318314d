//! A distribution of times as figures.

use serde::{Deserialize, Serialize};

use crate::judge::quantile_name;
use crate::measure::micros;
use crate::report::QUANTILES;

/// Steps in each half of the distance to 100 % on a percentile curve: smooth on a page, some hundred points
/// at most.
const CURVE_TICKS_PER_HALF: u32 = 5;

/// A quantile with fewer values than this beyond it is decided by chance.
const MIN_BEYOND_QUANTILE: f64 = 10.0;

/// A distribution in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Times {
    /// The number of values.
    pub(crate) count: u64,
    /// Their mean.
    pub(crate) mean_us: f64,
    /// Quantile by name: `p50` to `p99.99`, and `max`.
    pub(crate) quantiles_us: std::collections::BTreeMap<String, f64>,
    /// The distribution, ever finer towards 100 %: pairs of a quantile from 0 to 1 and its value in
    /// microseconds.
    pub(crate) curve: Vec<(f64, f64)>,
}

impl Times {
    pub(super) fn of(histogram: &hdrhistogram::Histogram<u64>) -> Self {
        let at = |quantile| (quantile_name(quantile), micros(histogram.value_at_quantile(quantile)));
        Self {
            count: histogram.len(),
            mean_us: histogram.mean() / 1e3,
            quantiles_us: QUANTILES.into_iter().map(at).collect(),
            curve: histogram
                .iter_quantiles(CURVE_TICKS_PER_HALF)
                .map(|step| (step.quantile_iterated_to(), micros(step.value_iterated_to())))
                .collect(),
        }
    }

    /// Returns the names of quantiles that fewer than [`MIN_BEYOND_QUANTILE`] values lie beyond.
    pub(crate) fn decided_by_chance(&self) -> Vec<String> {
        let few = |quantile: &f64| {
            *quantile < 1.0 && (self.count as f64 * (1.0 - quantile)).round() < MIN_BEYOND_QUANTILE
        };
        QUANTILES.into_iter().filter(few).map(quantile_name).collect()
    }

    /// Returns the value at a quantile by its name, in microseconds.
    pub(crate) fn at(&self, name: &str) -> Option<f64> {
        self.quantiles_us.get(name).copied()
    }
}
