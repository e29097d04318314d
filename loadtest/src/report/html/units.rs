//! Figures as a person reads them.

/// Microseconds with the unit that fits: `61 µs`, `1.27 ms`, `2.5 s`.
#[must_use]
pub fn time(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{} µs", three_digits(us)),
        us if us < 999_500.0 => format!("{} ms", three_digits(us / 1e3)),
        us => format!("{} s", three_digits(us / 1e6)),
    }
}

/// Three digits, as many as a histogram knows, without zeros at the end of a fraction.
#[must_use]
pub fn three_digits(number: f64) -> String {
    let decimals = match number.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A whole number with its thousands apart.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !text.is_empty() {
            text.push(',');
        }
        text.extend(group.iter().map(|&digit| char::from(digit)));
    }
    text
}

/// IDs per second.
#[must_use]
pub fn rate(per_s: f64) -> String {
    // A float becomes the nearest whole number, and negative ones, which no rate is, 0.
    count(per_s.round() as u64)
}

/// A rate as an axis says it: `10k`, `2.5M`.
#[must_use]
pub fn short_rate(per_s: f64) -> String {
    match per_s {
        rate if rate >= 1e6 => format!("{}M", three_digits(rate / 1e6)),
        rate if rate >= 1e3 => format!("{}k", three_digits(rate / 1e3)),
        rate => three_digits(rate),
    }
}

/// A share as a percentage.
#[must_use]
pub fn percent(share: f64) -> String {
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
        assert_eq!([0.303, 0.0, 1.0].map(percent), ["30.3 %", "0 %", "100 %"]);
    }
}
