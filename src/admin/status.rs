//! What a daemon is doing, in one plain struct. The metrics, the checks, `/status`, the page and `snowbank status` all
//! tell this and nothing else.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Upper bounds of the latency histogram, in microseconds: from what a busy turn takes to the longest that a request may
/// wait by default, in steps of 1, 2 and 5, so that a percentile is known to within half. 2 ms, within which single IDs
/// are promised beside a stream of large requests, is one of them.
pub(crate) const BOUNDS_US: [u64; 19] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000,
];

/// What a daemon is doing at one moment. Counters count from its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) instance: String,
    pub(crate) started_unix_s: f64,
    pub(crate) uptime_s: f64,
    /// Whether requests are served: no check fails.
    pub(crate) ready: bool,
    /// What there is to say of its state, the worst first. Never empty.
    pub(crate) checks: Vec<Check>,
    /// Whether it is stopping.
    pub(crate) draining: bool,
    pub(crate) shards: usize,
    pub(crate) order: String,
    pub(crate) clock: ClockStatus,
    pub(crate) ceilings: CeilingsStatus,
    /// What TLS listeners show; none: no listener has one.
    #[serde(default)]
    pub(crate) certificate: Option<CertificateStatus>,
    pub(crate) sources: Vec<SourceStatus>,
    pub(crate) connections: Connections,
    /// By code; every code is there.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Requests other than for IDs.
    pub(crate) other_requests: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) latency: Latency,
}

/// One thing that was looked at, in words for the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) name: CheckName,
    /// The source that it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) source: Option<String>,
    pub(crate) level: Level,
    pub(crate) message: String,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckName {
    /// Whether the daemon is stopping.
    Stop,
    /// Whether the worker IDs and the state are this daemon's alone.
    WorkerIds,
    /// How far the clock lets IDs be handed out.
    Clock,
    /// How far the durable ceiling does, and whether it is raised.
    Ceiling,
    /// Whether more is asked for than there is.
    Saturation,
    /// How long the layout lasts.
    Layout,
    /// How long clients believe the certificate of TLS listeners.
    Certificate,
}

impl CheckName {
    /// As in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CheckName::Stop => "stop",
            CheckName::WorkerIds => "worker_ids",
            CheckName::Clock => "clock",
            CheckName::Ceiling => "ceiling",
            CheckName::Saturation => "saturation",
            CheckName::Layout => "layout",
            CheckName::Certificate => "certificate",
        }
    }
}

/// How bad it is. The worst is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// Requests are refused: not ready.
    Fail,
    /// Requests are served; somebody should look.
    Warn,
    /// As it should be.
    Ok,
}

/// The machine's wall clock, as the daemon's keeper last saw it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClockStatus {
    pub(crate) state: ClockState,
    /// By how much, where it is behind or held.
    pub(crate) by_s: f64,
    /// Steps that were noticed, each of more than a tenth of a second.
    pub(crate) steps_back: u64,
    pub(crate) steps_forward: u64,
}

/// What the wall clock does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClockState {
    /// It runs as expected.
    Steady,
    /// It is behind the time of IDs already handed out.
    Behind,
    /// It stepped far forward, and is not followed until that has lasted.
    Held,
}

/// How the ceilings are raised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CeilingsStatus {
    /// Raises that are durable; one may be of several sources.
    pub(crate) raises: u64,
    pub(crate) failures: u64,
    /// How long all raises together took.
    pub(crate) raising_s: f64,
    /// How long ago the last one was durable; none: not since the start.
    pub(crate) last_raise_ago_s: Option<f64>,
    /// How long the raise that is under way has taken so far; 0: none is.
    pub(crate) under_way_s: f64,
    /// Why the last try failed; none: it did not.
    pub(crate) failing: Option<String>,
    /// Why the worker IDs or the state may be another's; none: they are held.
    pub(crate) lost: Option<String>,
}

/// The certificate of TLS listeners.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CertificateStatus {
    /// Until when clients believe it.
    pub(crate) ends_unix_s: f64,
    /// What somebody should do about it; none: nothing yet.
    pub(crate) warning: Option<String>,
}

/// One source of IDs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceStatus {
    pub(crate) name: String,
    pub(crate) layout: String,
    pub(crate) worker_ids: String,
    /// The most that its layout and worker IDs yield.
    pub(crate) ids_per_second: u64,
    pub(crate) ids: u64,
    pub(crate) requests: u64,
    pub(crate) exhausted: u64,
    /// Requests that had to wait for their IDs.
    pub(crate) waits: u64,
    /// Those that wait now, and the IDs that they wait for.
    pub(crate) waiting_requests: u64,
    pub(crate) waiting_ids: u64,
    /// How long it takes to hand those out, and how long a request waits that does not say.
    pub(crate) line_s: f64,
    pub(crate) default_wait_s: f64,
    /// The ceiling's time less the ID clock's: for how long IDs can be handed out if it is not raised. At least 0.
    pub(crate) headroom_s: f64,
    /// Whether a request waits for the ceiling.
    pub(crate) ceiling_wanted: bool,
    /// How far the ID clock is ahead of the wall clock, and how far it may be.
    pub(crate) ahead_s: f64,
    pub(crate) max_ahead_s: f64,
    /// How long the clock keeps IDs from being had.
    pub(crate) stands_s: f64,
    pub(crate) layout_ends: String,
    pub(crate) layout_years_left: f64,
}

/// The clients' connections.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) open: u64,
    pub(crate) max: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
}

/// How long requests for IDs took, from their bytes read to their reply on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Upper bounds, increasing.
    pub(crate) bounds_us: Vec<u64>,
    /// Requests between one bound and the next; the last are those above all bounds.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum_us: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Latency { bounds_us: BOUNDS_US.to_vec(), counts: vec![0; BOUNDS_US.len() + 1], sum_us: 0 }
    }
}

impl Latency {
    /// How many requests there were.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What happened since an earlier moment.
    pub(crate) fn since(&self, earlier: &Latency) -> Latency {
        let counts = self.counts.iter().zip(&earlier.counts).map(|(now, then)| now.saturating_sub(*then));
        let sum_us = self.sum_us.saturating_sub(earlier.sum_us);
        Latency { bounds_us: self.bounds_us.clone(), counts: counts.collect(), sum_us }
    }

    /// The time within which this share of requests was answered, in microseconds: linear between the bounds, as
    /// Prometheus has it, and the highest bound where that is exceeded. `None` without requests.
    pub(crate) fn quantile_us(&self, share: f64) -> Option<f64> {
        let wanted = self.count() as f64 * share;
        let (mut below, mut low_us) = (0.0, 0.0);
        for (&count, &high_us) in self.counts.iter().zip(&self.bounds_us) {
            let (count, high_us) = (count as f64, high_us as f64);
            if count > 0.0 && below + count >= wanted {
                return Some(low_us + (high_us - low_us) * (wanted - below).max(0.0) / count);
            }
            below += count;
            low_us = high_us;
        }
        (self.count() > 0).then_some(low_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_linear_between_bounds() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile_us(0.5), None);
        latency.counts[1] = 10;
        assert_eq!(latency.quantile_us(0.5), Some(15.0));
        assert_eq!(latency.quantile_us(1.0), Some(20.0));
        latency.counts[3] = 10;
        assert_eq!(latency.quantile_us(0.5), Some(20.0));
        assert_eq!(latency.quantile_us(0.75), Some(75.0));
        *latency.counts.last_mut().expect("a last bucket") = 1_000;
        assert_eq!(latency.quantile_us(0.99), Some(10_000_000.0), "above all bounds, as Prometheus has it");
    }

    #[test]
    fn what_happened_since_is_a_difference() {
        let (mut earlier, mut now) = (Latency::default(), Latency::default());
        earlier.counts[2] = 3;
        earlier.sum_us = 90;
        now.counts[2] = 5;
        now.counts[4] = 1;
        now.sum_us = 300;
        let since = now.since(&earlier);
        assert_eq!((since.count(), since.counts[2], since.sum_us), (3, 2, 210));
    }
}
