//! Intervals of the ratio of two figures. All arithmetic is on logarithms: latencies are compared by ratio,
//! and their spread is about the same share of small and large ones.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The share of intervals that hold the true ratio, of several runs. There are some ten figures, so at 99 % one in ten
/// comparisons of equal runs would find a difference.
const CONFIDENCE_OF_RUNS: f64 = 0.999;

/// The same of seconds, whose spread has that of whole runs added.
const CONFIDENCE_OF_SECONDS: f64 = 0.99;

/// With fewer seconds, their spread is not known.
pub(crate) const MIN_SECONDS: usize = 5;

/// The share of deviations that the spread of seconds is read from: one second in five may be an outlier.
const INLIERS: f64 = 0.8;

/// That share of a normal distribution lies within this number of standard deviations.
const INLIERS_REACH: f64 = 1.281_55;

/// The deviation of whole runs whose seconds agree, as a logarithm's standard deviation: 6 %. Seconds cannot
/// show it: it comes from the placement of threads, and from the order of connections. A lower value would
/// call equal runs different; a higher one would hide differences that one run each can show.
const RUN_DEVIATION: f64 = 0.06;

/// The same where more threads wanted to run than there were cores. With seven times as many, the p90 of equal,
/// simultaneous runs differed by up to 1.65 times, in every second.
const BUSY_RUN_DEVIATION: f64 = 0.12;

/// A ratio and its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Interval {
    /// The estimate.
    pub(crate) ratio: f64,
    /// At least.
    pub(crate) low: f64,
    /// At most.
    pub(crate) high: f64,
}

impl Interval {
    fn around(log_ratio: f64, log_margin: f64) -> Result<Self, &'static str> {
        let at = |log: f64| log.exp();
        let interval =
            Self { ratio: at(log_ratio), low: at(log_ratio - log_margin), high: at(log_ratio + log_margin) };
        let finite =
            [interval.ratio, interval.low, interval.high].iter().all(|end| end.is_finite() && *end > 0.0);
        if finite { Ok(interval) } else { Err("the spread is too wide") }
    }

    /// Returns the factor by which it reaches to either side.
    pub(crate) fn margin(&self) -> f64 {
        self.high / self.ratio
    }

    /// Returns true if 1 is outside.
    pub(crate) fn leaves_out_one(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// Estimates from the same figure of several runs: Student's t for two sides of one variance.
///
/// # Errors
/// The reason why there is no interval.
pub(crate) fn of_runs(a: &[f64], b: &[f64]) -> Result<Interval, &'static str> {
    let (a, b) = (logs(a)?, logs(b)?);
    let freedom =
        (a.len() + b.len()).checked_sub(2).filter(|&freedom| freedom > 0 && !a.is_empty() && !b.is_empty());
    let freedom = freedom.ok_or("one run each")?;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let squares = |values: &[f64]| values.iter().map(|value| (value - mean(values)).powi(2)).sum::<f64>();
    let variance = (squares(&a) + squares(&b)) / freedom as f64;
    let error = (variance * (1.0 / a.len() as f64 + 1.0 / b.len() as f64)).sqrt();
    Interval::around(mean(&b) - mean(&a), reach(freedom, CONFIDENCE_OF_RUNS) * error)
}

/// Estimates from the seconds of one run each: how far a typical second of B is from one of A, as if each run were one
/// second.
///
/// Medians, so that a few seconds in which the machine did something else do not make a difference; the spread is that
/// of four seconds in five, plus that of whole runs. It is not divided by the root of their number: see [the
/// module](super). `busy` is true if more threads wanted to run than there were cores.
///
/// # Errors
/// The reason why there is no interval.
pub(crate) fn of_seconds(a: &[f64], b: &[f64], busy: bool) -> Result<Interval, &'static str> {
    if a.len().min(b.len()) < MIN_SECONDS {
        return Err("too few seconds");
    }
    let (mut a, mut b) = (logs(a)?, logs(b)?);
    let (a_median, b_median) = (quantile(&mut a, 0.5), quantile(&mut b, 0.5));
    let deviations = a.iter().map(|value| (value - a_median).abs());
    let mut deviations: Vec<f64> = deviations.chain(b.iter().map(|value| (value - b_median).abs())).collect();
    let freedom = deviations.len() - 2;
    let run_deviation = if busy { BUSY_RUN_DEVIATION } else { RUN_DEVIATION };
    let deviation = (quantile(&mut deviations, INLIERS) / INLIERS_REACH).hypot(run_deviation);
    Interval::around(
        b_median - a_median,
        reach(freedom, CONFIDENCE_OF_SECONDS) * deviation * std::f64::consts::SQRT_2,
    )
}

/// Returns the number of standard errors that an interval reaches to either side.
fn reach(freedom: usize, confidence: f64) -> f64 {
    // Fails only for a freedom of 0, which its callers have ruled out.
    StudentsT::new(0.0, 1.0, freedom as f64)
        .map_or(f64::INFINITY, |students_t| students_t.inverse_cdf(f64::midpoint(1.0, confidence)))
}

fn logs(values: &[f64]) -> Result<Vec<f64>, &'static str> {
    let log = |&value: &f64| (value > 0.0 && value.is_finite()).then(|| value.ln());
    values.iter().map(log).collect::<Option<_>>().ok_or("a value is 0")
}

/// Returns a quantile, between the two nearest values; of none, 0.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = share * values.len().saturating_sub(1) as f64;
    // Not negative, and at most the last index.
    let below = place.floor() as usize;
    let above = values.get(below + 1).or(values.last()).copied().unwrap_or_default();
    let value = values.get(below).copied().unwrap_or_default();
    value + (above - value) * (place - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_t_as_in_its_tables() {
        for (freedom, reach_at_99) in [(1, 63.657), (4, 4.604), (18, 2.878)] {
            let found = reach(freedom, 0.99);
            assert!((found - reach_at_99).abs() < 1e-3, "{freedom}: {found}");
        }
    }

    #[test]
    fn several_runs() {
        let interval = of_runs(&[100.0, 102.0, 98.0], &[200.0, 204.0, 196.0]).expect("an interval");
        assert!((interval.ratio - 2.0).abs() < 1e-9 && interval.leaves_out_one(), "{interval:?}");
        // Logarithms' deviation 0.02, twice: 8.610 × 0.02 × √(2/3).
        assert!((interval.margin().ln() - 0.1406).abs() < 2e-3, "{interval:?}");
        assert!(!of_runs(&[100.0, 150.0], &[130.0, 180.0]).expect("an interval").leaves_out_one());
        assert!(of_runs(&[100.0], &[100.0]).is_err());
        assert!(of_runs(&[100.0, 100.0], &[130.0]).is_ok());
        assert!(of_runs(&[100.0, 0.0], &[130.0]).is_err());
        assert!(of_runs(&[], &[130.0, 1.0, 1.0]).is_err());
    }

    #[test]
    fn one_bad_second_is_no_difference() {
        let quiet = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0];
        let burst = [100.0, 101.0, 99.0, 5_000.0, 102.0, 98.0];
        let interval = of_seconds(&quiet, &burst, false).expect("an interval");
        assert!(!interval.leaves_out_one() && interval.margin() < 1.4, "{interval:?}");
        let slower = quiet.map(|value| value * 1.5);
        assert!(of_seconds(&quiet, &slower, false).expect("an interval").leaves_out_one());
        assert!(!of_seconds(&quiet, &slower, true).expect("an interval").leaves_out_one());
        assert!(of_seconds(&quiet[..4], &quiet, false).is_err());
    }
}
