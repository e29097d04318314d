//! Numbers and a target's words as text for people.

use std::time::Duration;

/// Decimals of the smallest number that is not shown as 0.
const DECIMALS_MAX: f64 = 12.0;

/// Microseconds with the unit that fits: `61 µs`, `1.27 ms`, `2.5 s`.
pub(crate) fn time(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{} µs", three_digits(us)),
        us if us < 999_500.0 => format!("{} ms", three_digits(us / 1e3)),
        us => format!("{} s", three_digits(us / 1e6)),
    }
}

/// Formats three digits, as many as a histogram knows, without zeros at the end of a fraction.
pub(crate) fn three_digits(number: f64) -> String {
    let decimals = match number.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a whole number with its thousands apart.
pub(crate) fn count(number: u64) -> String {
    with_thousands_apart(&number.to_string())
}

fn with_thousands_apart(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with its thousands apart: two decimals below a hundred, none above, and two digits other than
/// leading zeros below 0.1.
pub(crate) fn grouped(number: f64) -> String {
    let decimals = match number.abs() {
        small if small > 0.0 && small < 0.1 => (1.0 - small.log10().floor()).min(DECIMALS_MAX) as usize,
        middle if middle < 100.0 => 2,
        _ => 0,
    };
    let text = format!("{number:.decimals$}");
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let (whole, decimals) = (with_thousands_apart(whole), decimals.trim_end_matches('0'));
    if decimals.is_empty() { whole } else { format!("{whole}.{decimals}") }
}

/// Returns a count and its noun, with the plural.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Returns a rate with its unit.
pub(crate) fn ids_per_s(rate: f64) -> String {
    format!("{} IDs/s", grouped(rate))
}

/// Returns microseconds in ms, or in s from ten seconds on: `0.47 ms`, `12.1 ms`, `288 ms`, `12.5 s`.
pub(crate) fn short_ms(us: f64) -> String {
    match us / 1e3 {
        ms if ms < 9.995 => format!("{ms:.2} ms"),
        ms if ms < 99.95 => format!("{ms:.1} ms"),
        ms if ms < 9_999.5 => format!("{} ms", fixed(ms, 0)),
        ms if ms < 99_950.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{} s", fixed(ms / 1e3, 0)),
    }
}

/// Returns a limit as it is given on the command line, with its unit apart: `2 ms`.
pub(crate) fn limit(limit: Duration) -> String {
    let text = crate::value::Time(limit).to_string();
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

/// Returns for how long the machine stood still: `0.36 s of 10 s`.
pub(crate) fn stood_still(stood: Duration, elapsed: Duration) -> String {
    let (stood_s, elapsed_s) = (stood.as_secs_f64(), elapsed.as_secs_f64());
    let is_long = elapsed_s >= 99.95;
    let elapsed = fixed(elapsed_s, if is_long { 0 } else { 1 });
    let elapsed = elapsed.strip_suffix(".0").unwrap_or(&elapsed);
    format!("{} s of {elapsed} s", fixed(stood_s, if is_long { 0 } else { 2 }))
}

/// Formats a number that is not negative with this many decimals, and its thousands apart.
pub(crate) fn fixed(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    with_thousands_apart(whole) + rest
}

/// IDs per second.
pub(crate) fn rate(per_s: f64) -> String {
    // A float becomes the nearest whole number, and a negative one 0.
    count(per_s.round() as u64)
}

/// Makes text of a target safe for a terminal: escapes line breaks and other control characters.
pub(crate) fn printable(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// Returns a rate as the label of an axis: `10k`, `2.5M`.
pub(crate) fn short_rate(per_s: f64) -> String {
    match per_s {
        rate if rate >= 1e6 => format!("{}M", three_digits(rate / 1e6)),
        rate if rate >= 1e3 => format!("{}k", three_digits(rate / 1e3)),
        rate => three_digits(rate),
    }
}

/// Returns a share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", three_digits(share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [61.0, 999.0, 1_267.0, 44_138.0, 2_500_000.0].map(time),
            ["61 µs", "999 µs", "1.27 ms", "44.1 ms", "2.5 s"]
        );
        assert_eq!(
            [0, 999, 1_000, 123_456, 4_089_919].map(count),
            ["0", "999", "1,000", "123,456", "4,089,919"]
        );
        assert_eq!([0.0, 500.0, 10_000.0, 2_500_000.0].map(short_rate), ["0", "500", "10k", "2.5M"]);
        assert_eq!(
            [0.0, 999.9996, 18_866.04, 1e6].map(|number| fixed(number, 3)),
            ["0.000", "1,000.000", "18,866.040", "1,000,000.000"]
        );
        assert_eq!([0.303, 0.0, 1.0].map(percent), ["30.3 %", "0 %", "100 %"]);
    }

    #[test]
    fn times_and_stalls_are_short() {
        let found = [470.0, 12_060.0, 288_000.0, 12_500_000.0, 3_600e6].map(short_ms);
        assert_eq!(found, ["0.47 ms", "12.1 ms", "288 ms", "12.5 s", "3,600 s"]);
        let of = |stood_ms, elapsed_ms| {
            stood_still(Duration::from_millis(stood_ms), Duration::from_millis(elapsed_ms))
        };
        assert_eq!(
            [of(360, 10_001), of(5, 1_500), of(2_400, 3_600_000)],
            ["0.36 s of 10 s", "0.01 s of 1.5 s", "2 s of 3,600 s"]
        );
    }

    #[test]
    fn words_of_a_target_cannot_steer_a_terminal() {
        assert_eq!(printable("né\u{1b}[31m\r\nfail: \u{9b}"), "né\\u{1b}[31m\\r\\nfail: \\u{9b}");
    }

    #[test]
    fn thousands_stand_apart() {
        let cases = [
            (0.0, "0"),
            (0.0001, "0.0001"),
            (0.000_012_345, "0.000012"),
            (0.099, "0.099"),
            (1e-300, "0"),
            (0.5, "0.5"),
            (31.25, "31.25"),
            (999.0, "999"),
            (1_000.0, "1,000"),
            (4_096_000.0, "4,096,000"),
            (1e9, "1,000,000,000"),
        ];
        for (number, expected) in cases {
            assert_eq!(grouped(number), expected);
        }
    }
}
