//! Tells a slow target from the machine's stalls that nobody saw.
//!
//! No watch sees every stall. A bare echo under the same load, in turns with the target, suffers from those
//! that it misses as well. So a target is slow by itself in one of two cases:
//!
//! - It takes longer than any stall that can hide, and twice as long as the echo ever took.
//! - It is late more often than the echo. If both were late equally often, each of `n` late bunches would be
//!   the target's with the probability of its part of the time, so the target's number is binomial. J.
//!   Przyborowski, H. Wilenski, "Homogeneity of Results in Testing Samples from Poisson Series", Biometrika
//!   31 (1940), 313-323:
//!
//! ```text
//! P(at least k of n) = sum over i from k to n of (n choose i) p^i (1 - p)^(n - i)
//! ```

use statrs::distribution::{Binomial, DiscreteCDF};

use super::Latency;
use crate::measure::disturbed::Undisturbed;

/// A sound target has as many late bunches by chance in one look of a hundred thousand.
const FALSE_ALARM: f64 = 1e-5;

/// A core can stop for so long between two looks of a sleeper: its sleep, and the shortest stall that counts.
const UNSEEN_NS: u64 = 1_500_000;

/// Returns true if the target misses an objective by itself, where its own times miss it.
pub(super) fn is_targets_own(latency: &Latency, target: &Undisturbed, echo: Option<&Undisturbed>) -> bool {
    let both = echo.and_then(|echo| Some((echo, target.episodes.as_ref()?, echo.episodes.as_ref()?)));
    let Some((echo, by_target, by_echo)) = both else {
        return true;
    };
    let limit_ns = latency.limit.as_nanos() as u64;
    let hidden_ns = limit_ns.saturating_add(UNSEEN_NS).max(by_echo.worst_ns().saturating_mul(2));
    if target.target.share_above(hidden_ns) > 1.0 - latency.quantile {
        return true;
    }
    let part = target.clean_requests / (target.clean_requests + echo.clean_requests).max(1.0);
    at_least(by_target.above(limit_ns), by_target.above(limit_ns) + by_echo.above(limit_ns), part)
        <= FALSE_ALARM
}

/// Returns the probability of at least `some` of `all`, where each has the probability `part`.
fn at_least(some: u64, all: u64, part: f64) -> f64 {
    match (some.checked_sub(1), Binomial::new(part, all)) {
        (Some(fewer), Ok(binomial)) => binomial.sf(fewer),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probability_is_the_binomial_tail() {
        let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-12, "{found} {wanted}");
        close(at_least(0, 10, 0.5), 1.0);
        close(at_least(10, 10, 0.5), 1.0 / 1_024.0);
        close(at_least(9, 10, 0.5), 11.0 / 1_024.0);
        close(at_least(2, 3, 0.25), 10.0 / 64.0);
        // Seventeen to none is beyond chance, sixteen to none is not.
        assert!(at_least(17, 17, 0.5) <= FALSE_ALARM && at_least(16, 16, 0.5) > FALSE_ALARM);
    }
}
