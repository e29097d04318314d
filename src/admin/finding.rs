//! The parts of a check's result, and lengths of time in words.

use super::status::{Check, Level, SourceStatus};

/// The severity of a check's result, and the result in words.
pub(super) type CheckResult = (Level, String);

pub(super) fn fail(message: impl Into<String>) -> CheckResult {
    (Level::Fail, message.into())
}

pub(super) fn warn(message: impl Into<String>) -> CheckResult {
    (Level::Warn, message.into())
}

pub(super) fn ok(message: impl Into<String>) -> CheckResult {
    (Level::Ok, message.into())
}

pub(super) fn about_daemon(name: &'static str, (level, message): CheckResult) -> Check {
    Check { name: name.into(), source: None, level, message }
}

pub(super) fn about(source: &SourceStatus, name: &'static str, result: CheckResult) -> Check {
    Check { source: Some(source.name.clone()), ..about_daemon(name, result) }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_short() {
        for (length, text) in [
            (0.0, "0.0 s"),
            (0.000_05, "50 µs"),
            (0.34, "340 ms"),
            (2.94, "2.9 s"),
            (61.0, "61 s"),
            (240.0, "4 min"),
            (10_800.0, "3 h"),
            (200_000.0, "2 days"),
        ] {
            assert_eq!(seconds(length), text);
        }
    }
}
