//! The status of a daemon, in one plain struct. The metrics, the findings, `/status`, the page and
//! `snowbank status` all show this struct. The metrics also have the process's figures, and the
//! page also has the history.

mod latency;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use self::latency::{BOUNDS_US, Latency};
use super::finding::{Finding, seconds};
use super::source_counts::SourceCounts;
use super::words::Fact;
use crate::config::Grouped;

/// The status of a daemon at one moment. Counters count from the daemon's start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) instance: String,
    pub(crate) started_unix_s: f64,
    /// True if the previous run did not mark its record as clean. `None`: the state has no record.
    pub(crate) previous_run_unclean: Option<bool>,
    pub(crate) uptime_s: f64,
    /// True if requests are served: no finding makes the daemon unready.
    pub(crate) ready: bool,
    /// The effect of the worst finding, in a few words.
    pub(crate) headline: String,
    /// The findings for the operator, the worst first. Empty if all is as it should be.
    pub(crate) findings: Vec<Finding>,
    /// The rest of the status in words.
    pub(crate) facts: Vec<Fact>,
    /// True while the daemon stops.
    pub(crate) draining: bool,
    pub(crate) shards: usize,
    pub(crate) order: String,
    pub(crate) clock: ClockStatus,
    pub(crate) ceilings: CeilingsStatus,
    /// The fleet's coordinator. `None`: the daemon belongs to no fleet.
    pub(crate) fleet: Option<FleetStatus>,
    /// The certificate of TLS listeners. `None`: no listener has one.
    pub(crate) certificate: Option<CertificateStatus>,
    pub(crate) sources: Vec<SourceStatus>,
    /// The identities that are configured, by name.
    pub(crate) identities: Vec<IdentityStatus>,
    pub(crate) connections: Connections,
    /// The protocols that have listeners.
    pub(crate) protocols: Vec<ProtocolStatus>,
    pub(crate) last_minute: LastMinute,
    /// `None`: the configuration has not changed since the start.
    pub(crate) last_reload: Option<LastReload>,
    /// The number of errors by code. Contains every code.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Requests that need no IDs, answered without an error.
    pub(crate) other_requests: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) latency: Latency,
}

/// The machine's wall clock, as the daemon's keeper last saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClockStatus {
    pub(crate) state: ClockState,
    /// The difference from ID time, if the wall clock is behind or held.
    pub(crate) by_s: f64,
    /// The steps observed, each of at least a tenth of a second.
    pub(crate) steps_back: u64,
    pub(crate) steps_forward: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClockState {
    #[default]
    Steady,
    /// The wall clock is behind the time of IDs already handed out.
    Behind,
    /// The wall clock stepped far forward, and is not followed until the step has lasted
    /// `clock.step_hold`.
    Held,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CeilingsStatus {
    /// The number of durable raises. One raise may be for several sources.
    pub(crate) raises: u64,
    pub(crate) failures: u64,
    /// The total time of all raises.
    pub(crate) raising_s: f64,
    /// The time since the last raise became durable. `None`: none since the start.
    pub(crate) last_raise_ago_s: Option<f64>,
    /// The time that the write in flight has taken so far. 0 without one.
    pub(crate) in_flight_s: f64,
    /// The longest raise of the last minute, the one in flight included.
    pub(crate) slowest_raise_s: f64,
    /// The shorter of the last two raises, if they were in the last minute: what a raise usually
    /// takes.
    pub(crate) usual_raise_s: f64,
    /// The time after which a raise is slow: a third of `horizon_s`. A healthy disk takes a
    /// hundredth of `horizon_s`.
    pub(crate) slow_raise_s: f64,
    /// The time that IDs last with each raise. Raises that take longer than half of this time make
    /// requests wait.
    pub(crate) horizon_s: f64,
    /// The reason why the last raise failed. `None`: it did not fail.
    pub(crate) failing: Option<String>,
    /// The reason why another process may have the worker IDs or the state. `None`: this daemon
    /// holds them.
    pub(crate) lost: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CertificateStatus {
    /// The end of the certificate's validity.
    pub(crate) ends_unix_s: f64,
    /// The warning for the operator, if the certificate ends soon.
    pub(crate) warning: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceStatus {
    pub(crate) name: String,
    /// The rest of the source's status in words, a line each.
    pub(crate) facts: Vec<String>,
    #[serde(flatten)]
    pub(crate) kind: KindStatus,
    /// The ID space, in which two daemons must not have a number in common.
    pub(crate) id_space: String,
    /// The numbers of the worker IDs in that space, for the metrics.
    #[serde(skip)]
    pub(crate) numbers_in_space: Arc<[u64]>,
    #[serde(flatten)]
    pub(crate) counts: SourceCounts,
    pub(crate) last_minute: SourceMinute,
    /// The requests that wait now, and the IDs that they wait for.
    pub(crate) waiting_requests: u64,
    pub(crate) waiting_ids: u64,
    pub(crate) default_wait_s: f64,
    /// The time that IDs last without the coordinator. `None`: the source belongs to no fleet.
    pub(crate) fleet_headroom_s: Option<f64>,
    /// True while a request waits for the ceiling.
    pub(crate) ceiling_wanted: bool,
}

/// The kind of a source, with the status that only that kind has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum KindStatus {
    Snowflake(SnowflakeStatus),
    Ticket(TicketStatus),
}

/// The status of a layout that follows the clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SnowflakeStatus {
    pub(crate) layout: String,
    pub(crate) worker_ids: String,
    /// The full rate of its layout and worker IDs.
    pub(crate) ids_per_second: u64,
    /// The time that the waiting IDs take at the full rate.
    pub(crate) wait_queue_s: f64,
    /// The ceiling's time minus the ID clock's: the time for which IDs last without a raise. At
    /// least 0.
    pub(crate) headroom_s: f64,
    /// The lead of the ID clock over the wall clock, and the most allowed.
    pub(crate) ahead_s: f64,
    pub(crate) max_ahead_s: f64,
    /// The time until the clock allows IDs again.
    pub(crate) stands_s: f64,
    /// True while the clock has not reached the first tick of a source without a state.
    pub(crate) yet_to_begin: bool,
    pub(crate) layout_ends: String,
    pub(crate) layout_years_left: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TicketStatus {
    pub(crate) increment: u64,
    pub(crate) offset: u64,
    /// The numbers that last without a raise: the rest of the reservation, or of the ranges of a
    /// shared counter.
    pub(crate) reserved: u64,
    /// True if the counter is at the fleet's coordinator, where other daemons may count with it.
    pub(crate) shared: bool,
    /// True once another process, or another copy of the machine, may hand out the same numbers.
    pub(crate) restored: bool,
    /// The numbers that are left until the end, and their share of all.
    pub(crate) left: u64,
    pub(crate) left_share: f64,
}

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
    /// The share of requests that were refused in the last minute, or in the last ten seconds if
    /// that is lower. 0 if few were refused.
    pub(crate) refused_share: f64,
}

/// The last minute of all sources, or the time since the start if that is shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastMinute {
    /// The exact length: a minute and up to five seconds.
    pub(crate) over_s: f64,
    /// The time within which 99 % of requests were answered. `None`: there were no requests.
    pub(crate) p99_us: Option<f64>,
    /// The share of requests that took longer than half of the default wait, formed like
    /// [`SourceMinute::refused_share`].
    pub(crate) slow_share: f64,
    /// Connections that were refused in the last ten seconds.
    pub(crate) connections_refused: u64,
    /// All answers, with IDs and without, and those with an error.
    pub(crate) answers: u64,
    pub(crate) errors: u64,
    /// Requests and connections that were refused because clients did not authorize themselves.
    pub(crate) unauthorized: u64,
    /// The number of them in the last ten seconds.
    pub(crate) unauthorized_lately: u64,
}

/// A client with a name of its own. Counts are kept as long as reloads keep the name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IdentityStatus {
    pub(crate) name: String,
    /// The IDs per second that it may draw. `None`: no rate is set.
    pub(crate) rate: Option<u32>,
    /// The connections that have the identity now, and all that have had it so far.
    pub(crate) connections: u64,
    pub(crate) connected: u64,
    /// The IDs that it drew, by source.
    pub(crate) ids: BTreeMap<String, u64>,
    /// Requests that came under its limits.
    pub(crate) requests: u64,
    /// Requests to sources that it may not draw from.
    pub(crate) denied: u64,
    /// Requests that waited for its rate, or were refused for it.
    pub(crate) slowed: u64,
    pub(crate) last_minute: LimitedMinute,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LimitedMinute {
    /// Requests that came under the identity's limits.
    pub(crate) requests: u64,
    /// The number of them that were slowed or denied.
    pub(crate) limited: u64,
    /// The limited requests as a share, formed like a source's `refused_share`.
    pub(crate) limited_share: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProtocolStatus {
    pub(crate) name: String,
    /// The addresses of the protocol's listeners.
    pub(crate) addresses: Vec<String>,
    pub(crate) connections: u64,
    /// Requests that were answered.
    pub(crate) requests: u64,
    /// Requests that were answered with an error.
    pub(crate) errors: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) open: u64,
    pub(crate) max: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// The bytes that connections keep: replies that clients have not taken, and requests that have
    /// arrived in part.
    pub(crate) queued_bytes: u64,
    pub(crate) queued_bytes_max: u64,
    /// Open connections that owe a token or are in a TLS handshake.
    pub(crate) unauthorized: u64,
    /// Connections that were evicted by a newcomer before they had authorized themselves.
    pub(crate) evicted: u64,
    /// Requests and connections refused because of a wrong token or none, and TLS handshakes that
    /// failed.
    pub(crate) unauthorized_refusals: u64,
    /// Connections that were closed because they sent no token in time.
    pub(crate) unauthorized_timeouts: u64,
    /// The number of addresses whose clients did not authorize themselves in the last minute.
    pub(crate) unauthorized_addresses: u64,
    /// Connections of Redis' protocol that sent INCR, by the form of their first reply.
    pub(crate) incr_integers: u64,
    pub(crate) incr_strings: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FleetStatus {
    /// The number of durable raises at the coordinator.
    pub(crate) raises: u64,
    /// The time for which every source can hand out IDs without the coordinator.
    pub(crate) left_s: f64,
    /// The reason why the coordinator did not answer. `None`: it answered.
    pub(crate) silent: Option<String>,
    /// The reason why the daemon has no worker ID. `None`: it has them.
    pub(crate) waits_for: Option<String>,
    /// The worker IDs in use and those left, as they were last counted.
    pub(crate) pools: Vec<PoolStatus>,
    /// The end of the daemon's certificate for the coordinator, in Unix time. `None`: it has none.
    pub(crate) certificate_ends_unix_s: Option<i64>,
}

/// The worker IDs that the coordinator may assign to a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolStatus {
    pub(crate) source: String,
    /// The number of worker IDs that the source may have.
    pub(crate) numbers: u64,
    /// The number of them that daemons hold.
    pub(crate) held: u64,
}

impl Status {
    /// Finds what is not as it should be, and puts all into words.
    pub(crate) fn judge(&mut self) {
        self.find();
        self.describe();
    }

    /// Returns the time above which a request is slow: half of the longest default wait. Beyond
    /// that, requests with the default wait are refused soon.
    pub(crate) fn slow_s(&self) -> f64 {
        self.sources.iter().map(|source| source.default_wait_s / 2.0).fold(0.0, f64::max)
    }
}

impl SourceStatus {
    /// Returns the status of the source's layout; `None` for a ticket counter.
    pub(crate) fn snowflake(&self) -> Option<&SnowflakeStatus> {
        match &self.kind {
            KindStatus::Snowflake(snowflake) => Some(snowflake),
            KindStatus::Ticket(_) => None,
        }
    }

    /// Returns the status of the source's ticket counter; `None` for a layout.
    pub(crate) fn ticket(&self) -> Option<&TicketStatus> {
        match &self.kind {
            KindStatus::Ticket(ticket) => Some(ticket),
            KindStatus::Snowflake(_) => None,
        }
    }

    /// Returns how long IDs last without a raise, in words.
    pub(super) fn left(&self) -> String {
        match &self.kind {
            KindStatus::Snowflake(snowflake) => seconds(snowflake.headroom_s),
            KindStatus::Ticket(ticket) => format!("{} numbers", Grouped(ticket.reserved)),
        }
    }

    /// Returns the time until the clock allows IDs again. The clock never holds a ticket counter
    /// up.
    pub(crate) fn stands_s(&self) -> f64 {
        self.snowflake().map_or(0.0, |snowflake| snowflake.stands_s)
    }

    /// Returns true if nothing is left below the ceiling.
    pub(crate) fn is_ceiling_reached(&self) -> bool {
        match &self.kind {
            KindStatus::Snowflake(snowflake) => snowflake.headroom_s <= 0.0,
            KindStatus::Ticket(ticket) => ticket.reserved == 0,
        }
    }
}

impl CeilingsStatus {
    /// Returns whether requests wait for storage: a ceiling is reached before the next is durable.
    pub(super) fn makes_wait(&self) -> bool {
        2.0 * self.usual_raise_s > self.horizon_s
    }
}

impl IdentityStatus {
    /// Returns the counts since the start, in the form of [`LimitedMinute`].
    pub(crate) fn counted(&self) -> LimitedMinute {
        LimitedMinute { requests: self.requests, limited: self.denied + self.slowed, limited_share: 0.0 }
    }
}

#[cfg(test)]
pub(crate) mod tests;
