//! Gathers the daemon's status from counters, sources, the keeper's last poll and the acceptors.
//! Any thread may gather the status, because gathering holds each lock only for a moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;

use crate::os_clock;

use super::metrics::Metrics;
use crate::admin::{
    CeilingsStatus, CertificateStatus, ClockState, ClockStatus, Connections, FleetStatus, IdentityStatus,
    KindStatus, Latency, LimitedMinute, PoolStatus, ProtocolStatus, SnowflakeStatus, SourceMinute,
    SourceStatus, Status, TicketStatus,
};
use crate::config::{Limits, Protocol};
use crate::counter::Counter;
use crate::frontends::IdForm;
use crate::server::common::Common;
use crate::server::net::pending::Occupancy;
use crate::server::net::rejections;
use crate::server::shared::live_config::{LiveConfig, Stage, Supply};
use crate::tls::ServerCertificate;
use snowbank_core::clock::{Now, Observed};
use snowbank_core::source::Source;
use snowbank_fleet::{Counted, rules};
use snowbank_id::layout::Numbering as LayoutNumbering;
use snowbank_id::numbering::{Numbering, TicketCounter};
use snowbank_wire::ErrorCode;

const YEAR: Duration = Duration::from_secs(31_557_600);

impl Common {
    /// Returns the daemon's current status.
    pub(crate) fn status(&self) -> Status {
        self.judge(self.measure())
    }

    /// Adds the current status to the history of the last minute and of the last hour, and returns
    /// this status. The observer calls this at each of its readings.
    pub(crate) fn observe(&self) -> Status {
        let status = self.measure();
        self.metrics.history().observe(&status);
        self.metrics.recent().observe(&status);
        self.judge(status)
    }

    /// Adds the last minute and the findings to a measured status.
    fn judge(&self, mut status: Status) -> Status {
        self.metrics.recent().fill(&mut status);
        status.judge();
        status
    }

    /// Reads counters, sources and clocks.
    fn measure(&self) -> Status {
        let metrics = &self.metrics;
        // The lock is released at once, because a reload needs the lock to replace the
        // configuration.
        let live_config = Arc::clone(&self.live_config.borrow());
        let limits = &live_config.limits;
        let now = self.wall.believe(os_clock::read());
        let mut latency = Latency::default();
        metrics.shards.iter().for_each(|shard| shard.latency.add_to(&mut latency));
        let sources = live_config.in_order();
        let sources: Vec<SourceStatus> =
            sources.map(|(index, supply)| self.status_of(index, supply, limits, now)).collect();
        let started = metrics.started;
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: metrics.instance.to_string(),
            started_unix_s: started.wall.0 as f64 / 1e6,
            previous_run_unclean: metrics.previous_run_unclean.get().copied(),
            uptime_s: now.boot.since(started.boot).as_secs_f64(),
            draining: metrics.draining.load(Ordering::Relaxed),
            shards: metrics.shards.len(),
            order: self.order.name().to_owned(),
            clock: clock_status(metrics),
            ceilings: ceilings_status(metrics, now),
            fleet: fleet_status(metrics, &live_config, &sources),
            certificate: self.tls.as_ref().map(|acceptor| certificate_status(&acceptor.identity(), now)),
            sources,
            identities: identities_status(&live_config),
            connections: self.connections_status(&live_config),
            protocols: metrics
                .listeners
                .iter()
                .map(|(protocol, addresses)| protocol_status(metrics, *protocol, addresses))
                .collect(),
            admin_addresses: metrics.admin.clone(),
            last_reload: metrics.last_reload().clone(),
            closed: metrics.closed(),
            errors: ErrorCode::ALL.map(|code| (code.name().to_owned(), self.errors_of(code))).into(),
            other_requests: metrics.sum(|shard| shard.others.get()),
            traffic: metrics.shards.iter().map(|shard| &shard.traffic).sum(),
            latency,
            // `judge` fills in the rest.
            ..Status::default()
        }
    }

    fn connections_status(&self, live_config: &LiveConfig) -> Connections {
        let limits = &live_config.limits;
        let metrics = &self.metrics;
        let Occupancy { inside, evicted, .. } = self.pending.occupancy();
        Connections {
            open: metrics.open.iter().map(|open| open.load(Ordering::Relaxed) as u64).sum(),
            max: limits.max_connections as u64,
            wanted: live_config.connections_wanted.map(|wanted| wanted as u64),
            accepted: metrics.accepted.iter().map(Counter::get).sum(),
            refused: metrics.refused.get(),
            queued_bytes: metrics.queued_bytes.load(Ordering::Relaxed) as u64,
            queued_bytes_max: limits.max_queued_bytes as u64,
            unauthorized: inside as u64,
            evicted,
            access: metrics.shards.iter().map(|shard| &shard.access).sum(),
            unauthorized_addresses: rejections::unauthorized_addresses() as u64,
            incr_integers: metrics.incr_connections.get(IdForm::Integer),
            incr_strings: metrics.incr_connections.get(IdForm::String),
        }
    }

    fn errors_of(&self, code: ErrorCode) -> u64 {
        // `TooBusy` is the only error that acceptors send.
        let unaccepted = if code == ErrorCode::TooBusy { self.metrics.refused.get() } else { 0 };
        self.metrics.sum(|shard| shard.errors[code as usize - 1].get()) + unaccepted
    }

    /// Returns the time for which a source can hand out IDs without the coordinator. `None`: the
    /// source belongs to no fleet.
    fn fleet_headroom_s(&self, index: usize, source: &Source, now: Now) -> Option<f64> {
        // A sealed source has no grant yet, or hands out nothing more.
        source.cursor()?;
        if source.kind().takes_ranges() {
            let seen = self.metrics.keeper();
            return seen.polled.ranges_last.get(index).copied().flatten().map(|last| last.as_secs_f64());
        }
        let ceiling = *self.metrics.keeper().polled.fleet_ceilings.get(index)?;
        let left = rules::left(source.numbering(), ceiling, source.id_time(now));
        Some(left.as_secs_f64()).filter(|_| source.kind().follows_the_clock())
    }

    fn status_of(&self, index: usize, supply: &Supply, limits: &Limits, now: Now) -> SourceStatus {
        let source = &supply.source;
        let (kind, id_space) = match source.numbering() {
            Numbering::Snowflake(numbering) => (
                KindStatus::Snowflake(snowflake_status(source, numbering, now)),
                numbering.layout().space().to_string(),
            ),
            Numbering::Ticket(counter) => {
                (KindStatus::Ticket(ticket_status(source, counter)), counter.to_string())
            }
        };
        SourceStatus {
            index,
            name: supply.name().to_owned(),
            facts: Vec::new(),
            kind,
            id_space,
            numbers_in_space: Arc::clone(&supply.numbers_in_space),
            counts: self.metrics.shards.iter().map(|shard| &shard.sources[index]).sum(),
            last_minute: SourceMinute::default(),
            waiting_requests: source.wait_queue().waiting_requests(),
            waiting_ids: source.wait_queue().admitted_ids(),
            default_wait_s: limits.default_wait_for(source.tick()).as_secs_f64(),
            fleet_headroom_s: self.fleet_headroom_s(index, source, now),
            ceiling_wanted: source.grant().is_wanted(),
            awaits: match &supply.stage {
                Stage::Granted | Stage::Removed => None,
                Stage::Waits { reason, .. } => Some(format!("waits for a worker ID: {reason}")),
                Stage::UnderWay => Some(String::from(
                    "waits until storage has made its first ceiling durable, or until the coordinator answers",
                )),
            },
        }
    }
}

fn snowflake_status(source: &Source, numbering: &LayoutNumbering, now: Now) -> SnowflakeStatus {
    let layout = numbering.layout();
    let id_time = source.id_time(now);
    let ahead = Duration::from_micros(id_time.0.saturating_sub(now.wall.0).max(0).unsigned_abs());
    let ceiling_time = numbering.start_of(numbering.tick_of(source.grant().ceiling()));
    let waiting_ids = source.wait_queue().admitted_ids() as f64;
    let queue_s = waiting_ids * source.tick().as_secs_f64() / numbering.ids_per_tick() as f64;
    let left_us = layout.end().0.saturating_sub(now.wall.0).max(0);
    SnowflakeStatus {
        layout: layout.to_string(),
        worker_ids: numbering.workers().to_string(),
        ids_per_second: layout.ids_per_second().saturating_mul(numbering.workers().len() as u64),
        wait_queue_s: if ahead.is_zero() { queue_s } else { 2.0 * queue_s },
        headroom_s: ceiling_time.0.saturating_sub(id_time.0).max(0) as f64 / 1e6,
        ahead_s: ahead.as_secs_f64(),
        max_ahead_s: source.rules().max_ahead.as_secs_f64(),
        stands_s: source.unavailable_for(now).as_secs_f64(),
        yet_to_begin: source.is_yet_to_begin(now),
        layout_ends: layout.end().date(),
        layout_years_left: left_us as f64 / 1e6 / YEAR.as_secs_f64(),
    }
}

fn ticket_status(source: &Source, counter: &TicketCounter) -> TicketStatus {
    let left = source.left_of_counter();
    TicketStatus {
        increment: counter.increment(),
        offset: counter.offset(),
        last: source.last_number(),
        reserved: source.in_ranges().total(),
        shared: source.kind().takes_ranges(),
        restored: source.grant().is_lost(),
        left,
        left_share: left as f64 / source.numbering().end().0 as f64,
    }
}

fn identities_status(live_config: &LiveConfig) -> Vec<IdentityStatus> {
    let mut identities = Vec::new();
    for identity in live_config.facts.access.identities.values() {
        let usage = &identity.usage;
        let ids = live_config.in_order();
        let ids = ids.map(|(index, supply)| (supply.name().to_owned(), usage.ids(index)));
        identities.push(IdentityStatus {
            name: identity.name.clone(),
            rate: identity.rate,
            connections: usage.connections.load(Ordering::Relaxed),
            ids: ids.filter(|(_, ids)| *ids > 0).collect(),
            requests: usage.asked.get(),
            counts: [&usage.counters].into_iter().sum(),
            last_minute: LimitedMinute::default(),
        });
    }
    identities
}

fn protocol_status(metrics: &Metrics, protocol: Protocol, addresses: &[String]) -> ProtocolStatus {
    let index = protocol as usize;
    ProtocolStatus {
        name: protocol.name().to_owned(),
        addresses: addresses.to_vec(),
        connections: metrics.open_by_protocol[index].load(Ordering::Relaxed) as u64,
        counts: metrics.shards.iter().map(|shard| &shard.protocols[index]).sum(),
    }
}

fn clock_status(metrics: &Metrics) -> ClockStatus {
    let seen = metrics.keeper();
    let (state, by) = match seen.polled.clock {
        Observed::Steady | Observed::Believed(_) => (ClockState::Steady, Duration::ZERO),
        Observed::Behind(by) => (ClockState::Behind, by),
        Observed::Held(by) => (ClockState::Held, by),
    };
    ClockStatus {
        state,
        by_s: by.as_secs_f64(),
        steps_back: seen.steps_back,
        steps_forward: seen.steps_forward,
    }
}

fn ceilings_status(metrics: &Metrics, now: Now) -> CeilingsStatus {
    let seen = metrics.keeper();
    let in_flight = seen.polled.in_flight_since.map_or(Duration::ZERO, |since| now.boot.since(since));
    CeilingsStatus {
        raises: seen.raises,
        failures: seen.failures,
        raising_s: seen.raising.as_secs_f64(),
        last_raise_ago_s: seen.raised_at.map(|at| now.boot.since(at).as_secs_f64()),
        slowest_raise_s: seen.raise_lengths.slowest(now.boot).max(in_flight).as_secs_f64(),
        usual_raise_s: seen.raise_lengths.usual(now.boot).as_secs_f64(),
        horizon_s: seen.polled.horizon.as_secs_f64(),
        in_flight_s: in_flight.as_secs_f64(),
        failing: seen.polled.failure.clone(),
        lost: seen.polled.taken_over.as_ref().map(ToString::to_string),
    }
}

/// Returns the status of the fleet's ceilings, from the sources' status.
fn fleet_status(metrics: &Metrics, live: &LiveConfig, sources: &[SourceStatus]) -> Option<FleetStatus> {
    let seen = metrics.keeper();
    let has_grant = live.supplies.iter().any(|supply| supply.stage == Stage::Granted);
    let mut waiting = live.supplies.iter().filter_map(|supply| match &supply.stage {
        Stage::Waits { reason, .. } => Some(reason.to_string()),
        Stage::UnderWay | Stage::Granted | Stage::Removed => None,
    });
    if let Some(reason) = waiting.next().filter(|_| !has_grant) {
        let silent = seen.fleet_silence.clone();
        return Some(FleetStatus { silent, waits_for: Some(reason), ..FleetStatus::default() });
    }
    let left_s = sources.iter().filter_map(|source| source.fleet_headroom_s).reduce(f64::min)?;
    let silent = seen.polled.fleet_failure.clone().or_else(|| seen.fleet_silence.clone());
    let mut pools = Vec::new();
    for &Counted { source, numbers: worker_ids, held } in &seen.noticed.pools {
        let Some(source) = sources.iter().find(|status| status.index == source) else { continue };
        pools.push(PoolStatus { source: source.name.clone(), worker_ids, held });
    }
    let certificate_ends_unix_s = seen.noticed.certificate_ends_unix_s;
    let raises = seen.fleet_raises;
    Some(FleetStatus { raises, left_s, silent, waits_for: None, pools, certificate_ends_unix_s })
}

fn certificate_status(identity: &ServerCertificate, now: Now) -> CertificateStatus {
    let now = Timestamp::from_microsecond(now.wall.0).unwrap_or(Timestamp::UNIX_EPOCH);
    CertificateStatus {
        ends_unix_s: identity.validity.not_after.as_second() as f64,
        warning: identity.warning(now),
    }
}
