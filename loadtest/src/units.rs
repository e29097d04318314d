//! Numbers as text for people.

use std::time::Duration;

use indicatif::{HumanCount, HumanFloatCount};

use crate::measure::micros;

/// The most digits that are shown after the point.
const DECIMALS_MAX: f64 = 12.0;

/// Formats a number with three significant digits, the precision of a histogram. Every digit before
/// the point is shown, too: `0.0123`, `31.3`, `4,096,000`.
pub(crate) fn grouped(number: f64) -> String {
    let decimals = (2.0 - number.abs().log10().floor()).clamp(0.0, DECIMALS_MAX);
    format!("{:.*}", decimals as usize, HumanFloatCount(number))
}

/// Formats a whole number with commas between its thousands.
pub(crate) fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Returns a count and its noun, plural unless the count is 1.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

pub(crate) fn ids_per_s(rate: f64) -> String {
    format!("{} IDs/s", if rate < 1e7 { grouped(rate) } else { short_rate(rate) })
}

/// Returns a rate as the label of an axis: `10k`, `2.5M`.
pub(crate) fn short_rate(per_s: f64) -> String {
    match per_s {
        rate if rate >= 1e9 => format!("{}G", grouped(rate / 1e9)),
        rate if rate >= 1e6 => format!("{}M", grouped(rate / 1e6)),
        rate if rate >= 1e3 => format!("{}k", grouped(rate / 1e3)),
        rate => grouped(rate),
    }
}

/// Returns microseconds with the unit that fits: `61 µs`, `1.27 ms`, `2.5 s`, `1 h`.
pub(crate) fn time(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{} µs", grouped(us)),
        us if us < 999.5e3 => format!("{} ms", grouped(us / 1e3)),
        us if us < 999.5e6 => format!("{} s", grouped(us / 1e6)),
        us => format!("{} h", grouped(us / 3.6e9)),
    }
}

pub(crate) fn duration(length: Duration) -> String {
    time(micros(length))
}

/// Returns the time for which the machine stood still, with the run's length: `0.36 s of 10 s`.
pub(crate) fn stood_still(stood: Duration, elapsed: Duration) -> String {
    let elapsed_s = elapsed.as_secs_f64();
    if elapsed_s >= 99.95 {
        return format!("{} of {}", duration(stood), duration(elapsed));
    }
    format!("{:.2} s of {:.1} s", HumanFloatCount(stood.as_secs_f64()), HumanFloatCount(elapsed_s))
}

pub(crate) fn percent(share: f64) -> String {
    format!("{} %", grouped(share * 100.0))
}

/// Returns the name of an enum's variant in lower case, as every output writes it.
pub(crate) fn lowercase(variant: impl std::fmt::Debug) -> String {
    format!("{variant:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_all_digits_before_the_point() {
        let numbers = [0.0, 1e-300, 0.000_012_345, 0.099, 0.5, 31.25, 999.0, 123_456.4, 1e9];
        let texts = ["0", "0", "0.0000123", "0.099", "0.5", "31.2", "999", "123,456", "1,000,000,000"];
        assert_eq!(numbers.map(grouped), texts);
        assert_eq!([0.0, 500.0, 10_000.0, 2_500_000.0].map(short_rate), ["0", "500", "10k", "2.5M"]);
        assert_eq!([0.303, 0.0, 1.0].map(percent), ["30.3 %", "0 %", "100 %"]);
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let us = [61.0, 999.0, 1_267.0, 44_138.0, 2_500_000.0, 3_600e6];
        assert_eq!(us.map(time), ["61 µs", "999 µs", "1.27 ms", "44.1 ms", "2.5 s", "1 h"]);
        assert_eq!(duration(Duration::from_micros(12_060)), "12.1 ms");
        let of = |stood_ms, elapsed_ms| {
            stood_still(Duration::from_millis(stood_ms), Duration::from_millis(elapsed_ms))
        };
        assert_eq!([of(360, 10_001), of(12, 1_500)], ["0.36 s of 10 s", "0.01 s of 1.5 s"]);
        assert_eq!(of(360, 3_600_000), "360 ms of 1 h");
    }
}
