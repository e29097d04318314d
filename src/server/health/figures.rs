//! The figures of the daemon's status, a row each: what it is about, its place in `/status`, and the
//! name, labels and meaning of its metric. `/status`, `/metrics` and the table in
//! docs/monitoring.md follow these rows.
//!
//! Metrics whose names end in `_total` are counters. All other metrics are gauges, except the
//! histogram of latencies. The units `_seconds` and `_bytes` are at the end of the name or before
//! `_total`.

/// What a figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Group {
    Daemon,
    Protocol,
    Source,
    Identity,
    /// The worker IDs that the coordinator may assign to a source.
    Pool,
}

impl Group {
    /// Returns the label of the metrics that has the name of what they are about. `None`: the
    /// daemon.
    pub(crate) fn label(self) -> Option<&'static str> {
        match self {
            Group::Daemon => None,
            Group::Protocol => Some("protocol"),
            Group::Source | Group::Pool => Some("source"),
            Group::Identity => Some("identity"),
        }
    }
}

/// The row of a figure.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) group: Group,
    /// The keys that lead to the figure in `/status`, in its part about the source, or whatever the
    /// group is. The value of the last label replaces `*`. Empty: `/status` lacks the figure.
    pub(crate) place: &'static str,
    /// The name of the metric. Empty: the metrics lack the figure.
    pub(crate) metric: &'static str,
    /// The labels after that of the group.
    pub(crate) labels: &'static [&'static str],
    pub(crate) means: &'static str,
}

macro_rules! figures {
    (metrics { $($figure:ident: $of:ident, $place:literal, $metric:literal, $labels:tt, $means:literal;)+ }
     rest { $($(#[$about:meta])* $other:ident: $of_other:ident, $place_of_other:literal;)+ }) => {
        /// A figure of the status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Figure { $(#[doc = $means] $figure,)+ $($(#[$about])* $other,)+ }

        impl Figure {
            /// The figures with metrics, in the order of the table.
            pub(crate) const METRICS: &[Figure] = &[$(Figure::$figure,)+];
        }

        /// The rows of all figures, in the order of [`Figure`].
        const ROWS: &[Row] = &[
            $(Row { group: Group::$of, place: $place, metric: $metric, labels: &$labels, means: $means },)+
            $(Row { group: Group::$of_other, place: $place_of_other, metric: "", labels: &[], means: "" },)+
        ];
    };
}

#[rustfmt::skip]
figures! { metrics {
    SourceIds: Source, "ids", "snowbank_ids_issued_total", [], "IDs handed out";
    SourceRequests: Source, "requests", "snowbank_requests_total", [], "requests for IDs that were answered, with IDs or a refusal of the source";
    SourceRefused: Source, "refused", "snowbank_refusals_total", [], "refusals of the source: `exhausted`, `clock_behind`, `no_ceiling` or `shutting_down`";
    SourceExhausted: Source, "exhausted", "snowbank_exhausted_total", [], "refusals of the source with `exhausted`";
    SourceWaits: Source, "waits", "snowbank_waits_total", [], "waits in the wait queue";
    ProtocolRequests: Protocol, "requests", "snowbank_protocol_requests_total", [], "requests answered, those for IDs and others";
    ProtocolErrors: Protocol, "errors", "snowbank_protocol_errors_total", [], "requests answered with an error";
    ReceivedBytes: Daemon, "received_bytes", "snowbank_received_bytes_total", [], "bytes read from clients";
    SentBytes: Daemon, "sent_bytes", "snowbank_sent_bytes_total", [], "bytes written to clients";
    UnauthorizedRefusals: Daemon, "connections.unauthorized_refusals", "snowbank_unauthorized_refusals_total", [], "requests and connections refused for a wrong token or none, and TLS handshakes that failed";
    UnauthorizedTimeouts: Daemon, "connections.unauthorized_timeouts", "snowbank_unauthorized_timeouts_total", [], "connections closed because they sent no token within five seconds";
    IdentityConnected: Identity, "connected", "snowbank_identity_connected_total", [], "connections that had this identity so far";
    IdentityDenied: Identity, "denied", "snowbank_identity_denied_total", [], "its requests to sources that it may not draw from";
    IdentitySlowed: Identity, "slowed", "snowbank_identity_slowed_total", [], "its requests that waited for its rate, or were refused for it";
    FindingLevel: Daemon, "", "snowbank_finding", ["finding", "source"], "2: requests are refused for it, or soon will be; 1: an operator should look; 0: nothing was found";
    Ready: Daemon, "ready", "snowbank_ready", [], "1 while `/readyz` answers 200";
    WaitingRequests: Source, "waiting_requests", "snowbank_waiting_requests", [], "requests in the wait queue";
    WaitingIds: Source, "waiting_ids", "snowbank_waiting_ids", [], "IDs for which requests wait now";
    Errors: Daemon, "errors.*", "snowbank_errors_total", ["code"], "requests answered with an error, and connections refused (`too_busy`)";
    OtherRequests: Daemon, "other_requests", "snowbank_other_requests_total", [], "requests that need no IDs, such as PING, INFO and HELLO, answered without an error";
    Durations: Daemon, "latency", "snowbank_request_duration_seconds", [], "how long requests for IDs took: from reading them, or from when their rate allowed them, to sending the reply";
    IdsPerSecond: Source, "ids_per_second", "snowbank_ids_per_second_max", [], "IDs per second that the layout and the worker IDs yield";
    HeadroomS: Source, "headroom_s", "snowbank_ceiling_headroom_seconds", [], "the durable ceiling's time minus the ID clock's: how long IDs can be handed out if it is not raised. Also 0 while a source is unused and its ceiling is not raised";
    HorizonS: Daemon, "ceilings.horizon_s", "snowbank_ceiling_horizon_seconds", [], "how long IDs last after a raise";
    SlowestRaiseS: Daemon, "ceilings.slowest_raise_s", "snowbank_ceiling_slowest_raise_seconds", [], "the longest raise of the last minute, the one in flight included";
    InFlightS: Daemon, "ceilings.in_flight_s", "snowbank_ceiling_write_seconds", [], "how long the write of ceilings in flight has taken so far; 0 without one";
    Raises: Daemon, "ceilings.raises", "snowbank_ceiling_raises_total", [], "raises that became durable";
    RaisingS: Daemon, "ceilings.raising_s", "snowbank_ceiling_raising_seconds_total", [], "time that the raises took; divided by raises: the time of one";
    RaiseFailures: Daemon, "ceilings.failures", "snowbank_ceiling_raise_failures_total", [], "raises that failed";
    IsFailing: Daemon, "", "snowbank_ceiling_raise_failing", [], "1 while raises fail";
    WorkerId: Source, "", "snowbank_worker_id", ["id_space", "number"], "1 for each worker ID of this daemon. Two daemons that show the same hand out the same IDs";
    AheadS: Source, "ahead_s", "snowbank_clock_ahead_seconds", [], "how far the ID clock is ahead of the wall clock: after a step back or a crash";
    StandsS: Source, "stands_s", "snowbank_clock_standing_seconds", [], "how long until the clock allows IDs again; while it is above 0, requests are refused with `clock_behind`";
    ClockSteps: Daemon, "clock.steps_*", "snowbank_clock_steps_total", ["direction"], "steps of the wall clock of a tenth of a second or more, `back` or `forward`; a clock that stands counts once";
    ClockBehindS: Daemon, "", "snowbank_wall_clock_behind_seconds", [], "how far the wall clock is behind its latest time, or how long it has stood still";
    ClockHeldS: Daemon, "", "snowbank_wall_clock_held_seconds", [], "by how much the wall clock stepped forward, while that is not followed";
    LayoutYearsLeft: Source, "layout_years_left", "snowbank_layout_years_left", [], "years until the layout ends";
    TicketLast: Source, "", "snowbank_ticket_last", [], "the last number that a ticket source handed out; after a crash, until the first one, the highest that it can have handed out (in /status `last_is_exact` is then false)";
    TicketReserved: Source, "reserved", "snowbank_ticket_reserved", [], "numbers of a ticket source that can be handed out if its ceiling is not raised";
    TicketLeftShare: Source, "left_share", "snowbank_ticket_left_ratio", [], "share of a ticket source's numbers that are left, from 0 to 1";
    FleetHeadroomS: Source, "fleet_headroom_s", "snowbank_fleet_headroom_seconds", [], "how long IDs can be handed out without the fleet's coordinator, at the present rate for a shared counter; absent without a fleet, as are all `snowbank_fleet_` metrics";
    CoordinatorUp: Daemon, "", "snowbank_fleet_coordinator_up", [], "1 if the coordinator gave an answer when it was last asked, else 0";
    FleetRaises: Daemon, "fleet.raises", "snowbank_fleet_raises_total", [], "raises of ceilings at the coordinator that became durable, and ranges that were taken";
    PoolWorkerIds: Pool, "worker_ids", "snowbank_fleet_worker_ids", [], "the worker IDs that a source with `worker_id_from = \"coordinator\"` could have; absent above 65,536";
    PoolHeld: Pool, "held", "snowbank_fleet_worker_ids_held", [], "the worker IDs that daemons hold, counted every ten minutes, 100 worker IDs at each poll";
    FleetCertificateEnds: Daemon, "fleet.certificate_ends_unix_s", "snowbank_fleet_certificate_expiry_timestamp_seconds", [], "the end of `fleet.certificate`, in Unix time; absent without one";
    Open: Daemon, "connections.open", "snowbank_connections", [], "connections open";
    OpenMax: Daemon, "connections.max", "snowbank_connections_max", [], "`max_connections`, or what open files allow";
    Accepted: Daemon, "connections.accepted", "snowbank_connections_accepted_total", [], "connections accepted";
    ConnectionsRefused: Daemon, "connections.refused", "snowbank_connections_refused_total", [], "connections refused because all were in use (with `too_busy`, or over TLS without a message)";
    Closed: Daemon, "closed.*", "snowbank_connections_closed_total", ["reason"], "connections that the daemon closed by itself, by reason";
    Unauthorized: Daemon, "connections.unauthorized", "snowbank_connections_unauthorized", [], "connections open now that owe a token or shake hands over TLS";
    Evicted: Daemon, "connections.evicted", "snowbank_connections_evicted_total", [], "connections that newcomers evicted before they had authorized themselves";
    UnauthorizedAddresses: Daemon, "connections.unauthorized_addresses", "snowbank_unauthorized_addresses", [], "addresses whose clients did not authorize themselves in the last minute, 256 at most";
    QueuedBytes: Daemon, "connections.queued_bytes", "snowbank_queued_bytes", [], "bytes queued: replies that clients have not taken, and requests that have arrived in part";
    QueuedBytesMax: Daemon, "connections.queued_bytes_max", "snowbank_queued_max_bytes", [], "bytes that may be queued: `max_queued_bytes`";
    ProtocolOpen: Protocol, "connections", "snowbank_protocol_connections", [], "connections open, by protocol: `native`, and each front end";
    IncrConnections: Daemon, "connections.incr_*s", "snowbank_incr_connections_total", ["form"], "connections that drew IDs above 2^53 by increments of Redis or memcached, by the form of the first: `integer` or `string`";
    IdentityOpen: Identity, "connections", "snowbank_identity_connections", [], "connections that have an identity now";
    IdentityIds: Identity, "ids.*", "snowbank_identity_ids_total", ["source"], "IDs that it drew from a source; a series once it has drawn one";
    CertificateEnds: Daemon, "certificate.ends_unix_s", "snowbank_certificate_expiry_timestamp_seconds", [], "the end of the TLS listeners' certificate, in Unix time; absent without one";
    ReloadSuccessful: Daemon, "", "snowbank_config_last_reload_successful", [], "0 if the last reload was refused";
    ReloadTimestamp: Daemon, "", "snowbank_config_last_reload_timestamp_seconds", [], "the time of the last reload, in Unix time; of the start, if there was none";
    PreviousRunUnclean: Daemon, "previous_run_unclean", "snowbank_previous_run_unclean", [], "1 if the run before was killed or crashed, or if it lost power or its worker ID, or its disk hung. Absent at a first start, and without a state";
    Shards: Daemon, "shards", "snowbank_shards", [], "threads that serve connections";
    Build: Daemon, "", "snowbank_build_info", ["version", "order"], "always 1";
    Started: Daemon, "started_unix_s", "process_start_time_seconds", [], "when the daemon started, in Unix time";
    CpuS: Daemon, "", "process_cpu_seconds_total", [], "CPU time of all its threads";
    ResidentBytes: Daemon, "", "process_resident_memory_bytes", [], "memory resident";
    OpenFiles: Daemon, "", "process_open_fds", [], "files open, sockets among them";
    OpenFilesMax: Daemon, "", "process_max_fds", [], "files that may be open";
} rest {
    Version: Daemon, "version";
    Instance: Daemon, "instance";
    UptimeS: Daemon, "uptime_s";
    /// The effect of the worst finding, in a few words.
    Headline: Daemon, "headline";
    Findings: Daemon, "findings";
    /// The status in words, without the findings and the sources.
    Facts: Daemon, "facts";
    /// True while the daemon stops.
    Draining: Daemon, "draining";
    Order: Daemon, "order";
    /// `steady`; `behind`: it stepped back and has not caught up, or stands still; `held`: it stepped
    /// far forward, which is followed once the step has lasted `clock.step_hold`.
    ClockState: Daemon, "clock.state";
    /// By how much the wall clock is behind, or stepped forward; 0 if it is steady.
    ClockByS: Daemon, "clock.by_s";
    /// The time since the last raise became durable; null: none did.
    LastRaiseAgoS: Daemon, "ceilings.last_raise_ago_s";
    /// The shorter of the last two raises, if both were in the last minute. Otherwise 0.
    UsualRaiseS: Daemon, "ceilings.usual_raise_s";
    /// The reason why the last raise failed; null: it did not, or no source needs a raise.
    Failing: Daemon, "ceilings.failing";
    /// The reason why another process may hold a worker ID, a shared counter or the state.
    Lost: Daemon, "ceilings.lost";
    /// The time for which every source can hand out IDs without the coordinator.
    FleetLeftS: Daemon, "fleet.left_s";
    /// The reason why the coordinator did not answer the last time.
    FleetSilent: Daemon, "fleet.silent";
    /// The reason why the daemon waits and hands out nothing; null: it does not.
    FleetWaitsFor: Daemon, "fleet.waits_for";
    /// The warning for the operator, if clients refuse the certificate or soon will.
    CertificateWarning: Daemon, "certificate.warning";
    ReloadAt: Daemon, "last_reload.at_unix_s";
    /// The reasons why the last reload was refused; null: it succeeded.
    ReloadRefused: Daemon, "last_reload.refused";
    /// The configured `max_connections`, if open files allow fewer.
    OpenWanted: Daemon, "connections.wanted";
    AdminAddresses: Daemon, "admin_addresses";
    /// The time that the figures of the last minute cover: a minute and up to five seconds.
    MinuteS: Daemon, "last_minute.over_s";
    /// The time within which 99 % of requests were answered; null: there were none.
    MinuteP99Us: Daemon, "last_minute.p99_us";
    /// The share of requests that took longer than half of the default wait.
    MinuteSlowShare: Daemon, "last_minute.slow_share";
    /// Connections that were refused in the last ten seconds.
    MinuteConnectionsRefused: Daemon, "last_minute.connections_refused";
    MinuteAnswers: Daemon, "last_minute.answers";
    MinuteErrors: Daemon, "last_minute.errors";
    /// Requests and connections whose clients did not authorize themselves, in the last minute.
    MinuteUnauthorized: Daemon, "last_minute.unauthorized";
    /// The same, in the last ten seconds.
    UnauthorizedLately: Daemon, "last_minute.unauthorized_lately";
    ProtocolAddresses: Protocol, "addresses";
    Kind: Source, "kind";
    /// The source's status in words, one fact on each line.
    SourceFacts: Source, "facts";
    /// Two daemons must not have the same number in one ID space.
    IdSpace: Source, "id_space";
    Layout: Source, "layout";
    WorkerIds: Source, "worker_ids";
    /// The time that it takes to make the IDs for which requests wait: at the full rate, or at half
    /// of it during a catch-up.
    WaitQueueS: Source, "wait_queue_s";
    MaxAheadS: Source, "max_ahead_s";
    /// True for a source without a state while the clock has not reached the source's first tick.
    YetToBegin: Source, "yet_to_begin";
    LayoutEnds: Source, "layout_ends";
    TicketIncrement: Source, "increment";
    TicketOffset: Source, "offset";
    /// The last number, as text, because JavaScript's integers end at 2^53.
    TicketLastText: Source, "last";
    /// False after a crash, until the first number: no larger number than `last` was handed out.
    TicketLastIsExact: Source, "last_is_exact";
    /// True if the counter is at the coordinator, where other daemons may use it too.
    TicketShared: Source, "shared";
    /// True once another process, or another copy of the machine, may hand out the same numbers.
    TicketRestored: Source, "restored";
    /// The numbers that are left until the counter ends, as text like `last`.
    TicketLeft: Source, "left";
    DefaultWaitS: Source, "default_wait_s";
    /// True once a claim has met the ceiling, until the next raise.
    CeilingWanted: Source, "ceiling_wanted";
    /// What the source waits for before it begins. Absent: it has begun.
    Awaits: Source, "awaits";
    /// True while the source's first grant is under way, and requests wait for it.
    IsUnderWay: Source, "";
    MinuteSourceRequests: Source, "last_minute.requests";
    MinuteSourceRefused: Source, "last_minute.refused";
    MinuteExhausted: Source, "last_minute.exhausted";
    /// The share of requests that were refused with `exhausted` in the last minute, or in the last
    /// ten seconds if that is lower. 0 if few requests were.
    MinuteExhaustedShare: Source, "last_minute.exhausted_share";
    /// The IDs per second that the identity may draw; null: no rate is set.
    IdentityRate: Identity, "rate";
    /// Requests to which the identity's limits apply.
    IdentityRequests: Identity, "requests";
    MinuteIdentityRequests: Identity, "last_minute.requests";
    /// The requests that were slowed or denied.
    MinuteLimited: Identity, "last_minute.limited";
    MinuteLimitedShare: Identity, "last_minute.limited_share";
} }

impl Figure {
    pub(crate) fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Returns the type of its metric.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Figure::Durations => "histogram",
            _ if self.row().metric.ends_with("_total") => "counter",
            _ => "gauge",
        }
    }

    /// Returns true if the figure only grows from the daemon's start on, and its growth is of use. Of
    /// an identity's IDs from each source it is not, and there may be a thousand for each identity.
    pub(crate) fn grows(self) -> bool {
        if self == Figure::IdentityIds {
            return false;
        }
        let others = matches!(self, Figure::Durations | Figure::UptimeS | Figure::IdentityRequests);
        others || self.row().metric.ends_with("_total")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the table that docs/monitoring.md must have.
    fn table() -> String {
        let mut table = String::from("| metric | type | labels | means |\n|---|---|---|---|\n");
        for figure in Figure::METRICS {
            let Row { group, metric, labels, means, .. } = figure.row();
            let labels =
                group.label().into_iter().chain(labels.iter().copied()).map(|label| format!("`{label}`"));
            let labels = labels.collect::<Vec<_>>().join(", ");
            let kind = figure.kind();
            let gap = if labels.is_empty() { "" } else { " " };
            table += &format!("| `{metric}` | {kind} | {labels}{gap}| {means} |\n");
        }
        table
    }

    #[test]
    fn the_monitoring_page_has_each_metric() {
        let page = include_str!("../../../docs/monitoring.md");
        assert!(page.contains(&table()), "docs/monitoring.md needs this table:\n{}", table());
    }
}
