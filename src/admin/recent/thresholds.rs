//! The thresholds at which the last minute turns a check yellow or red, and back.

use crate::admin::status::Level;

/// The values at which a level is entered and left.
struct Threshold {
    enter: f64,
    leave: f64,
}

/// The thresholds of one figure.
pub(super) struct Thresholds {
    warn: Threshold,
    fail: Threshold,
}

/// Shares of refused requests. If 1 % are refused, a client that tries twice fails at one request in 10,000, which goes
/// unnoticed. If 10 % are refused, it fails at one in a hundred.
pub(super) const REFUSED: Thresholds =
    Thresholds { warn: Threshold { enter: 0.01, leave: 0.005 }, fail: Threshold { enter: 0.1, leave: 0.05 } };

/// Shares of slow requests: one in a hundred is the 99th percentile. Slow requests are served, so they never fail the check.
pub(super) const SLOW: Thresholds = Thresholds {
    warn: Threshold { enter: 0.01, leave: 0.005 },
    fail: Threshold { enter: f64::INFINITY, leave: f64::INFINITY },
};

/// Shares of a client's requests that its limits slow or deny. One in a hundred is the 99th percentile, as for slow
/// requests. The operator has set these limits, so they never fail the check.
pub(super) const LIMITED: Thresholds = Thresholds {
    warn: Threshold { enter: 0.01, leave: 0.005 },
    fail: Threshold { enter: f64::INFINITY, leave: f64::INFINITY },
};

/// Shares of connections in use. The last tenth is for clients that reconnect before their old connections are closed. When
/// all are in use, each new client is refused.
pub(super) const CONNECTIONS: Thresholds =
    Thresholds { warn: Threshold { enter: 0.9, leave: 0.8 }, fail: Threshold { enter: 1.0, leave: 0.95 } };

impl Thresholds {
    /// Returns the level of a value after the level `was`.
    pub(super) fn level(&self, value: f64, was: Level) -> Level {
        let is_at = |threshold: &Threshold, level| {
            value >= threshold.enter || (was <= level && value >= threshold.leave)
        };
        if is_at(&self.fail, Level::Fail) {
            Level::Fail
        } else if is_at(&self.warn, Level::Warn) {
            Level::Warn
        } else {
            Level::Ok
        }
    }
}
