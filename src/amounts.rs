//! Amounts in words, for people.

use crate::config::Grouped;

/// Formats a length of time for people: `2.9 s`, `340 ms`, `4 min`, `3 h`, `2 days`.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        ..0.001 if seconds > 0.0 => format!("{:.0} µs", seconds * 1e6),
        0.001..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..10.0 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        ..7_200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.0} h", seconds / 3_600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

/// Returns a count and its noun. The noun is singular if the count is 1.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", Grouped(count), if count == 1 { "" } else { "s" })
}

/// Returns how often something happened, in words.
pub(crate) fn times(count: u64) -> String {
    match count {
        1 => String::from("once"),
        count => format!("{} times", Grouped(count)),
    }
}
