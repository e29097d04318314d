//! Distinguishes a slow target from stalls of the machine that went unnoticed.
//!
//! No watch notices every stall. A bare echo under the same load, in turns with the target, suffers from the missed
//! ones as well. So a target is slow by itself in one of two cases:
//!
//! - It takes longer than any stall that the watch can miss, and twice as long as the echo ever took.
//! - It is late more often than the echo. If both were late equally often, each of `n` late bunches would be
//!   the target's with the probability of its part of the time, so the target's number is binomial. J.
//!   Przyborowski, H. Wilenski, "Homogeneity of Results in Testing Samples from Poisson Series", Biometrika
//!   31 (1940), 313-323:
//!
//! ```text
//! P(at least k of n) = sum over i from k to n of (n choose i) p^i (1 - p)^(n - i)
//! ```
//!
//! Both assume that the machine is as noisy while the echo runs. A program that runs only during one round of the
//! target breaks this assumption, and causes bunches of any length. So a finding must hold without the target's
//! worst round, and a bunch longer than the echo's longest counts as several.

use statrs::distribution::{Binomial, DiscreteCDF};

use super::{Evidence, Latency, MAX_PAUSE};
use crate::measure::disturbed::Undisturbed;
use crate::measure::episodes::Episodes;

/// The probability with which a sound target has as many late bunches by chance: one in a hundred thousand.
const FALSE_ALARM: f64 = 1e-5;

/// The longest stop of a core that a sleeper can miss: its sleep, and the shortest stall that counts.
const UNSEEN_NS: u64 = 1_500_000;

/// The same probability without the target's worst round: one in a thousand.
const FALSE_ALARM_OF_REST: f64 = 1e-3;

/// The late bunches of each round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bunches {
    pub(crate) of_target: Vec<u64>,
    pub(crate) of_echo: Vec<u64>,
}

impl Bunches {
    /// Counts the bunches above a limit; `None` without an echo, or where the machine's stalls are not known.
    pub(crate) fn above(limit_ns: u64, target: &Undisturbed, echo: Option<&Undisturbed>) -> Option<Self> {
        let (target, echo) = (target.episodes.as_ref()?, echo?.episodes.as_ref()?);
        let longest = echo.longest_above(limit_ns);
        Some(Self { of_target: target.above(limit_ns, longest), of_echo: echo.above(limit_ns, longest) })
    }

    /// Returns true if the target has more than its part of the time explains.
    fn are_beyond_chance(&self, part: f64, rounds: u32, is_single: bool) -> bool {
        let [target, echo] = [&self.of_target, &self.of_echo].map(|all| all.iter().sum::<u64>());
        let is_late = at_least(target, target + echo, part) <= FALSE_ALARM;
        if !is_late || is_single {
            return is_late;
        }
        let rest = target - self.of_target.iter().max().copied().unwrap_or_default();
        // The target's part without one of its rounds.
        let others = part * f64::from(rounds.saturating_sub(1)) / f64::from(rounds.max(1));
        let part_of_rest = others / (others + 1.0 - part);
        at_least(rest, rest + echo, part_of_rest) <= FALSE_ALARM_OF_REST
    }
}

/// Returns true if a miss by the target's own times is not the machine's doing.
pub(super) fn is_targets_own(latency: &Latency, evidence: &Evidence<'_>) -> bool {
    let (target, limit_ns) = (evidence.undisturbed, latency.limit.as_nanos() as u64);
    let both = Bunches::above(limit_ns, target, evidence.echo).zip(evidence.echo);
    let Some((bunches, echo)) = both else {
        return true;
    };
    let worst_ns = echo.episodes.as_ref().map_or(0, Episodes::worst_ns);
    let hidden_ns = limit_ns.saturating_add(UNSEEN_NS).max(worst_ns.saturating_mul(2));
    let beyond = Bunches::above(hidden_ns, target, Some(echo)).unwrap_or_default().of_target;
    let is_in_several = evidence.is_single || beyond.iter().filter(|&&bunches| bunches > 0).count() > 1;
    let misses_by = |limit_ns| target.target.share_above(limit_ns) > 1.0 - latency.quantile;
    // The watch misses no stall of the machine that is so long, so one round is enough.
    let freeze_ns = hidden_ns.max(MAX_PAUSE.as_nanos() as u64);
    if misses_by(freeze_ns) || (misses_by(hidden_ns) && is_in_several) {
        return true;
    }
    let part = target.clean_requests / (target.clean_requests + echo.clean_requests).max(1.0);
    bunches.are_beyond_chance(part, evidence.rounds, evidence.is_single)
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
    fn one_round_is_no_evidence() {
        let is_late = |of_target: &[u64], of_echo: &[u64]| {
            let bunches = Bunches { of_target: of_target.to_vec(), of_echo: of_echo.to_vec() };
            bunches.are_beyond_chance(0.5, of_target.len() as u32, false)
        };
        // Programs were built while a sound target had its turn.
        assert!(!is_late(&[90], &[0]) && !is_late(&[90, 0], &[0, 0]) && !is_late(&[90, 1, 2], &[0, 2, 1]));
        assert!(is_late(&[10, 10], &[0, 0]) && is_late(&[7, 7, 7], &[0, 0, 1]));
    }

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
