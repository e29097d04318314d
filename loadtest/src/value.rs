//! Parses rates, durations and shares (percentages) as a person writes them. An error says which
//! form is allowed.

use std::str::FromStr;
use std::time::Duration;

/// The highest rate that an option accepts, in IDs per second.
pub(crate) const MAX_RATE_PER_S: f64 = 1e12;

/// The longest time that an option accepts: a week.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(7 * 86_400);

/// Parses a decimal number with its unit. Refuses `inf` and `1e9`, which `f64` parses.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (number, unit) = text.split_at(text.len() - digits.len());
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<f64>().ok().map(|number| number * factor)
}

/// IDs per second: above 0, at most [`MAX_RATE_PER_S`]. Written `10000/s`, `10000`, `250k/s`,
/// `4M/s`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Rate(f64);

impl Rate {
    /// The default rate of a run.
    pub(crate) const STANDARD: Self = Self(10_000.0);

    pub(crate) fn new(per_s: f64) -> Option<Self> {
        (per_s > 0.0 && per_s <= MAX_RATE_PER_S).then_some(Self(per_s))
    }

    pub(crate) fn per_s(self) -> f64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let per_s = scaled(text.strip_suffix("/s").unwrap_or(text), &[("", 1.0), ("k", 1e3), ("M", 1e6)]);
        per_s.and_then(Self::new).ok_or("a rate is IDs per second above 0, as in 10000/s, 250k/s or 4M/s")
    }
}

/// A time above 0, [`MAX_TIME`] at most. Written `500us`, `2ms`, `1.5s`, `10m`, `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) Duration);

impl FromStr for Time {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let time = text.parse::<jiff::SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
        let time = time.filter(|time| !time.is_zero() && *time <= MAX_TIME);
        time.map(Self).ok_or("a time is above 0 and at most 168h, as in 500us, 2ms, 10s, 5m or 1h")
    }
}

/// A share above 0 and below 1. Written `5%`, `12.5%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Share(pub(crate) f64);

impl FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let share = scaled(text, &[("%", 0.01)]).filter(|&share| share > 0.0 && share < 1.0).map(Self);
        share.ok_or("a share is above 0% and below 100%, as in 5% or 50%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if no text between the commas parses.
    fn all_wrong<T: FromStr>(texts: &str) -> bool {
        texts.split(',').all(|text| text.parse::<T>().is_err())
    }

    #[test]
    fn values_parse_and_other_texts_are_refused() {
        let rates = ["10000/s", "2.5k", "4M/s"].map(|text| text.parse::<Rate>().map(Rate::per_s));
        assert_eq!(rates, [10_000.0, 2_500.0, 4_000_000.0].map(Ok));
        assert!(all_wrong::<Rate>("0,0/s,-1,,/s,inf,1e5,NaN,10/m,10 /s,99999999999999,1.2.3"));
        let times = ["500us", "2ms", "1.5s", "1h"].map(|text| text.parse().map(|Time(time)| time));
        assert_eq!(times, [500, 2_000, 1_500_000, 3_600_000_000].map(Duration::from_micros).map(Ok));
        assert!(all_wrong::<Time>("0s,0,-5s,10,,s,1y,infs,169h,0.1ns"));
        let shares = ["5%", "12.5%"].map(|text| text.parse().map(|Share(share)| share));
        assert_eq!(shares, [0.05, 0.125].map(Ok));
        assert!(all_wrong::<Share>("0%,100%,5,-5%,%,,1e1%,NaN%"));
    }
}
