//! The figures that are compared.

use serde::{Serialize, Serializer};

use crate::measure::SecondFigures;
use crate::report::json::Run;

/// A second must have at least this many response times above a quantile. With fewer, the second does not
/// show that quantile.
const MIN_ABOVE: f64 = 5.0;

/// The reason why a figure of one run on each side is not judged: more data would not help.
pub(crate) const WHOLE_RUNS: &str = "known only for whole runs";

/// A figure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// IDs per second.
    Rate,
    /// Requests refused or without an answer.
    Errors,
    /// A quantile of response time in microseconds.
    Response(&'static str),
    /// The target's processor time for each request, in microseconds.
    Cpu,
}

/// The names of the quantiles that every report shows.
const NAMES: [&str; 6] = ["p50", "p90", "p99", "p99.9", "p99.99", "max"];

/// Returns all figures in the order of the table.
pub(crate) fn all() -> Vec<Figure> {
    let times = NAMES.map(Figure::Response);
    [Figure::Rate, Figure::Errors].into_iter().chain(times).chain([Figure::Cpu]).collect()
}

impl Figure {
    /// Returns its name in every output.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Rate => "IDs/s".to_owned(),
            Self::Errors => "errors".to_owned(),
            Self::Response(quantile) => format!("response {quantile}"),
            Self::Cpu => "CPU per request".to_owned(),
        }
    }

    /// Returns true if it is a time in microseconds.
    pub(crate) fn is_time(self) -> bool {
        matches!(self, Self::Response(_) | Self::Cpu)
    }

    /// Returns true if a larger value is worse.
    pub(crate) fn more_is_worse(self) -> bool {
        self != Self::Rate
    }

    /// Returns a run's value.
    pub(crate) fn value(self, run: &Run) -> Option<f64> {
        match self {
            Self::Rate => Some(run.ids_per_s),
            Self::Errors => Some(run.errors() as f64),
            Self::Response(quantile) => {
                run.response_time.at(quantile).filter(|_| run.response_time.count > 0)
            }
            Self::Cpu => run.target_us_per_request(),
        }
    }

    /// Returns several runs' value: counts by their mean, the rest by the geometric mean, because ratios are
    /// compared.
    pub(crate) fn mean(self, values: &[f64]) -> f64 {
        let number = values.len().max(1) as f64;
        if self == Self::Errors || values.iter().any(|&value| value <= 0.0) {
            return values.iter().sum::<f64>() / number;
        }
        (values.iter().map(|value| value.ln()).sum::<f64>() / number).exp()
    }

    /// Returns the figure of each second that was neither cut short nor part of an announced outage.
    ///
    /// # Errors
    /// The reason why the seconds do not show it.
    pub(crate) fn seconds(self, run: &Run) -> Result<Vec<f64>, &'static str> {
        let of: (f64, fn(&SecondFigures) -> f64) = match self {
            Self::Rate => (0.0, |second| second.ids as f64),
            Self::Response("p50") => (0.5, |second| second.p50_us),
            Self::Response("p90") => (0.9, |second| second.p90_us),
            Self::Response("p99") => (0.99, |second| second.p99_us),
            Self::Response("p99.9") => (0.999, |second| second.p999_us),
            Self::Response(_) => return Err("too few requests in a second"),
            _ => return Err(WHOLE_RUNS),
        };
        let (quantile, value) = of;
        let mut seconds = run.whole_seconds();
        seconds.retain(|second| !run.is_outage(second.second));
        let knows = |second: &&&SecondFigures| second.answered as f64 * (1.0 - quantile) >= MIN_ABOVE;
        // One second in five may have few answers. If more seconds had few, the quantile would be the
        // maximum in some of them.
        if seconds.iter().filter(knows).count() * 5 < seconds.len() * 4 {
            return Err("too few requests in a second");
        }
        Ok(seconds.into_iter().map(value).filter(|&value| value > 0.0).collect())
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::quantile_name;
    use crate::report::QUANTILES;

    #[test]
    fn every_quantile_of_a_report_is_compared() {
        assert_eq!(QUANTILES.map(quantile_name), NAMES);
    }
}
