//! The status of a daemon, in one plain struct. The metrics, the findings, `/status`, the page and
//! `snowbank status` are all made from this struct.

mod latency;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use self::latency::{BOUNDS_US, Latency};
use super::counts::{AccessCounts, IdentityCounts, ProtocolCounts, SourceCounts, TrafficCounts};
use super::finding::{Finding, seconds};
use super::words::Fact;
use crate::config::Grouped;

/// The status of a daemon at one moment. Counters count from the daemon's start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) instance: String,
    pub(crate) started_unix_s: f64,
    /// True if the previous run did not mark its record as clean. `None`: the state has no record
    /// of a run.
    pub(crate) previous_run_unclean: Option<bool>,
    pub(crate) uptime_s: f64,
    /// True if no finding makes the daemon unready.
    pub(crate) ready: bool,
    /// The effect of the worst finding, in a few words.
    pub(crate) headline: String,
    /// The findings for the operator, the worst first.
    pub(crate) findings: Vec<Finding>,
    /// The status in words, without the findings and the sources.
    pub(crate) facts: Vec<Fact>,
    /// True while the daemon stops.
    pub(crate) draining: bool,
    pub(crate) shards: usize,
    pub(crate) order: String,
    pub(crate) clock: ClockStatus,
    pub(crate) ceilings: CeilingsStatus,
    /// The daemon's fleet. `None`: the daemon belongs to no fleet.
    pub(crate) fleet: Option<FleetStatus>,
    /// The certificate of TLS listeners. `None`: no listener has one.
    pub(crate) certificate: Option<CertificateStatus>,
    pub(crate) sources: Vec<SourceStatus>,
    /// The configured identities, in the order of their names.
    pub(crate) identities: Vec<IdentityStatus>,
    pub(crate) connections: Connections,
    /// The protocols that have listeners.
    pub(crate) protocols: Vec<ProtocolStatus>,
    /// The addresses of the admin listeners.
    pub(crate) admin_addresses: Vec<String>,
    pub(crate) last_minute: LastMinute,
    /// `None`: there was no reload since the start.
    pub(crate) last_reload: Option<LastReload>,
    /// The number of errors with each code. Every code has an entry.
    pub(crate) errors: BTreeMap<String, u64>,
    /// The number of connections that the daemon closed by itself, by reason.
    pub(crate) closed: BTreeMap<String, u64>,
    /// Requests that need no IDs and were answered without an error.
    pub(crate) other_requests: u64,
    #[serde(flatten)]
    pub(crate) traffic: TrafficCounts,
    pub(crate) latency: Latency,
}

/// The machine's wall clock, as the daemon's keeper last saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClockStatus {
    pub(crate) state: ClockState,
    /// By how much the wall clock is behind, or stepped forward; 0 if it is steady.
    pub(crate) by_s: f64,
    /// The observed steps of the wall clock, by direction.
    pub(crate) steps_back: u64,
    pub(crate) steps_forward: u64,
}

/// What the keeper found about the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClockState {
    /// The wall clock runs as expected.
    #[default]
    Steady,
    /// The wall clock stepped back and has not caught up, or it stands still.
    Behind,
    /// The wall clock stepped far forward. The ID clock follows the wall clock once the step has
    /// lasted `clock.step_hold`.
    Held,
}

/// The raises of the ceilings on this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CeilingsStatus {
    /// The number of durable raises. One raise may be for several sources.
    pub(crate) raises: u64,
    pub(crate) failures: u64,
    /// The total time of the durable raises.
    pub(crate) raising_s: f64,
    /// The time since the last raise became durable. `None`: no raise became durable since the
    /// start.
    pub(crate) last_raise_ago_s: Option<f64>,
    /// The time that the write in flight has taken so far. 0 if no write is in flight.
    pub(crate) in_flight_s: f64,
    /// The longest raise of the last minute. A raise in flight counts, too.
    pub(crate) slowest_raise_s: f64,
    /// The time that a raise usually takes: the shorter of the last two raises, if both were in the
    /// last minute. Otherwise 0.
    pub(crate) usual_raise_s: f64,
    /// The time for which IDs last after a raise.
    pub(crate) horizon_s: f64,
    /// The reason why the last raise failed. `None`: it did not, or no source needs a raise.
    pub(crate) failing: Option<String>,
    /// The reason why another process may hold a worker ID, a shared counter or the state. `None`:
    /// nothing is lost.
    pub(crate) lost: Option<String>,
}

/// The status of the certificate of TLS listeners.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CertificateStatus {
    /// When the certificate expires.
    pub(crate) ends_unix_s: f64,
    /// The warning for the operator, if clients refuse the certificate or soon will.
    pub(crate) warning: Option<String>,
}

/// The status of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceStatus {
    /// The source's index in the daemon.
    #[serde(skip)]
    pub(crate) index: usize,
    pub(crate) name: String,
    /// The source's status in words, one fact on each line.
    pub(crate) facts: Vec<String>,
    #[serde(flatten)]
    pub(crate) kind: KindStatus,
    /// The source's ID space. Two daemons must not have the same number in one ID space.
    pub(crate) id_space: String,
    /// The numbers that the worker IDs have in the ID space, for the metrics.
    #[serde(skip)]
    pub(crate) numbers_in_space: Arc<[u64]>,
    #[serde(flatten)]
    pub(crate) counts: SourceCounts,
    pub(crate) last_minute: SourceMinute,
    /// The number of requests in the wait queue, and of the IDs that they wait for.
    pub(crate) waiting_requests: u64,
    pub(crate) waiting_ids: u64,
    pub(crate) default_wait_s: f64,
    /// The time for which IDs last without the coordinator. `None`: the source belongs to no fleet.
    pub(crate) fleet_headroom_s: Option<f64>,
    /// True once a claim has met the ceiling, until the next raise.
    pub(crate) ceiling_wanted: bool,
    /// What the source waits for before it begins. `None`: it has begun.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) awaits: Option<String>,
}

/// The kind of a source, with the part of the status that only this kind has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum KindStatus {
    Snowflake(SnowflakeStatus),
    Ticket(TicketStatus),
}

/// The status of a source whose layout follows the clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SnowflakeStatus {
    pub(crate) layout: String,
    pub(crate) worker_ids: String,
    /// The most IDs per second that the source's layout and worker IDs allow.
    pub(crate) ids_per_second: u64,
    /// The time that it takes to make the IDs for which requests wait: at the full rate, or at half
    /// of it during a catch-up.
    pub(crate) wait_queue_s: f64,
    /// The time for which IDs last without a raise: the ceiling's time minus the ID clock's, but at
    /// least 0.
    pub(crate) headroom_s: f64,
    /// How far the ID clock is ahead of the wall clock, and how far it may be.
    pub(crate) ahead_s: f64,
    pub(crate) max_ahead_s: f64,
    /// The time until the clock allows IDs again.
    pub(crate) stands_s: f64,
    /// True for a source without a state while the clock has not reached the source's first tick.
    pub(crate) yet_to_begin: bool,
    pub(crate) layout_ends: String,
    pub(crate) layout_years_left: f64,
}

/// The status of a ticket counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TicketStatus {
    pub(crate) increment: u64,
    pub(crate) offset: u64,
    /// The last number that was handed out, or the last before the start. `None` while the source
    /// hands out nothing. In JSON it is text, because JavaScript's integers end at 2^53.
    #[serde(with = "text")]
    pub(crate) last: Option<u64>,
    /// The numbers that can be handed out without a raise: the rest of the reservation or, for a
    /// shared counter, the rest of its ranges.
    pub(crate) reserved: u64,
    /// True if the counter is at the fleet's coordinator, where other daemons may use it too.
    pub(crate) shared: bool,
    /// True once another process, or another copy of the machine, may hand out the same numbers.
    pub(crate) restored: bool,
    /// The numbers that are left until the counter ends, and their share of all its numbers.
    pub(crate) left: u64,
    pub(crate) left_share: f64,
}

/// The last reload of the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastReload {
    pub(crate) at_unix_s: f64,
    /// The reasons why the reload was refused. `None`: the reload succeeded.
    pub(crate) refused: Option<String>,
}

/// The last minute of a source, or its time since the start if that is shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceMinute {
    pub(crate) requests: u64,
    /// The number of refused requests, and how many of them were refused with `exhausted`.
    pub(crate) refused: u64,
    pub(crate) exhausted: u64,
    /// The share of requests that were refused with `exhausted` in the last minute, or the share in the last ten
    /// seconds if that is lower. 0 if few requests were.
    pub(crate) exhausted_share: f64,
}

/// The last minute of all sources, or the time since the start if that is shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastMinute {
    /// The time that these figures cover: a minute and up to five seconds.
    pub(crate) over_s: f64,
    /// The time within which 99 % of requests were answered. `None`: there were no requests.
    pub(crate) p99_us: Option<f64>,
    /// The share of requests that took longer than half of the default wait, computed like
    /// [`SourceMinute::exhausted_share`].
    pub(crate) slow_share: f64,
    /// Connections that were refused in the last ten seconds.
    pub(crate) connections_refused: u64,
    /// The number of all answers, and how many of them were errors.
    pub(crate) answers: u64,
    pub(crate) errors: u64,
    /// Requests and connections that were refused because clients did not authorize themselves.
    pub(crate) unauthorized: u64,
    /// The part of `unauthorized` in the last ten seconds.
    pub(crate) unauthorized_lately: u64,
}

/// The status of an identity. Its counts are kept as long as reloads keep its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IdentityStatus {
    pub(crate) name: String,
    /// The IDs per second that the identity may draw. `None`: no rate is set.
    pub(crate) rate: Option<u32>,
    /// The number of connections that have the identity now.
    pub(crate) connections: u64,
    /// The number of IDs that the identity drew, by source.
    pub(crate) ids: BTreeMap<String, u64>,
    /// Requests to which the identity's limits apply.
    pub(crate) requests: u64,
    #[serde(flatten)]
    pub(crate) counts: IdentityCounts,
    pub(crate) last_minute: LimitedMinute,
}

/// The last minute of an identity, or its time since the start if that is shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LimitedMinute {
    /// Requests to which the identity's limits apply.
    pub(crate) requests: u64,
    /// The number of requests that were slowed or denied.
    pub(crate) limited: u64,
    /// The share of limited requests, computed like [`SourceMinute::exhausted_share`].
    pub(crate) limited_share: f64,
}

/// The status of a protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProtocolStatus {
    pub(crate) name: String,
    /// The addresses of the protocol's listeners.
    pub(crate) addresses: Vec<String>,
    pub(crate) connections: u64,
    #[serde(flatten)]
    pub(crate) counts: ProtocolCounts,
}

/// The connections of all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) open: u64,
    pub(crate) max: u64,
    /// The configured `max_connections`, if open files allow fewer.
    pub(crate) wanted: Option<u64>,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// The bytes of replies that clients have not read, and of requests that are not decoded yet.
    pub(crate) queued_bytes: u64,
    pub(crate) queued_bytes_max: u64,
    /// Open connections that owe a token or are in a TLS handshake.
    pub(crate) unauthorized: u64,
    /// Connections that were evicted for newcomers, because their clients had not authorized
    /// themselves.
    pub(crate) evicted: u64,
    #[serde(flatten)]
    pub(crate) access: AccessCounts,
    /// The number of addresses whose clients did not authorize themselves in the last minute.
    pub(crate) unauthorized_addresses: u64,
    /// Connections in Redis's protocol that sent INCR or INCRBY, by the form of the first reply.
    pub(crate) incr_integers: u64,
    pub(crate) incr_strings: u64,
}

/// The status of a fleet: its ceilings and worker IDs at the coordinator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FleetStatus {
    /// The number of durable raises at the coordinator, and of ranges taken from it.
    pub(crate) raises: u64,
    /// The time for which every source can hand out IDs without the coordinator.
    pub(crate) left_s: f64,
    /// The reason why the coordinator did not answer the last time. `None`: the coordinator
    /// answered.
    pub(crate) silent: Option<String>,
    /// The reason why the daemon waits for a worker ID. `None`: the daemon has its worker IDs.
    pub(crate) waits_for: Option<String>,
    /// The counts of worker IDs, one entry for each source that was counted.
    pub(crate) pools: Vec<PoolStatus>,
    /// When the certificate that the daemon shows to the coordinator expires, in Unix time. `None`:
    /// the daemon has no such certificate.
    pub(crate) certificate_ends_unix_s: Option<i64>,
}

/// The worker IDs that the coordinator may assign to a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolStatus {
    pub(crate) source: String,
    /// The number of worker IDs that the source may have.
    pub(crate) worker_ids: u64,
    /// The number of these worker IDs that daemons hold.
    pub(crate) held: u64,
}

impl Status {
    /// Fills in the findings and the facts.
    pub(crate) fn judge(&mut self) {
        self.find();
        self.describe();
    }
}

impl SourceStatus {
    /// Returns the status that only a source with a layout has. `None`: the source is a ticket
    /// counter.
    pub(crate) fn snowflake(&self) -> Option<&SnowflakeStatus> {
        match &self.kind {
            KindStatus::Snowflake(snowflake) => Some(snowflake),
            KindStatus::Ticket(_) => None,
        }
    }

    /// Returns the status that only a ticket counter has. `None`: the source has a layout.
    pub(crate) fn ticket(&self) -> Option<&TicketStatus> {
        match &self.kind {
            KindStatus::Ticket(ticket) => Some(ticket),
            KindStatus::Snowflake(_) => None,
        }
    }

    /// Returns in words how long IDs last, or how many numbers are left, without a raise.
    pub(super) fn left(&self) -> String {
        match &self.kind {
            KindStatus::Snowflake(snowflake) => seconds(snowflake.headroom_s),
            KindStatus::Ticket(ticket) => format!("{} numbers", Grouped(ticket.reserved)),
        }
    }

    /// Returns the time until the clock allows IDs again. It is 0 for a ticket counter, which does
    /// not follow a clock.
    pub(crate) fn stands_s(&self) -> f64 {
        self.snowflake().map_or(0.0, |snowflake| snowflake.stands_s)
    }

    /// Returns true if no IDs are left below the ceiling.
    pub(crate) fn is_ceiling_reached(&self) -> bool {
        match &self.kind {
            KindStatus::Snowflake(snowflake) => snowflake.headroom_s <= 0.0,
            KindStatus::Ticket(ticket) => ticket.reserved == 0,
        }
    }
}

impl IdentityStatus {
    /// Returns the counts since the start, in the form of [`LimitedMinute`].
    pub(crate) fn counted(&self) -> LimitedMinute {
        let limited = self.counts.denied + self.counts.slowed;
        LimitedMinute { requests: self.requests, limited, limited_share: 0.0 }
    }
}

#[cfg(test)]
pub(crate) mod tests;

/// A number as text.
mod text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub(super) fn serialize<S: Serializer>(number: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        number.map(|number| number.to_string()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}
