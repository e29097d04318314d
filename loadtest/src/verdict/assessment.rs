//! One objective of response time: met or missed, and by whom.

use super::{Evidence, Latency, MAX_THREAD_SHARE, MAX_THROTTLED_SHARE, chance, is_late, takes_cores};
use crate::measure::Counts;

/// With this many clean requests beyond the quantile, a verdict without the machine's stalls is sure. A target
/// that stalls as often as the objective allows has then done so ten times.
const SURE_BEYOND: f64 = 10.0;

/// The share of a round's requests that is as good as all of them.
const CLOSE_TO_ALL: f64 = 0.9;

/// The share beyond the finest quantile of the options. The maximum needs as many requests.
const FINEST_SHARE: f64 = 1e-4;

/// The number of clean requests that the objective must allow to be late. If it allows fewer, and stalls touched others, only
/// a target that is late for certain has missed it.
const LEAST_BEYOND: f64 = 1.0;

/// The factor by which late requests without a known cause may exceed those that the objective allows.
const MAX_DOUBTED: f64 = 10.0;

/// The result for one objective of response time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assessment {
    /// It is met, by all requests.
    Met,
    /// It is met without the stalls of the machine.
    MetWithoutStalls,
    /// It is missed, but no more often than a bare echo is late on this machine.
    MetAsByEcho,
    /// Few requests were late, the target answered in time, and the generator had cores enough: other
    /// programs made them late, or stalls too short to be seen.
    MetByTarget,
    /// The target's part alone misses it.
    Missed,
    /// The target's part does not miss it, but the target kept the generator from the cores.
    CoresTaken,
    /// The generator may have been the cause.
    Doubtful,
    /// Too few requests were outside the stalls of the machine.
    TooFewClean,
}

impl Assessment {
    /// Assesses one objective of response time.
    pub(crate) fn of(latency: &Latency, evidence: &Evidence<'_>) -> Self {
        let times = evidence.undisturbed;
        if !is_late(&evidence.counts.response, latency) {
            return Self::Met;
        }
        if beyond(latency, evidence) < LEAST_BEYOND && times.disturbed_share > 0.0 {
            let is_late = is_late_for_certain(latency, evidence);
            return if is_late { Self::Missed } else { Self::TooFewClean };
        }
        if !is_late(&times.response, latency) {
            return Self::MetWithoutStalls;
        }
        let is_late_itself = is_late(&times.target, latency);
        if is_late_itself && chance::is_targets_own(latency, evidence) {
            return Self::Missed;
        }
        // So much time without a core makes the allowed number of requests late.
        let allowed = evidence.elapsed.mul_f64(1.0 - latency.quantile);
        let waits = evidence.own_waits;
        if takes_cores(evidence, 1.0 - latency.quantile) {
            return Self::CoresTaken;
        }
        if is_late_itself {
            return Self::MetAsByEcho;
        }
        let most = Latency { quantile: 1.0 - (1.0 - latency.quantile) * MAX_DOUBTED, ..*latency };
        let has_reserve = waits.by_generator.total <= allowed && !is_overloaded(evidence.counts);
        if evidence.is_owner_known
            && has_reserve
            && latency.quantile < 1.0
            && !is_late(&times.response, &most)
        {
            return Self::MetByTarget;
        }
        Self::Doubtful
    }

    /// Returns true if a longer run would not change it.
    pub(super) fn is_sure(self, latency: &Latency, evidence: &Evidence<'_>) -> bool {
        let asked_for = evidence.counts.response.len() as f64 / evidence.rounds.max(1) as f64;
        let is_enough = beyond(latency, evidence) >= SURE_BEYOND
            || evidence.undisturbed.clean_requests >= asked_for * CLOSE_TO_ALL;
        match self {
            Self::Met | Self::Missed | Self::CoresTaken => true,
            Self::MetWithoutStalls | Self::MetByTarget => is_enough,
            Self::MetAsByEcho | Self::TooFewClean | Self::Doubtful => false,
        }
    }
}

/// Returns the number of clean requests that an objective allows to be late.
fn beyond(latency: &Latency, evidence: &Evidence<'_>) -> f64 {
    evidence.undisturbed.clean_requests * (1.0 - latency.quantile).max(FINEST_SHARE)
}

/// Returns true if the target itself was late for ten clean requests, where the objective allows less than one.
fn is_late_for_certain(latency: &Latency, evidence: &Evidence<'_>) -> bool {
    let times = evidence.undisturbed;
    let quantile = 1.0 - SURE_BEYOND / times.clean_requests.max(SURE_BEYOND);
    let latency = Latency { quantile, ..*latency };
    quantile > 0.0 && is_late(&times.target, &latency) && chance::is_targets_own(&latency, evidence)
}

/// Returns true if the generator itself needed more of the cores than it had.
pub(super) fn is_overloaded(counts: &Counts) -> bool {
    counts.busiest_thread > MAX_THREAD_SHARE || counts.throttled_share > MAX_THROTTLED_SHARE
}
