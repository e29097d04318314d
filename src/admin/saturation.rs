//! The checks of clients' experience: refusals, latency, connections. `recent` finds their levels.

use super::finding::{about, about_daemon, ok, seconds, warn};
use super::status::{
    Check, Connections, IdentityStatus, LastMinute, Level, LimitedMinute, SourceMinute, SourceStatus, Status,
};
use crate::config::Grouped;

/// The share of the default wait above which the wait queue counts as saturated. New requests are then refused, or soon
/// will be.
const SATURATED_SHARE: f64 = 0.75;
/// The share of the budget for queues from which an operator should look. Connections then already have smaller shares.
const QUEUES_FULL_SHARE: f64 = 0.75;
const REFUSALS: &str = "refusals";
const LATENCY: &str = "latency";
const CONNECTIONS: &str = "connections";
const CLIENT_LIMITS: &str = "client_limits";
const AUTHORIZATION: &str = "authorization";
/// The checks that never make a daemon unready.
pub(super) const SATURATION: [&str; 5] = [REFUSALS, LATENCY, CONNECTIONS, AUTHORIZATION, CLIENT_LIMITS];

impl Status {
    /// Checks that new clients find a place.
    pub(super) fn check_connections(&self) -> Check {
        let Connections { open, max, .. } = self.connections;
        let found = format!("{} of {} connections in use", Grouped(open), Grouped(max));
        let advice = "raise limits.max_connections and the limit of open files, or see who holds them";
        let message = match (self.last_minute.connections_level, self.last_minute.connections_refused) {
            (Level::Ok, _) => found,
            (_, 0) => {
                format!("{found}, now or a moment ago; when all are in use, new ones get too_busy: {advice}")
            }
            (_, refused) => {
                format!("{found}; {} refused with too_busy in the last minute: {advice}", Grouped(refused))
            }
        };
        about_daemon(CONNECTIONS, (self.last_minute.connections_level, message))
    }

    /// Checks that few requests are slowed or denied by the limits of an identity.
    pub(super) fn check_client_limits(&self) -> Check {
        let is_limited = |identity: &&IdentityStatus| identity.last_minute.level != Level::Ok;
        let mut identities: Vec<_> = self.identities.iter().filter(is_limited).collect();
        identities.sort_by_key(|identity| std::cmp::Reverse(identity.last_minute.limited));
        let mut found: Vec<String> = Vec::new();
        if let [first, others @ ..] = identities.as_slice() {
            let more = match others.len() {
                0 => String::new(),
                1 => format!(", and some of identity {}", others[0].name),
                more => format!(", and some of {more} other identities"),
            };
            let limited = limited_message(&format!("identity {}", first.name), &first.last_minute);
            found.push(format!("{limited}{more}: raise rate or add sources in [[identities]]"));
        }
        let result = if found.is_empty() {
            ok("few requests or none are slowed or denied by a client's limits")
        } else {
            let over = seconds(self.last_minute.over_s);
            warn(format!("in the last {over}, {}; or have those clients ask for less", found.join("; ")))
        };
        about_daemon(CLIENT_LIMITS, result)
    }

    /// Checks that clients read their replies.
    pub(super) fn check_queues(&self) -> Check {
        let Connections { queued_bytes, queued_bytes_max, .. } = self.connections;
        let found = format!("{} of {} bytes queued", Grouped(queued_bytes), Grouped(queued_bytes_max));
        let result = if queued_bytes as f64 >= QUEUES_FULL_SHARE * queued_bytes_max.max(1) as f64 {
            let effect =
                "clients that do not take their replies are not read, and closed after limits.stall_timeout";
            warn(format!("{found}: {effect}; see who they are, or raise limits.max_queued_bytes"))
        } else {
            ok(found)
        };
        about_daemon("queues", result)
    }

    /// Checks that connections authorize themselves.
    pub(super) fn check_authorization(&self) -> Check {
        let refused = Grouped(self.last_minute.unauthorized);
        let addresses = Grouped(self.connections.unauthorized_addresses);
        let message = match self.last_minute.authorization_level {
            Level::Ok => format!(
                "{} connections have yet to authorize themselves",
                Grouped(self.connections.unauthorized)
            ),
            _ => format!(
                "{refused} requests or connections refused in the last minute, from {addresses} addresses, because clients \
                 did not authorize themselves (a wrong token or none, a TLS handshake that failed): the log names the \
                 addresses; give those clients a token or a certificate, or keep them out"
            ),
        };
        about_daemon(AUTHORIZATION, (self.last_minute.authorization_level, message))
    }

    /// Checks that requests are answered soon.
    pub(super) fn check_latency(&self) -> Check {
        let LastMinute { p99_us, latency_level, .. } = self.last_minute;
        let p99 =
            p99_us.map_or(String::from("no request"), |us| format!("99 % within {}", seconds(us / 1e6)));
        let message = match latency_level {
            Level::Ok if p99_us.is_some_and(|us| us / 1e6 > self.slow_s()) => {
                format!("quick in the last seconds; {p99} in the last minute")
            }
            Level::Ok => format!("{p99} in the last minute"),
            _ => format!(
                "slow: {p99} in the last minute, where up to {} is expected; see whether requests wait, and whether the \
                 machine is short of CPU",
                seconds(self.slow_s())
            ),
        };
        about_daemon(LATENCY, (latency_level, message))
    }
}

/// Checks that few requests of a source are refused, and that few will be.
pub(super) fn check_refusals(source: &SourceStatus, minute: &LastMinute) -> Check {
    let (requests, ids) = (Grouped(source.waiting_requests), Grouped(source.waiting_ids));
    let is_held_up = source.stands_s() > 0.0 || source.is_ceiling_reached();
    // Requests of a ticket counter wait only for storage, which the check of its ceiling reports.
    let queue_s = source.snowflake().map_or(0.0, |snowflake| snowflake.wait_queue_s);
    let queue = seconds(queue_s);
    let is_long = queue_s >= SATURATED_SHARE * source.default_wait_s;
    let result = if source.last_minute.level != Level::Ok {
        (source.last_minute.level, refused_message(source, minute))
    } else if source.waiting_ids == 0 {
        ok("no request waits")
    } else if is_long && !is_held_up {
        let wait = format!("{requests} requests wait for {ids} IDs, which take {queue}");
        let advice = more_worker_ids(source);
        warn(format!("saturated: {wait}; more requests are refused with exhausted: {advice}"))
    } else if source.snowflake().is_none() {
        ok(format!("waiting requests: {requests}, for {ids} IDs, until their reservation is durable"))
    } else {
        ok(format!("waiting requests: {requests}, for {ids} IDs, which take {queue}"))
    };
    about(source, REFUSALS, result)
}

fn limited_message(of: &str, minute: &LimitedMinute) -> String {
    let LimitedMinute { requests, limited, .. } = *minute;
    let percent = 100.0 * limited as f64 / requests.max(1) as f64;
    let (limited, requests) = (Grouped(limited), Grouped(requests));
    format!("{percent:.1} % of the requests of {of} were slowed or denied ({limited} of {requests})")
}

fn refused_message(source: &SourceStatus, minute: &LastMinute) -> String {
    let SourceMinute { requests, refused, exhausted, .. } = source.last_minute;
    let percent = 100.0 * refused as f64 / requests.max(1) as f64;
    let reason = match (exhausted, refused.saturating_sub(exhausted)) {
        (0, _) => String::from("see the other checks"),
        (_, 0) => more_worker_ids(source),
        (_, others) => format!(
            "{} for the reasons of other checks, {} with exhausted: {}",
            Grouped(others),
            Grouped(exhausted),
            more_worker_ids(source)
        ),
    };
    format!(
        "refused {percent:.1} % of the requests of the last {} ({} of {}); {reason}",
        seconds(minute.over_s),
        Grouped(refused),
        Grouped(requests)
    )
}

fn more_worker_ids(source: &SourceStatus) -> String {
    match source.snowflake() {
        Some(snowflake) => format!(
            "clients want more than the layout yields ({} IDs/s), or within less time: more worker IDs raise the rate",
            Grouped(snowflake.ids_per_second)
        ),
        None => String::from("the counter has no numbers left for them"),
    }
}
