//! Confidence intervals of the ratio of two figures. The arithmetic is on logarithms, because
//! latencies differ by factors: small and large latencies have about the same relative spread.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::Statistics;

/// The share of intervals that contain the true ratio. Six figures have an interval, so at 99 % up
/// to one in seventeen comparisons of equal runs would find a difference.
const CONFIDENCE: f64 = 0.999;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    /// The best estimate.
    pub(crate) ratio: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// Returns true if 1 is outside the interval.
    pub(crate) fn leaves_out_one(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// Estimates the ratio from one figure of several runs, by Student's t, which assumes that both
/// sides have the same variance. Returns `None` if each side has only one run, or if a value is 0.
pub(crate) fn estimate(a: &[f64], b: &[f64]) -> Option<Interval> {
    let a = logs(a)?;
    let b = logs(b)?;
    let freedom = (a.len() + b.len()).checked_sub(2).filter(|&freedom| freedom > 0)? as f64;
    let squares: f64 = [&a, &b].iter().map(|side| side.population_variance() * side.len() as f64).sum();
    let variance = squares / freedom;
    let error = (variance * (1.0 / a.len() as f64 + 1.0 / b.len() as f64)).sqrt();
    let students_t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let margin = students_t.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * error;
    let ratio = b.mean() - a.mean();
    Some(Interval { low: (ratio - margin).exp(), ratio: ratio.exp(), high: (ratio + margin).exp() })
}

fn logs(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|value| *value <= 0.0 || !value.is_finite()) {
        return None;
    }
    Some(values.iter().map(|value| value.ln()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_runs_show_the_spread() {
        let interval = estimate(&[100.0, 102.0, 98.0], &[200.0, 204.0, 196.0]).expect("an interval");
        assert!((interval.ratio - 2.0).abs() < 1e-9 && interval.leaves_out_one(), "{interval:?}");
        // The logarithms of both sides have a standard deviation of 0.02, and t is 8.610: the
        // margin is 8.610 × 0.02 × √(2/3).
        assert!(((interval.high / interval.ratio).ln() - 0.1406).abs() < 2e-3, "{interval:?}");
        assert!(!estimate(&[100.0, 150.0], &[130.0, 180.0]).expect("an interval").leaves_out_one());
        assert!(estimate(&[100.0, 100.0], &[130.0]).is_some());
        for (a, b) in [(&[100.0][..], &[100.0][..]), (&[100.0, 0.0], &[130.0]), (&[], &[130.0, 1.0, 1.0])] {
            assert_eq!(estimate(a, b), None);
        }
    }
}
