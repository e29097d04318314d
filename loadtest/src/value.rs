//! Rates, durations and mixes as a person writes them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The highest rate that can be asked for, in IDs per second: more than any layout's daemon hands out.
pub(crate) const MAX_RATE_PER_S: f64 = 1e12;

/// The longest time that can be asked for: a week.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(7 * 86_400);

/// Text that is no value of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not {wanted}")]
pub(crate) struct BadValue {
    found: String,
    wanted: &'static str,
}

/// IDs per second: above 0, at most [`MAX_RATE_PER_S`]. Written `10000/s`, `10000`, `250k/s`, `4M/s`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Rate(f64);

impl Rate {
    /// What the standard scenario asks for.
    pub(crate) const STANDARD: Self = Self(10_000.0);

    /// A rate of that many IDs per second, if it is one.
    pub(crate) fn new(per_s: f64) -> Option<Self> {
        (per_s > 0.0 && per_s <= MAX_RATE_PER_S).then_some(Self(per_s))
    }

    /// IDs per second.
    pub(crate) fn per_s(self) -> f64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let number = text.strip_suffix("/s").unwrap_or(text);
        let (number, unit) = split_unit(number);
        let factor = match unit {
            "" => Some(1.0),
            "k" => Some(1e3),
            "M" => Some(1e6),
            _ => None,
        };
        let rate = factor.zip(decimal(number)).map(|(factor, number)| factor * number);
        rate.and_then(Self::new).ok_or_else(|| BadValue {
            found: text.to_owned(),
            wanted: "a rate: IDs per second above 0, as in 10000/s, 250k/s or 4M/s",
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.0)
    }
}

/// A time above 0, [`MAX_TIME`] at most. Written `500us`, `2ms`, `1.5s`, `10m`, `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub Duration);

impl FromStr for Time {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let (number, unit) = split_unit(text);
        let unit_ns = match unit {
            "ns" => Some(1.0),
            "us" | "µs" => Some(1e3),
            "ms" => Some(1e6),
            "s" => Some(1e9),
            "m" => Some(60e9),
            "h" => Some(3_600e9),
            _ => None,
        };
        let ns = unit_ns.zip(decimal(number)).map(|(unit_ns, number)| unit_ns * number);
        // Below 2^63 once it is at most a week.
        let time = ns.filter(|&ns| ns >= 1.0 && ns <= MAX_TIME.as_nanos() as f64);
        time.map(|ns| Self(Duration::from_nanos(ns as u64))).ok_or_else(|| BadValue {
            found: text.to_owned(),
            wanted: "a time above 0 and at most 168h, as in 500us, 2ms, 10s, 5m or 1h",
        })
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// How long something lasts, and when it begins. Written `2s@3s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeAt {
    /// How long.
    pub(crate) length: Duration,
    /// When.
    pub(crate) at: Duration,
}

impl FromStr for TimeAt {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let parts = text.split_once('@').and_then(|(length, at)| {
            Some(Self { length: length.parse::<Time>().ok()?.0, at: at.parse::<Time>().ok()?.0 })
        });
        parts.ok_or_else(|| BadValue {
            found: text.to_owned(),
            wanted: "how long and when, each a time above 0, as in 2s@3s",
        })
    }
}

/// What a network carries in each direction. Written `100Mbit`, `1Gbit`, `2.5Gbit`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Bandwidth(f64);

impl Bandwidth {
    /// Bits per second: above 0.
    pub(crate) fn bits_per_s(self) -> f64 {
        self.0
    }
}

impl FromStr for Bandwidth {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let (number, unit) = split_unit(text);
        let factor = match unit.strip_suffix("/s").unwrap_or(unit) {
            "kbit" => Some(1e3),
            "Mbit" => Some(1e6),
            "Gbit" => Some(1e9),
            _ => None,
        };
        let bits = factor.zip(decimal(number)).map(|(factor, number)| factor * number);
        bits.filter(|&bits| (1e3..=1e15).contains(&bits)).map(Self).ok_or_else(|| BadValue {
            found: text.to_owned(),
            wanted: "a bandwidth from 1kbit to 1000000Gbit, as in 100Mbit or 2.5Gbit",
        })
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits @ ..1e9 => write!(f, "{} Mbit/s", bits / 1e6),
            bits => write!(f, "{} Gbit/s", bits / 1e9),
        }
    }
}

/// A part of a whole: above 0 and below 100 %. Written `5%`, `12.5%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Share(f64);

impl Share {
    /// From 0 to 1, both excluded.
    pub(crate) fn of_one(self) -> f64 {
        self.0
    }
}

impl FromStr for Share {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let percent = text.strip_suffix('%').and_then(decimal);
        let share = percent.filter(|&percent| percent > 0.0 && percent < 100.0);
        share.map(|percent| Self(percent / 100.0)).ok_or_else(|| BadValue {
            found: text.to_owned(),
            wanted: "a share above 0% and below 100%, as in 5% or 50%",
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0 * 100.0)
    }
}

/// IDs per request: one size (`1000`), or several with their weights (`1:90,100:9,10000:1`).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mix {
    /// Sizes, each with the share of requests that have it or one before it. Invariant: at least one, shares ascend
    /// to 1, sizes are above 0.
    parts: Vec<(u32, f64)>,
    mean: f64,
    text: String,
}

impl Mix {
    /// Every request asks for `count` IDs; at least one.
    pub(crate) fn fixed(count: u32) -> Self {
        let count = count.max(1);
        Self { parts: vec![(count, 1.0)], mean: f64::from(count), text: count.to_string() }
    }

    /// The size at `share` of the way through the mix, from 0 to 1.
    pub(crate) fn at(&self, share: f64) -> u32 {
        let part = self.parts.iter().find(|&&(_, upto)| share < upto);
        part.or(self.parts.last()).map_or(1, |&(count, _)| count)
    }

    /// Whether all requests are of one size.
    pub(crate) fn is_fixed(&self) -> bool {
        self.parts.len() == 1
    }

    /// IDs per request in the long run.
    pub(crate) fn mean(&self) -> f64 {
        self.mean
    }

    /// The largest size.
    pub(crate) fn max(&self) -> u32 {
        self.parts.iter().map(|&(count, _)| count).max().unwrap_or(1)
    }
}

impl FromStr for Mix {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || BadValue {
            found: text.to_owned(),
            wanted: "a number of IDs above 0, or sizes with weights above 0, as in 1:90,100:9,10000:1",
        };
        let above_zero = |text: &str| text.parse::<u32>().ok().filter(|&number| number > 0);
        if let Some(count) = above_zero(text) {
            return Ok(Self::fixed(count));
        }
        let weighted = |part: &str| {
            let (count, weight) = part.split_once(':')?;
            Some((above_zero(count)?, above_zero(weight)?))
        };
        let parts: Vec<(u32, u32)> = text.split(',').map(weighted).collect::<Option<_>>().ok_or_else(bad)?;
        let total: f64 = parts.iter().map(|&(_, weight)| f64::from(weight)).sum();
        let mut upto = 0.0;
        let mut mean = 0.0;
        let shares = parts.iter().map(|&(count, weight)| {
            let share = f64::from(weight) / total;
            upto += share;
            mean += share * f64::from(count);
            (count, upto)
        });
        let parts = shares.collect();
        Ok(Self { parts, mean, text: text.to_owned() })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len())
}

/// Digits with at most one point; not what else `f64` reads, such as `inf` or `1e9`.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let rate = |text: &str| text.parse::<Rate>().map(Rate::per_s);
        assert_eq!(rate("10000/s"), Ok(10_000.0));
        assert_eq!(rate("2.5k"), Ok(2_500.0));
        assert_eq!(rate("4M/s"), Ok(4_000_000.0));
        for wrong in
            ["0", "0/s", "-1", "", "/s", "inf", "1e5", "NaN", "10/m", "10 /s", "99999999999999", "1.2.3"]
        {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times() {
        let time = |text: &str| text.parse::<Time>().map(|time| time.0);
        assert_eq!(time("2ms"), Ok(Duration::from_millis(2)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(time("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(time("1h"), Ok(Duration::from_secs(3_600)));
        for wrong in ["0s", "0", "-5s", "10", "", "s", "1y", "infs", "169h", "0.1ns"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_at_a_time() {
        let both = TimeAt { length: Duration::from_millis(500), at: Duration::from_secs(3) };
        assert_eq!("500ms@3s".parse(), Ok(both));
        for wrong in ["", "2s", "2s@", "@3s", "0s@3s", "2s@-3s", "2s@3s@4s", "2@3"] {
            assert!(wrong.parse::<TimeAt>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares() {
        let share = |text: &str| text.parse::<Share>().map(Share::of_one);
        assert_eq!((share("5%"), share("12.5%")), (Ok(0.05), Ok(0.125)));
        for wrong in ["0%", "100%", "5", "-5%", "%", "", "1e1%", "NaN%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bandwidths() {
        let bits = |text: &str| text.parse::<Bandwidth>().map(Bandwidth::bits_per_s);
        assert_eq!((bits("1Gbit"), bits("2.5Gbit/s"), bits("100Mbit")), (Ok(1e9), Ok(2.5e9), Ok(1e8)));
        for wrong in ["1", "0Gbit", "1GB", "-1Gbit", "", "Gbit", "1gbit", "1e3Mbit"] {
            assert!(bits(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mix_is_drawn_by_its_weights() {
        let mix: Mix = "1:90,100:9,10000:1".parse().expect("a mix");
        assert!((mix.mean() - 109.9).abs() < 1e-9);
        assert_eq!(
            (mix.at(0.0), mix.at(0.89), mix.at(0.95), mix.at(0.995), mix.at(1.0)),
            (1, 1, 100, 10_000, 10_000)
        );
        assert_eq!(mix.max(), 10_000);
        assert!("7".parse::<Mix>().expect("a size").is_fixed());
        for wrong in ["0", "", "1:", ":1", "1:0", "0:1", "1:90,", "1:90;2:10", "a:b", "-1", "4294967296"] {
            assert!(wrong.parse::<Mix>().is_err(), "{wrong}");
        }
    }
}
