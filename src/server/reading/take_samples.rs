//! Reads the daemon's status from counters, sources, the keeper's last poll and the acceptors. Any
//! thread may read it, because each lock is held only for a moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;

use crate::config::{Limits, Protocol};
use crate::metric_counter::Counter;
use crate::os_clock;
use crate::server::common::Common;
use crate::server::health::figures::Figure::*;
use crate::server::health::figures::Group;
use crate::server::health::latency::Latency;
use crate::server::health::metrics::{LastReload, Metrics, SourceCounters};
use crate::server::health::samples::{Samples, Subject};
use crate::server::health::status::Status;
use crate::server::health::{findings, process};
use crate::server::net::pending::Occupancy;
use crate::server::shared::live_config::{LiveConfig, Stage, Supply};
use snowbank_core::clock::{Now, Observed};
use snowbank_core::source::Source;
use snowbank_fleet::{Counted, rules};
use snowbank_id::layout::LayoutNumbering;
use snowbank_id::numbering::{Numbering, TicketCounter};
use snowbank_wire::ErrorCode;

const YEAR: Duration = Duration::from_secs(31_557_600);

impl Common {
    /// Returns the daemon's current status.
    pub(crate) fn status(&self) -> Status {
        self.judge(self.read(&self.live_config()))
    }

    /// Returns the current status with the samples that only `/metrics` has.
    pub(crate) fn exposed(&self) -> Samples {
        let live_config = self.live_config();
        let Status { mut samples, findings } = self.judge(self.read(&live_config));
        let daemon = &mut samples.daemon;
        let build = vec![env!("CARGO_PKG_VERSION").to_owned(), self.order.name().to_owned()];
        daemon.put_labelled(Build, build, 1);
        process::put(daemon);
        findings::put_levels(&mut samples, &findings);
        // If another process may have taken the worker IDs, they are not this daemon's.
        if samples.daemon.text(Lost).is_none() {
            let sources = samples.others.iter_mut().filter(|of| of.group == Group::Source);
            for (source, (_, supply)) in sources.zip(live_config.in_order()) {
                let space = id_space(&supply.source);
                for number in supply.numbers_in_space.iter() {
                    source.put_labelled(WorkerId, vec![space.clone(), number.to_string()], 1);
                }
            }
        }
        samples
    }

    /// Adds the current figures to the history of the last minute and of the last hour, and returns
    /// the status. The observer calls this at each of its readings.
    pub(crate) fn observe(&self) -> Status {
        let samples = self.read(&self.live_config());
        self.metrics.history().observe(&samples);
        self.metrics.recent().observe(&samples);
        self.judge(samples)
    }

    fn judge(&self, mut samples: Samples) -> Status {
        self.metrics.recent().fill(&mut samples);
        Status::new(samples)
    }

    /// Returns the live configuration. Its lock is released at once, because a reload needs the
    /// lock to replace the configuration.
    fn live_config(&self) -> Arc<LiveConfig> {
        Arc::clone(&self.live_config.borrow())
    }

    /// Reads counters, sources and clocks.
    fn read(&self, live_config: &LiveConfig) -> Samples {
        let metrics = &self.metrics;
        let now = self.wall.believe(os_clock::read());
        let mut samples = Samples::default();
        for (protocol, addresses) in &metrics.listeners {
            samples.others.push(protocol_samples(metrics, *protocol, addresses));
        }
        for (index, supply) in live_config.in_order() {
            samples.others.push(self.source_samples(index, supply, &live_config.limits, now));
        }
        put_fleet(self, live_config, &mut samples);
        put_identities(live_config, &mut samples);
        let daemon = &mut samples.daemon;
        let mut latency = Latency::default();
        metrics.shards.iter().for_each(|shard| shard.latency.add_to(&mut latency));
        daemon
            .put(Version, env!("CARGO_PKG_VERSION"))
            .put(Instance, metrics.instance.to_string())
            .put(Started, unix_s(metrics.started.wall.0))
            .put(UptimeS, now.boot.since(metrics.started.boot).as_secs_f64())
            .put(PreviousRunUnclean, metrics.previous_run_unclean.get().copied())
            .put(Draining, metrics.draining.load(Ordering::Relaxed))
            .put(Shards, metrics.shards.len())
            .put(Order, self.order.name())
            .put(AdminAddresses, metrics.admin.clone())
            .put(OtherRequests, metrics.sum(|shard| shard.others.get()))
            .put(ReceivedBytes, metrics.sum(|shard| shard.received_bytes.get()))
            .put(SentBytes, metrics.sum(|shard| shard.sent_bytes.get()))
            .put(Durations, latency.value());
        for code in ErrorCode::ALL {
            daemon.put_labelled(Errors, vec![code.name().to_owned()], self.errors_of(code));
        }
        for (reason, count) in self.rejections.closed() {
            daemon.put_labelled(Closed, vec![reason.to_owned()], count);
        }
        self.put_connections(live_config, daemon);
        put_clock(metrics, daemon);
        put_ceilings(metrics, now, daemon);
        put_reload(metrics, daemon);
        if let Some(acceptor) = &self.tls {
            let certificate = acceptor.identity();
            let now = Timestamp::from_microsecond(now.wall.0).unwrap_or(Timestamp::UNIX_EPOCH);
            daemon
                .put(CertificateEnds, certificate.validity.not_after.as_second() as f64)
                .put(CertificateWarning, certificate.warning(now));
        }
        samples
    }

    fn put_connections(&self, live_config: &LiveConfig, daemon: &mut Subject) {
        let limits = &live_config.limits;
        let metrics = &self.metrics;
        let Occupancy { inside, evicted, .. } = self.pending.occupancy();
        let open: usize = metrics.open.iter().map(|open| open.load(Ordering::Relaxed)).sum();
        daemon
            .put(Open, open)
            .put(OpenMax, limits.max_connections)
            .put(OpenWanted, live_config.connections_wanted)
            .put(Accepted, metrics.accepted.iter().map(Counter::get).sum::<u64>())
            .put(ConnectionsRefused, metrics.refused.get())
            .put(QueuedBytes, metrics.queued_bytes.load(Ordering::Relaxed))
            .put(QueuedBytesMax, limits.max_queued_bytes)
            .put(Unauthorized, inside)
            .put(Evicted, evicted)
            .put(UnauthorizedRefusals, metrics.sum(|shard| shard.unauthorized_refusals.get()))
            .put(UnauthorizedTimeouts, metrics.sum(|shard| shard.unauthorized_timeouts.get()))
            .put(UnauthorizedAddresses, self.rejections.unauthorized_addresses());
        let connections = &metrics.incr_connections;
        for (name, count) in [("integer", connections.integers()), ("string", connections.strings())] {
            daemon.put_labelled(IncrConnections, vec![name.to_owned()], count);
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
        let seen = self.metrics.keeper();
        let left = if source.kind().takes_ranges() {
            (*seen.polled.ranges_last.get(index)?)?
        } else if source.kind().follows_the_clock() {
            rules::left(source.numbering(), *seen.polled.fleet_ceilings.get(index)?, source.id_time(now))
        } else {
            return None;
        };
        Some(if self.in_doubt.load(Ordering::Relaxed) { 0.0 } else { left.as_secs_f64() })
    }

    fn source_samples(&self, index: usize, supply: &Supply, limits: &Limits, now: Now) -> Subject {
        let source = &supply.source;
        let mut samples = Subject { index, ..Subject::new(Group::Source, supply.name()) };
        let sum = |counter: fn(&SourceCounters) -> &Counter| {
            self.metrics.sum(|shard| counter(&shard.sources[index]).get())
        };
        samples
            .put(IdSpace, id_space(source))
            .put(SourceIds, sum(|counters| &counters.ids))
            .put(SourceRequests, sum(|counters| &counters.requests))
            .put(SourceRefused, sum(|counters| &counters.refused))
            .put(SourceExhausted, sum(|counters| &counters.exhausted))
            .put(SourceWaits, sum(|counters| &counters.waits))
            .put(WaitingRequests, source.wait_queue().waiting_requests())
            .put(WaitingIds, source.wait_queue().admitted_ids())
            .put(DefaultWaitS, limits.default_wait_for(source.tick()).as_secs_f64())
            .put(FleetHeadroomS, self.fleet_headroom_s(index, source, now))
            .put(CeilingWanted, source.grant().is_wanted());
        match source.numbering() {
            Numbering::Snowflake(numbering) => {
                put_snowflake(source, numbering, now, &mut samples);
                // Until the coordinator has assigned worker IDs, those of the sealed source are
                // nobody's.
                if !(supply.stage.is_awaited() && supply.settings.is_assigned()) {
                    samples.put(WorkerIds, numbering.workers().to_string());
                }
            }
            Numbering::Ticket(counter) => put_ticket(source, counter, &mut samples),
        }
        match &supply.stage {
            Stage::Granted | Stage::Removed => {}
            Stage::Waits { reason, .. } => {
                samples.put(Awaits, format!("waits: {reason}"));
            }
            Stage::UnderWay => {
                samples.put(IsUnderWay, true);
                let awaits = "waits until storage has made its first ceiling durable, the coordinator answers, or the pause before a new worker ID is over";
                samples.put(Awaits, awaits);
            }
        }
        samples
    }
}

fn unix_s(micros: i64) -> f64 {
    micros as f64 / 1e6
}

fn id_space(source: &Source) -> String {
    match source.numbering() {
        Numbering::Snowflake(numbering) => numbering.layout().space().to_string(),
        Numbering::Ticket(counter) => counter.to_string(),
    }
}

fn put_snowflake(source: &Source, numbering: &LayoutNumbering, now: Now, samples: &mut Subject) {
    let layout = numbering.layout();
    let id_time = source.id_time(now);
    let ahead = Duration::from_micros(id_time.0.saturating_sub(now.wall.0).max(0).unsigned_abs());
    let ceiling_time = numbering.start_of(numbering.tick_of(source.grant().ceiling()));
    let waiting_ids = source.wait_queue().admitted_ids() as f64;
    let queue_s = waiting_ids * source.tick().as_secs_f64() / numbering.ids_per_tick() as f64;
    samples
        .put(Kind, "snowflake")
        .put(Layout, layout.to_string())
        .put(IdsPerSecond, layout.ids_per_second().saturating_mul(numbering.workers().len() as u64))
        .put(WaitQueueS, if ahead.is_zero() { queue_s } else { 2.0 * queue_s })
        .put(HeadroomS, unix_s(ceiling_time.0.saturating_sub(id_time.0).max(0)))
        .put(AheadS, ahead.as_secs_f64())
        .put(MaxAheadS, source.rules().max_ahead.as_secs_f64())
        .put(StandsS, source.unavailable_for(now).as_secs_f64())
        .put(YetToBegin, source.is_yet_to_begin(now))
        .put(LayoutEnds, layout.end().date())
        .put(LayoutYearsLeft, unix_s(layout.end().0.saturating_sub(now.wall.0).max(0)) / YEAR.as_secs_f64());
}

fn put_ticket(source: &Source, counter: &TicketCounter, samples: &mut Subject) {
    let left = source.left_of_counter();
    let last = source.last_number();
    samples
        .put(Kind, "ticket")
        .put(TicketIncrement, counter.increment())
        .put(TicketOffset, counter.offset())
        .put(TicketLast, last.map(|last| last.number))
        .put(TicketLastText, last.map(|last| last.number.to_string()))
        .put(TicketLastIsExact, last.map(|last| last.is_exact))
        .put(TicketReserved, source.in_ranges().total())
        .put(TicketShared, source.kind().takes_ranges())
        .put(TicketRestored, source.grant().is_lost())
        .put(TicketLeft, left.to_string())
        .put(TicketLeftShare, left as f64 / source.numbering().end().0 as f64);
}

fn put_identities(live_config: &LiveConfig, samples: &mut Samples) {
    for identity in live_config.facts.access.identities.values() {
        let usage = &identity.usage;
        let mut of = Subject::new(Group::Identity, &identity.name);
        of.put(IdentityRate, identity.rate)
            .put(IdentityOpen, usage.connections.load(Ordering::Relaxed))
            .put(IdentityRequests, usage.asked.get())
            .put(IdentityConnected, usage.connected.get())
            .put(IdentityDenied, usage.denied.get())
            .put(IdentitySlowed, usage.slowed.get());
        for (index, supply) in live_config.in_order() {
            let ids = usage.ids(index);
            if ids > 0 {
                of.put_labelled(IdentityIds, vec![supply.name().to_owned()], ids);
            }
        }
        samples.others.push(of);
    }
}

fn protocol_samples(metrics: &Metrics, protocol: Protocol, addresses: &[String]) -> Subject {
    let index = protocol as usize;
    let mut samples = Subject::new(Group::Protocol, protocol.name());
    samples
        .put(ProtocolAddresses, addresses.to_vec())
        .put(ProtocolOpen, metrics.open_by_protocol[index].load(Ordering::Relaxed))
        .put(ProtocolRequests, metrics.sum(|shard| shard.protocols[index].requests.get()))
        .put(ProtocolErrors, metrics.sum(|shard| shard.protocols[index].errors.get()));
    samples
}

fn put_clock(metrics: &Metrics, daemon: &mut Subject) {
    let seen = metrics.keeper();
    let (state, behind, held) = match seen.polled.clock {
        Observed::Steady | Observed::Believed(_) => ("steady", Duration::ZERO, Duration::ZERO),
        Observed::Behind(by) => ("behind", by, Duration::ZERO),
        Observed::Held(by) => ("held", Duration::ZERO, by),
    };
    daemon
        .put(ClockState, state)
        .put(ClockByS, (behind + held).as_secs_f64())
        .put(ClockBehindS, behind.as_secs_f64())
        .put(ClockHeldS, held.as_secs_f64())
        .put_labelled(ClockSteps, vec![String::from("back")], seen.steps_back)
        .put_labelled(ClockSteps, vec![String::from("forward")], seen.steps_forward);
}

fn put_ceilings(metrics: &Metrics, now: Now, daemon: &mut Subject) {
    let seen = metrics.keeper();
    let in_flight = seen.polled.in_flight_since.map_or(Duration::ZERO, |since| now.boot.since(since));
    daemon
        .put(Raises, seen.raises)
        .put(RaiseFailures, seen.failures)
        .put(RaisingS, seen.raising.as_secs_f64())
        .put(LastRaiseAgoS, seen.raised_at.map(|at| now.boot.since(at).as_secs_f64()))
        .put(SlowestRaiseS, seen.raise_lengths.slowest(now.boot).max(in_flight).as_secs_f64())
        .put(UsualRaiseS, seen.raise_lengths.usual(now.boot).as_secs_f64())
        .put(HorizonS, seen.polled.horizon.as_secs_f64())
        .put(InFlightS, in_flight.as_secs_f64())
        .put(Failing, seen.polled.failure.clone())
        .put(IsFailing, seen.polled.failure.is_some())
        .put(Lost, seen.polled.taken_over.as_ref().map(ToString::to_string));
}

fn put_reload(metrics: &Metrics, daemon: &mut Subject) {
    let last = metrics.last_reload();
    let is_refused = last.as_ref().is_some_and(|last| last.refused.is_some());
    let at_unix_s = last.as_ref().map_or(unix_s(metrics.started.wall.0), |last| last.at_unix_s);
    daemon.put(ReloadSuccessful, !is_refused).put(ReloadTimestamp, at_unix_s);
    if let Some(LastReload { at_unix_s, refused }) = &*last {
        daemon.put(ReloadAt, *at_unix_s).put(ReloadRefused, refused.clone());
    }
}

/// What is found until the coordinator says whether it went back.
const IN_DOUBT: &str = "it seems to have gone back, and has not answered since";

/// Adds the samples of the fleet's ceilings and worker IDs, after those of the sources.
fn put_fleet(common: &Common, live: &LiveConfig, samples: &mut Samples) {
    let metrics = &common.metrics;
    let seen = metrics.keeper();
    let has_grant = live.supplies.iter().any(|supply| supply.stage == Stage::Granted);
    let mut waiting = live.supplies.iter().filter_map(|supply| match &supply.stage {
        Stage::Waits { reason, .. } => Some(reason.to_string()),
        Stage::UnderWay | Stage::Granted | Stage::Removed => None,
    });
    let waits_for = waiting.next().filter(|_| !has_grant);
    let left_s = samples.sources().filter_map(|source| source.measured(FleetHeadroomS)).reduce(f64::min);
    if waits_for.is_none() && left_s.is_none() {
        return;
    }
    let fleet = metrics.fleet();
    let silence = fleet.silence.clone();
    let is_waiting = waits_for.is_some();
    let silent = if is_waiting { silence } else { seen.polled.fleet_failure.clone().or(silence) };
    let in_doubt = common.in_doubt.load(Ordering::Relaxed).then(|| IN_DOUBT.to_owned());
    let silent = in_doubt.or(silent);
    let known = fleet.pools.iter().filter(|_| !is_waiting);
    for &Counted { source, numbers, held } in known {
        if let Some((_, supply)) = live.in_order().find(|(index, _)| *index == source) {
            let mut pool = Subject::new(Group::Pool, supply.name());
            pool.put(PoolWorkerIds, numbers).put(PoolHeld, held);
            samples.others.push(pool);
        }
    }
    samples
        .daemon
        .put(FleetRaises, if is_waiting { 0 } else { seen.fleet_raises })
        .put(FleetLeftS, if is_waiting { 0.0 } else { left_s.unwrap_or(0.0) })
        .put(CoordinatorUp, silent.is_none())
        .put(FleetSilent, silent)
        .put(FleetWaitsFor, waits_for)
        .put(FleetCertificateEnds, fleet.certificate_ends_unix_s.filter(|_| !is_waiting));
}
