//! The status of a daemon, in one plain struct. The metrics, the checks, `/status`, the page and `snowbank status` all show
//! this and nothing else.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snowbank_client::protocol::ErrorCode;

use super::kind::KindStatus;

/// The upper bounds of the latency histogram, in microseconds. They reach from a busy turn to the longest wait of a request,
/// in steps of 1, 2 and 5, so that a percentile is known to within half. One bound is 2 ms, within which single IDs are
/// promised beside a stream of large requests. One is just above the default wait, or requests that waited for all of it would
/// look as if they took up to twice as long.
pub(crate) const BOUNDS_US: [u64; 20] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 1_100_000, 2_000_000, 5_000_000, 10_000_000,
];

/// The status of a daemon at one moment. Counters count from its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) instance: String,
    pub(crate) started_unix_s: f64,
    pub(crate) uptime_s: f64,
    /// True if requests are served: no check fails that decides readiness.
    pub(crate) ready: bool,
    /// The results of all checks, the worst first. Never empty.
    pub(crate) checks: Vec<Check>,
    /// True while it stops.
    pub(crate) draining: bool,
    pub(crate) shards: usize,
    pub(crate) order: String,
    pub(crate) clock: ClockStatus,
    pub(crate) ceilings: CeilingsStatus,
    /// The fleet's coordinator. `None`: the daemon is of no fleet.
    #[serde(default)]
    pub(crate) fleet: Option<FleetStatus>,
    /// Other daemons that this one asks. `None`: it has none to ask.
    #[serde(default)]
    pub(crate) peers: Option<PeersStatus>,
    /// The certificate of TLS listeners. `None`: no listener has one.
    #[serde(default)]
    pub(crate) certificate: Option<CertificateStatus>,
    pub(crate) sources: Vec<SourceStatus>,
    /// The identities that are configured, by name.
    #[serde(default)]
    pub(crate) identities: Vec<IdentityStatus>,
    pub(crate) connections: Connections,
    /// The protocols that have listeners.
    #[serde(default)]
    pub(crate) protocols: Vec<ProtocolStatus>,
    pub(crate) last_minute: LastMinute,
    /// `None`: the configuration is that of the start.
    pub(crate) last_reload: Option<LastReload>,
    /// The number of errors by code. Contains every code.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Requests other than for IDs.
    pub(crate) other_requests: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) latency: Latency,
}

/// The result of one check, in words for the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Check {
    /// The subject, such as `clock`.
    pub(crate) name: Cow<'static, str>,
    /// The source that it concerns, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) source: Option<String>,
    pub(crate) level: Level,
    pub(crate) message: String,
}

/// The severity of a check's result. The worst is the least value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// Requests or connections are refused, or another daemon hands out the same IDs.
    Fail,
    /// Requests are served, and an operator should look.
    Warn,
    /// All is well.
    #[default]
    Ok,
}

/// The machine's wall clock, as the daemon's keeper last saw it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClockStatus {
    pub(crate) state: ClockState,
    /// The difference from ID time, if it is behind or held.
    pub(crate) by_s: f64,
    /// The steps observed, each of more than a tenth of a second.
    pub(crate) steps_back: u64,
    pub(crate) steps_forward: u64,
}

/// The state of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClockState {
    /// It runs as expected.
    Steady,
    /// It is behind the time of IDs already handed out.
    Behind,
    /// It stepped far forward, and is not followed until the step has lasted.
    Held,
}

/// The state of raising ceilings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CeilingsStatus {
    /// The number of durable raises. One may raise several sources.
    pub(crate) raises: u64,
    pub(crate) failures: u64,
    /// The total time of all raises.
    pub(crate) raising_s: f64,
    /// The time since the last raise became durable. `None`: none since the start.
    pub(crate) last_raise_ago_s: Option<f64>,
    /// The time that the write under way has taken so far. 0 without one.
    pub(crate) under_way_s: f64,
    /// The time after which a write is slow: half of the horizon.
    pub(crate) slow_write_s: f64,
    /// The reason why the last raise failed. `None`: it did not fail.
    pub(crate) failing: Option<String>,
    /// The reason why another process may have the worker IDs or the state. `None`: this daemon holds them.
    pub(crate) lost: Option<String>,
}

/// The ceilings at the fleet's coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FleetStatus {
    /// The number of durable raises there.
    pub(crate) raises: u64,
    /// The time for which IDs can be handed out without the coordinator: of the source whose ceiling is the nearest.
    pub(crate) left_s: f64,
    /// The reason why the coordinator did not answer. `None`: it did.
    pub(crate) silent: Option<String>,
}

/// The daemons that this one asks for their worker IDs and their clocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeersStatus {
    /// The difference of clocks to warn of.
    pub(crate) clock_tolerance_s: f64,
    /// All of them but this daemon itself. Empty until the first look is over.
    pub(crate) peers: Vec<PeerStatus>,
}

/// A peer, as it answered last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerStatus {
    pub(crate) address: String,
    pub(crate) instance: Option<String>,
    /// The reason why it did not answer. `None`: it did.
    pub(crate) silent: Option<String>,
    /// The time by which its clock is ahead of this machine's at least, negative if it is behind. `None`: unknown.
    pub(crate) clock_ahead_s: Option<f64>,
    /// The worker ID of this daemon that it has too, in words. `None`: it has none, as far as is known.
    pub(crate) shared: Option<String>,
}

impl PeerStatus {
    /// Returns its address, with its own name if that is known.
    pub(crate) fn name(&self) -> String {
        match &self.instance {
            Some(instance) => format!("peer {} ({instance})", self.address),
            None => format!("peer {}", self.address),
        }
    }
}

/// The certificate of TLS listeners.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CertificateStatus {
    /// The end of its validity.
    pub(crate) ends_unix_s: f64,
    /// The warning for the operator, if it ends soon.
    pub(crate) warning: Option<String>,
}

/// One source of IDs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceStatus {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) kind: KindStatus,
    /// The ID space, in which two daemons must not have a number in common.
    #[serde(default)]
    pub(crate) id_space: String,
    /// The numbers of the worker IDs in that space, for the metrics.
    #[serde(skip)]
    pub(crate) numbers_in_space: Arc<[u64]>,
    pub(crate) ids: u64,
    pub(crate) requests: u64,
    /// Requests refused, whatever the code, and those of them with `exhausted`.
    pub(crate) refused: u64,
    pub(crate) exhausted: u64,
    pub(crate) last_minute: SourceMinute,
    /// The number of requests that had to wait for their IDs.
    pub(crate) waits: u64,
    /// The requests that wait now, and the IDs that they wait for.
    pub(crate) waiting_requests: u64,
    pub(crate) waiting_ids: u64,
    /// The default wait of a request.
    pub(crate) default_wait_s: f64,
    /// The time from the newest ID to the fleet's ceiling, minutes ahead. `None`: the source is of no fleet.
    #[serde(default)]
    pub(crate) fleet_headroom_s: Option<f64>,
    /// True while a request waits for the ceiling.
    pub(crate) ceiling_wanted: bool,
}

/// A client with a name of its own. Counts are kept as long as reloads keep the name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IdentityStatus {
    pub(crate) name: String,
    /// The IDs per second that it may draw. `None`: no rate is set.
    pub(crate) rate: Option<u32>,
    /// The connections that have it now, and that had it so far.
    pub(crate) connections: u64,
    pub(crate) connected: u64,
    /// The IDs that it drew, by source.
    pub(crate) ids: BTreeMap<String, u64>,
    /// Requests that came under its limits, or under its address's.
    #[serde(default)]
    pub(crate) requests: u64,
    /// Requests to sources that it may not draw from.
    pub(crate) denied: u64,
    /// Requests that waited for its rate, or were refused for it.
    pub(crate) slowed: u64,
    #[serde(default)]
    pub(crate) last_minute: LimitedMinute,
}

/// The result of the last reload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastReload {
    pub(crate) at_unix_s: f64,
    /// The reasons for a refusal. `None`: it succeeded.
    pub(crate) refused: Option<String>,
}

/// The last minute of a source, or its time since the start if that is shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceMinute {
    pub(crate) requests: u64,
    /// Requests refused, whatever the code, and those of them with `exhausted`.
    pub(crate) refused: u64,
    pub(crate) exhausted: u64,
    /// The level of the check `refusals`.
    pub(crate) level: Level,
}

/// The last minute of all sources, or the time since the start if that is shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastMinute {
    /// The exact length: a minute and up to five seconds.
    pub(crate) over_s: f64,
    /// The time within which 99 % of requests were answered. `None`: there were no requests.
    pub(crate) p99_us: Option<f64>,
    pub(crate) connections_refused: u64,
    /// Connections that were closed because they did not authorize themselves.
    #[serde(default)]
    pub(crate) unauthorized: u64,
    pub(crate) latency_level: Level,
    pub(crate) connections_level: Level,
    #[serde(default)]
    pub(crate) authorization_level: Level,
    /// Requests under the rate of an address.
    #[serde(default)]
    pub(crate) addresses: LimitedMinute,
}

/// The last minute of an identity, or of all addresses together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LimitedMinute {
    /// Requests that came under its limits.
    pub(crate) requests: u64,
    /// Those of them that were slowed or denied.
    pub(crate) limited: u64,
    pub(crate) level: Level,
}

/// A protocol that clients speak.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProtocolStatus {
    pub(crate) name: String,
    /// The addresses of its listeners.
    pub(crate) addresses: Vec<String>,
    /// Connections open now.
    pub(crate) connections: u64,
    /// Requests that were answered.
    pub(crate) requests: u64,
    /// Those that were answered with an error.
    pub(crate) errors: u64,
}

/// The clients' connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) open: u64,
    pub(crate) max: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// The addresses that have connections now.
    #[serde(default)]
    pub(crate) addresses: u64,
    /// Connections refused because their address has all that it may have.
    #[serde(default)]
    pub(crate) address_refused: u64,
    /// Requests of clients that have an address and limits.
    #[serde(default)]
    pub(crate) address_requests: u64,
    /// Requests that waited for their address's rate, or were refused for it.
    #[serde(default)]
    pub(crate) address_slowed: u64,
    /// The bytes that they keep: replies that clients have not taken, and requests that have arrived in part.
    #[serde(default)]
    pub(crate) queued_bytes: u64,
    #[serde(default)]
    pub(crate) queued_bytes_max: u64,
    /// Those open now that owe a token or shake hands over TLS.
    #[serde(default)]
    pub(crate) unauthorized: u64,
    /// Those that gave way to a newcomer before they had authorized themselves.
    #[serde(default)]
    pub(crate) gave_way: u64,
    /// Those that were closed because they sent no token in time.
    #[serde(default)]
    pub(crate) unauthorized_timeouts: u64,
    /// The addresses of the last minute whose connections were closed because they did not authorize themselves.
    #[serde(default)]
    pub(crate) unauthorized_addresses: u64,
}

/// The latency histogram of requests for IDs: from the read of their bytes until the write of their reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// The upper bounds, increasing.
    pub(crate) bounds_us: Vec<u64>,
    /// The number of requests between one bound and the next. The last is the number above all bounds.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum_us: u64,
}

impl Status {
    /// Returns the time above which a request is slow: half of the longest default wait. A request that waits no longer than
    /// that is then refused soon.
    pub(crate) fn slow_s(&self) -> f64 {
        self.sources.iter().map(|source| source.default_wait_s / 2.0).fold(0.0, f64::max)
    }
}

impl Status {
    /// Returns how many connections were closed because they did not authorize themselves.
    pub(crate) fn unauthorized(&self) -> u64 {
        let refused = self.errors.get(ErrorCode::Unauthorized.name()).copied().unwrap_or(0);
        refused + self.connections.gave_way + self.connections.unauthorized_timeouts
    }
}

impl IdentityStatus {
    /// Returns the counts since the start of which [`LimitedMinute`] has the last minute's.
    pub(crate) fn counted(&self) -> LimitedMinute {
        LimitedMinute { requests: self.requests, limited: self.denied + self.slowed, level: Level::Ok }
    }
}

impl Connections {
    /// Returns the same of all addresses.
    pub(crate) fn counted(&self) -> LimitedMinute {
        LimitedMinute { requests: self.address_requests, limited: self.address_slowed, level: Level::Ok }
    }
}

impl SourceStatus {
    /// Returns the counts since the start of which [`SourceMinute`] has the last minute's.
    pub(crate) fn counted(&self) -> SourceMinute {
        let SourceStatus { requests, refused, exhausted, .. } = *self;
        SourceMinute { requests, refused, exhausted, level: Level::Ok }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Latency { bounds_us: BOUNDS_US.to_vec(), counts: vec![0; BOUNDS_US.len() + 1], sum_us: 0 }
    }
}

impl Latency {
    /// Returns the number of requests.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the requests since an earlier moment.
    pub(crate) fn since(&self, earlier: &Latency) -> Latency {
        let counts = self.counts.iter().zip(&earlier.counts).map(|(now, then)| now.saturating_sub(*then));
        let sum_us = self.sum_us.saturating_sub(earlier.sum_us);
        Latency { bounds_us: self.bounds_us.clone(), counts: counts.collect(), sum_us }
    }

    /// Returns the time within which this share of requests was answered, in microseconds. `None` without requests.
    ///
    /// It is linear between the bounds, as in Prometheus, and the highest bound for requests above all bounds.
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
pub(crate) mod tests {
    use super::super::kind::SnowflakeStatus;
    use super::*;

    fn snowflake() -> SnowflakeStatus {
        SnowflakeStatus {
            layout: String::from("twitter"),
            worker_ids: String::from("0"),
            ids_per_second: 4_096_000,
            wait_queue_s: 0.0,
            headroom_s: 2.5,
            ahead_s: 0.0,
            max_ahead_s: 10.0,
            stands_s: 0.0,
            yet_to_begin: false,
            layout_ends: String::from("2080-07-10"),
            layout_years_left: 54.0,
        }
    }

    impl Status {
        /// Returns the first source's part of a status that has a clock, to change it.
        pub(crate) fn first_snowflake(&mut self) -> &mut SnowflakeStatus {
            match &mut self.sources[0].kind {
                KindStatus::Snowflake(snowflake) => snowflake,
                KindStatus::Ticket(_) => panic!("a ticket counter"),
            }
        }
    }

    /// Returns a healthy daemon's status.
    pub(crate) fn healthy() -> Status {
        let source = SourceStatus {
            name: String::from("orders"),
            kind: KindStatus::Snowflake(snowflake()),
            id_space: String::new(),
            numbers_in_space: [0].into(),
            ids: 10,
            requests: 1,
            refused: 0,
            exhausted: 0,
            last_minute: SourceMinute::default(),
            waits: 0,
            waiting_requests: 0,
            waiting_ids: 0,
            default_wait_s: 1.0,
            fleet_headroom_s: None,
            ceiling_wanted: false,
        };
        let mut status = Status {
            version: String::from("0.1.0"),
            instance: String::from("host-1"),
            started_unix_s: 1_800_000_000.0,
            uptime_s: 60.0,
            ready: false,
            checks: Vec::new(),
            draining: false,
            shards: 2,
            order: String::from("relaxed"),
            clock: ClockStatus { state: ClockState::Steady, by_s: 0.0, steps_back: 0, steps_forward: 0 },
            ceilings: CeilingsStatus {
                raises: 1,
                failures: 0,
                raising_s: 0.002,
                last_raise_ago_s: Some(0.5),
                under_way_s: 0.0,
                slow_write_s: 1.5,
                failing: None,
                lost: None,
            },
            fleet: None,
            peers: None,
            sources: vec![source],
            identities: Vec::new(),
            certificate: None,
            connections: Connections {
                open: 1,
                max: 10,
                accepted: 1,
                addresses: 1,
                queued_bytes_max: 100,
                ..Connections::default()
            },
            protocols: Vec::new(),
            last_minute: LastMinute::default(),
            last_reload: None,
            errors: std::collections::BTreeMap::new(),
            other_requests: 0,
            received_bytes: 0,
            sent_bytes: 0,
            latency: Latency::default(),
        };
        status.check();
        status
    }

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
    fn requests_that_waited_for_all_of_the_default_wait_look_no_longer() {
        let mut latency = Latency::default();
        latency.counts[BOUNDS_US.partition_point(|&bound_us| bound_us < 1_010_000)] = 1_000;
        assert!(latency.quantile_us(0.999).is_some_and(|us| us <= 1_100_000.0));
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
