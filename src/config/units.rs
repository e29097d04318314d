//! Durations and sizes as a person writes and reads them.

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;

/// Reads `10ms`, `1s`, `5m`, `1h`, `1m 30s` or `0`; `None` for anything else.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    match text.trim() {
        "0" => Some(Duration::ZERO),
        text => Duration::try_from(text.parse::<SignedDuration>().ok()?).ok(),
    }
}

/// Prints a duration as it is written in a configuration.
pub(super) struct Plain(pub(super) Duration);

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SignedDuration::try_from(self.0) {
            Ok(SignedDuration::ZERO) => f.write_str("0"),
            Ok(duration) => write!(f, "{duration:#}"),
            Err(_) => write!(f, "{}s", self.0.as_secs()),
        }
    }
}

/// A duration as it is written in a configuration, with its quotes.
pub(super) fn duration(duration: Duration) -> String {
    quoted(Plain(duration))
}

/// A text as it is written in a configuration, with its quotes.
pub(super) fn quoted(text: impl fmt::Display) -> String {
    format!("{:?}", text.to_string())
}

/// The units of a size, smallest first, each 1,024 of the one before.
const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];

/// Reads `4096`, `64KiB`, `1 MiB`; `None` for anything else, decimal units (`kB`) among them.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let power = match unit.trim_start() {
        "" => 0,
        unit => UNITS.iter().position(|&known| known == unit)?,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << (10 * power))
}

/// Prints a size in the largest unit that divides it.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |power: &usize| *power == 0 || (self.0 > 0 && self.0.is_multiple_of(1 << (10 * power)));
        let power = (0..UNITS.len()).rev().find(divides).unwrap_or(0);
        write!(f, "{}{}", self.0 >> (10 * power), UNITS[power])
    }
}

/// Prints a number with its thousands apart: `4,096,000`.
pub(crate) struct Grouped(pub(crate) u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_carry_their_unit() {
        for (text, millis) in [
            ("0", 0),
            ("10ms", 10),
            ("1s", 1_000),
            ("1.5s", 1_500),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1m 30s", 90_000),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "-1s", "10 parsecs", "1y", "1h1", "9999999999999999999999s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("64KiB", 65_536), ("1 MiB", 1 << 20), ("7B", 7)] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "KiB", "64kB", "64K", "-1", "1.5MiB", "99999999999GiB", "18446744073709551616"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
        assert_eq!(Bytes(0).to_string(), "0B");
        assert_eq!(Bytes(1025).to_string(), "1025B");
    }

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (4_096_000, "4,096,000")] {
            assert_eq!(Grouped(number).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(millis in 0..=u64::from(u32::MAX), bytes: u64) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&Plain(duration).to_string()), Some(duration));
            prop_assert_eq!(parse_bytes(&Bytes(bytes).to_string()), Some(bytes));
        }

        #[test]
        fn no_text_panics(text in ".{0,24}") {
            let _ = (parse_duration(&text), parse_bytes(&text));
        }
    }
}
