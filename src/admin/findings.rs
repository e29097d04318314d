//! Derives the findings from a status. The thresholds of all findings are in this file, except two:
//! that of the listeners' certificate (`tls.rs`), by which `snowbank check` and a start warn, too,
//! and the length of a held step (`clock`). The windows of time are in `recent.rs`. The page,
//! `snowbank status`, `/readyz`, the log and the metric `snowbank_finding` show the findings. The
//! alerts use this metric.

use super::finding::{Effect, Finding, seconds};
use super::status::{
    CeilingsStatus, ClockState, Connections, LastReload, SnowflakeStatus, SourceStatus, Status, TicketStatus,
};
use super::words::counted;
use crate::config::Grouped;

/// If at least this share of a source's requests is refused with `exhausted`, there is a finding.
/// Refusals for another reason have a finding of their own. At this share, one request in 10,000 fails if clients try twice, and nobody notices.
const REFUSED_SHARE: f64 = 0.01;
/// If at least this share of a source's requests is refused, alerts page somebody. At this share,
/// one request in a hundred fails if clients try twice.
const REFUSED_SHARE_PAGE: f64 = 0.1;
/// If at least this share of requests takes longer than [`Status::slow_s`], there is a finding. At
/// this share, the 99th percentile exceeds `slow_s`.
const SLOW_SHARE: f64 = 0.01;
/// A request is slow if it takes longer than this share of the longest default wait. If requests
/// need twice this time, requests with the default wait are refused.
const SLOW_WAIT_SHARE: f64 = 0.5;
/// If a raise takes longer than this share of the horizon, there is a finding. A healthy disk needs
/// a hundredth of the horizon.
const SLOW_RAISE_SHARE: f64 = 1.0 / 3.0;
/// If raises usually take longer than this share of the horizon, requests wait for them.
const LONG_RAISE_SHARE: f64 = 0.5;
/// If the limits of an identity slow or deny at least this share of its requests, there is a
/// finding.
const LIMITED_SHARE: f64 = 0.01;
/// If at least this share of connections is in use, there is a finding. The other connections are
/// for clients that reconnect before the daemon has closed their old connections.
const CONNECTIONS_SHARE: f64 = 0.9;
/// If at least this number of requests and connections was refused within ten seconds because
/// clients did not authorize themselves, there is a finding.
const UNAUTHORIZED: u64 = 5;
/// If the wait queue is at least this long, as a share of the default wait, there is a finding. At
/// 1, requests with the default wait may be refused.
const WAIT_QUEUE_SHARE: f64 = 0.75;
/// If at least this share of the budget for queued bytes is used, there is a finding.
const QUEUES_SHARE: f64 = 0.75;
/// If a layout ends within this time, there is a finding.
const LAYOUT_YEARS: f64 = 1.0;
/// If less than this share of a ticket counter's numbers is left, there is a finding.
const NUMBERS_SHARE: f64 = 0.01;
/// If the IDs last for less than this time without the coordinator, its outage is urgent.
const FLEET_LEFT_S: f64 = 60.0;
/// If the certificate for the coordinator expires within this time, there is a finding.
const FLEET_CERTIFICATE_S: f64 = 14.0 * 86_400.0;

/// The effect and the message of a finding, if there is one.
type Found = Option<(Effect, String)>;
type Find = fn(&Status) -> Found;
type FindOfSource = fn(&Status, &SourceStatus) -> Found;

/// The subjects of findings about the daemon, each with the function that looks for a finding. The
/// metrics have a series for each subject. A stop is not in this table, because nobody needs an
/// alert about a stop.
pub(super) const DAEMON: [(&str, Find); 11] = [
    ("worker_ids", Status::find_lost_worker_ids),
    ("reload", Status::find_refused_reload),
    ("connections", Status::find_full_connections),
    ("authorization", Status::find_unauthorized),
    ("client_limits", Status::find_limited_clients),
    ("queues", Status::find_full_queues),
    ("latency", Status::find_latency),
    ("wall_clock", Status::find_wall_clock),
    ("fleet", Status::find_fleet),
    ("fleet_certificate", Status::find_fleet_certificate),
    ("certificate", Status::find_certificate),
];

/// The subjects of findings about a source, each with the function that looks for a finding.
pub(super) const SOURCE: [(&str, FindOfSource); 5] = [
    ("clock", |_, source| find_clock(source)),
    ("ceiling", Status::find_ceiling),
    ("refusals", Status::find_refusals),
    ("layout", |_, source| find_layout_end(source.snowflake()?)),
    ("numbers", |_, source| find_numbers_end(source.ticket()?)),
];

impl Status {
    /// Fills in the findings, the readiness and the headline.
    pub(super) fn find(&mut self) {
        let mut findings = Vec::new();
        if self.draining {
            let message = "send requests to other daemons, because this one closes its listeners soon";
            findings.push(Finding {
                name: "stop".into(),
                source: None,
                effect: Effect::Refuses,
                message: message.into(),
            });
        }
        for (name, find) in DAEMON {
            if let Some((effect, message)) = find(self) {
                findings.push(Finding { name: name.into(), source: None, effect, message });
            }
        }
        for source in &self.sources {
            for (name, find) in SOURCE {
                let has_begun = source.awaits.is_none() || name == "ceiling";
                if has_begun && let Some((effect, message)) = find(self, source) {
                    let source = Some(source.name.clone());
                    findings.push(Finding { name: name.into(), source, effect, message });
                }
            }
        }
        // The sort is stable, so findings with the same effect stay in this order.
        findings.sort_by_key(|finding| finding.effect);
        self.ready = !findings.iter().any(|finding| finding.effect.makes_unready());
        self.headline = self.headline_of(findings.first());
        self.findings = findings;
    }

    /// Returns the time above which a request counts as slow.
    pub(super) fn slow_s(&self) -> f64 {
        self.sources.iter().map(|source| SLOW_WAIT_SHARE * source.default_wait_s).fold(0.0, f64::max)
    }

    fn headline_of(&self, worst: Option<&Finding>) -> String {
        let Some(worst) = worst else { return String::from("Serving, all is as it should be") };
        if self.draining {
            return String::from("Stopping");
        }
        let of = match &worst.source {
            Some(source) if self.sources.len() > 1 => format!(" of source {source}"),
            _ => String::new(),
        };
        worst.effect.headline(&of)
    }

    fn find_lost_worker_ids(&self) -> Found {
        let reason = self.ceilings.lost.as_ref()?;
        let advice = "no IDs are handed out any more: stop this daemon, and find the other one";
        Some((Effect::CouldRepeat, format!("lost: {reason}; {advice}")))
    }

    fn find_refused_reload(&self) -> Found {
        let LastReload { at_unix_s, refused } = self.last_reload.as_ref()?;
        let reason = refused.as_ref()?;
        let ago = seconds((self.started_unix_s + self.uptime_s - at_unix_s).max(0.0));
        let effect = "the earlier configuration stays live, and the next start may refuse the file";
        let message = format!("the reload {ago} ago was refused: {reason}; {effect}");
        Some((Effect::Look, message))
    }

    /// Finds that so many connections are in use that new clients may not get a connection.
    fn find_full_connections(&self) -> Found {
        let Connections { open, max, wanted, .. } = self.connections;
        let found = format!("{} of {} connections in use", Grouped(open), Grouped(max));
        let advice = "raise limits.max_connections and the limit of open files, or see who holds them";
        let refused = self.last_minute.connections_refused;
        if refused > 0 || open >= max {
            let refused = Grouped(refused);
            let message = format!("{found}; {refused} refused with too_busy in the last seconds: {advice}");
            return Some((Effect::RefusesSome, message));
        }
        if let Some(wanted) = wanted {
            let advice = "raise the limit (LimitNOFILE=, ulimit -n), or lower the setting, and restart";
            let wanted = Grouped(wanted);
            let message = format!(
                "{found}: the limit of open files allows no more, and max_connections is {wanted}; {advice}"
            );
            return Some((Effect::Look, message));
        }
        let message = format!("{found}; when all are in use, new ones get too_busy: {advice}");
        let is_near = open as f64 >= CONNECTIONS_SHARE * max as f64;
        is_near.then_some((Effect::Look, message))
    }

    /// Finds that clients do not authorize themselves.
    fn find_unauthorized(&self) -> Found {
        let refused = self.last_minute.unauthorized;
        if self.last_minute.unauthorized_lately < UNAUTHORIZED {
            return None;
        }
        let refused = Grouped(refused);
        let addresses = Grouped(self.connections.unauthorized_addresses);
        let message = format!(
            "{refused} requests or connections refused in the last minute, from {addresses} addresses, because clients did \
             not authorize themselves (a wrong token or none, a TLS handshake that failed): the log names the addresses; \
             give those clients a token or a certificate, or keep them out"
        );
        Some((Effect::Look, message))
    }

    /// Finds identities whose limits slow or deny more than a few of their requests.
    fn find_limited_clients(&self) -> Found {
        let limited = self.identities.iter().filter(|of| of.last_minute.limited_share >= LIMITED_SHARE);
        let count = limited.clone().count();
        let most = limited.max_by_key(|identity| identity.last_minute.limited)?;
        let more = if count > 1 { ", and some of other identities" } else { "" };
        let minute = &most.last_minute;
        let percent = 100.0 * minute.limited as f64 / minute.requests.max(1) as f64;
        let message = format!(
            "in the last {}, {percent:.1} % of the requests of identity {} were slowed or denied ({} of {}){more}: raise \
             rate or add sources in [[identities]]; or have those clients ask for less",
            seconds(self.last_minute.over_s),
            most.name,
            Grouped(minute.limited),
            Grouped(minute.requests),
        );
        Some((Effect::Look, message))
    }

    /// Finds that the budget for queued bytes is nearly used up.
    fn find_full_queues(&self) -> Found {
        let Connections { queued_bytes, queued_bytes_max, .. } = self.connections;
        if (queued_bytes as f64) < QUEUES_SHARE * queued_bytes_max.max(1) as f64 {
            return None;
        }
        let message = format!(
            "{} of {} bytes queued: the daemon reads no more requests of clients that do not take their replies, and \
             closes their connections after limits.stall_timeout; see who they are, or raise limits.max_queued_bytes",
            Grouped(queued_bytes),
            Grouped(queued_bytes_max)
        );
        Some((Effect::Look, message))
    }

    /// Finds that requests are slow.
    fn find_latency(&self) -> Found {
        if self.last_minute.slow_share < SLOW_SHARE {
            return None;
        }
        let p99 = self.last_minute.p99_us.map_or(0.0, |us| us / 1e6);
        let mut reason =
            String::from("see whether requests wait for IDs, and whether the machine is short of CPU");
        if makes_wait(&self.ceilings) {
            let raise = seconds(self.ceilings.usual_raise_s);
            reason = format!(
                "requests waited for storage, which takes {raise} to raise a ceiling: see the finding about ceilings"
            );
        }
        let message = format!(
            "slow: 99 % within {} in the last minute, where up to {} is expected; {reason}",
            seconds(p99),
            seconds(self.slow_s())
        );
        Some((Effect::Look, message))
    }

    /// Finds that the wall clock is behind or held. A source that hands out nothing because of this
    /// has the finding `clock` as well.
    fn find_wall_clock(&self) -> Found {
        let by = seconds(self.clock.by_s);
        let found = match self.clock.state {
            ClockState::Steady => return None,
            ClockState::Behind => format!("the wall clock is {by} behind IDs already handed out"),
            ClockState::Held => format!(
                "the wall clock stepped forward by {by}, and is not followed until the step has lasted clock.step_hold"
            ),
        };
        Some((Effect::Look, format!("{found}: check time synchronisation")))
    }

    /// Finds that the whole daemon waits for a worker ID, that the coordinator does not answer, or that a
    /// ceiling there is reached. An outage alone does not make the daemon unready, because it
    /// affects all daemons of the fleet at once.
    fn find_fleet(&self) -> Found {
        let fleet = self.fleet.as_ref()?;
        if let Some(reason) = &fleet.waits_for {
            let message = format!("waits for a worker ID, and hands out nothing: {reason}");
            return Some((Effect::Refuses, message));
        }
        if fleet.left_s <= 0.0 {
            let raise = match &fleet.silent {
                Some(reason) => format!("cannot be raised: {reason}"),
                None => String::from("being raised"),
            };
            let message = format!(
                "the ceiling at the coordinator is reached, and {raise}; refuses with no_ceiling until it is raised"
            );
            return Some((Effect::Refuses, message));
        }
        let reason = fleet.silent.as_ref()?;
        let left = seconds(fleet.left_s);
        let message =
            format!("the coordinator does not answer: {reason}; IDs last for another {left} without it");
        let effect = if fleet.left_s < FLEET_LEFT_S { Effect::RefusesSoon } else { Effect::Look };
        Some((effect, message))
    }

    /// Finds that the certificate for the coordinator expires soon or has expired. Open connections
    /// to the coordinator are not affected.
    fn find_fleet_certificate(&self) -> Found {
        let ends_unix_s = self.fleet.as_ref()?.certificate_ends_unix_s? as f64;
        let left_s = ends_unix_s - (self.started_unix_s + self.uptime_s);
        let message = if left_s <= 0.0 {
            String::from(
                "fleet.certificate has expired: the coordinator refuses new connections; renew it, and its key",
            )
        } else {
            let left = seconds(left_s);
            format!(
                "fleet.certificate ends in {left}; the coordinator refuses it then: renew it, and its key"
            )
        };
        (left_s < FLEET_CERTIFICATE_S).then_some((Effect::Look, message))
    }

    /// Finds that clients refuse the certificate of TLS listeners, or soon will. Open connections
    /// and connections without TLS are still served.
    fn find_certificate(&self) -> Found {
        let warning = self.certificate.as_ref()?.warning.as_ref()?;
        Some((Effect::Look, warning.clone()))
    }

    /// Finds that storage is slow, or that it fails to raise a source's ceiling.
    fn find_ceiling(&self, source: &SourceStatus) -> Found {
        if let Some(awaits) = &source.awaits {
            // A daemon with another source that serves stays ready.
            let serves = self.sources.iter().any(|source| source.awaits.is_none());
            let effect = if serves { Effect::RefusesSome } else { Effect::Refuses };
            return Some((effect, format!("has not begun: {awaits}")));
        }
        let ceilings = &self.ceilings;
        let is_elsewhere = ceilings.lost.is_some()
            || source.ticket().is_some_and(|ticket| ticket.restored || ticket.shared)
            || source.fleet_headroom_s == Some(0.0);
        if is_elsewhere {
            return None;
        }
        let is_reached = source.is_ceiling_reached();
        let left = source.left();
        let took_s = ceilings.in_flight_s;
        let usual_s = ceilings.usual_raise_s;
        let took = seconds(took_s);
        let usual = seconds(usual_s);
        let horizon_s = ceilings.horizon_s;
        let slowest_s = ceilings.slowest_raise_s;
        let (effect, found) = match &ceilings.failing {
            Some(reason) if is_reached => (
                Effect::Refuses,
                format!(
                    "reached, and cannot be raised: {reason}; refuses with no_ceiling until storage works"
                ),
            ),
            Some(reason) => {
                (Effect::RefusesSoon, format!("cannot be raised: {reason}; IDs last for another {left}"))
            }
            None if is_reached && took_s > horizon_s => (
                Effect::Refuses,
                format!(
                    "reached; storage has taken {took} so far to raise the ceiling; refuses with no_ceiling until storage answers"
                ),
            ),
            None if usual_s > LONG_RAISE_SHARE * (horizon_s + source.default_wait_s) => (
                Effect::Refuses,
                format!(
                    "storage takes {usual} to raise the ceiling, so it stays reached for longer than requests wait; refuses \
                     some with no_ceiling"
                ),
            ),
            None if makes_wait(ceilings) => {
                (Effect::RefusesSoon, format!("storage takes {usual} to raise the ceiling, so requests wait"))
            }
            None if slowest_s > SLOW_RAISE_SHARE * horizon_s => (
                Effect::Look,
                format!(
                    "storage took up to {} in the last minute to raise the ceiling; above {}, requests wait",
                    seconds(slowest_s),
                    seconds(LONG_RAISE_SHARE * horizon_s)
                ),
            ),
            None => return None,
        };
        let message = format!("{found}: check the state directory's disk");
        Some((effect, message))
    }

    /// Finds that requests to a source are refused, or soon will be refused.
    fn find_refusals(&self, source: &SourceStatus) -> Found {
        let share = source.last_minute.exhausted_share;
        if share >= REFUSED_SHARE {
            let effect = if share >= REFUSED_SHARE_PAGE { Effect::RefusesSome } else { Effect::Look };
            return Some((effect, self.refused_message(source)));
        }
        let snowflake = source.snowflake()?;
        // If the clock or the ceiling delays the source, other findings say why.
        let is_held_up = source.stands_s() > 0.0 || source.is_ceiling_reached();
        let is_long = snowflake.wait_queue_s >= WAIT_QUEUE_SHARE * source.default_wait_s;
        if source.waiting_ids == 0 || !is_long || is_held_up {
            return None;
        }
        let message = format!(
            "saturated: {} requests wait for {} IDs, which take {}; more requests are refused with exhausted: {}",
            Grouped(source.waiting_requests),
            Grouped(source.waiting_ids),
            seconds(snowflake.wait_queue_s),
            more_worker_ids(source)
        );
        Some((Effect::Look, message))
    }

    fn refused_message(&self, source: &SourceStatus) -> String {
        let minute = &source.last_minute;
        let percent = 100.0 * minute.exhausted as f64 / minute.requests.max(1) as f64;
        format!(
            "refused {percent:.1} % of the requests of the last {} with exhausted ({} of {}): {}",
            seconds(self.last_minute.over_s),
            Grouped(minute.exhausted),
            Grouped(minute.requests),
            more_worker_ids(source)
        )
    }
}

/// Returns true if requests wait for storage.
fn makes_wait(ceilings: &CeilingsStatus) -> bool {
    ceilings.usual_raise_s > LONG_RAISE_SHARE * ceilings.horizon_s
}

fn more_worker_ids(source: &SourceStatus) -> String {
    match source.snowflake() {
        Some(snowflake) => format!(
            "clients ask for more IDs than the layout yields ({} IDs/s), or wait too briefly: give the source more worker IDs, which no other daemon uses",
            Grouped(snowflake.ids_per_second)
        ),
        None => String::from("the counter has no numbers left for these requests"),
    }
}

/// Finds that a source hands out nothing because the clock is behind.
fn find_clock(source: &SourceStatus) -> Found {
    let snowflake = source.snowflake().filter(|snowflake| snowflake.stands_s > 0.0)?;
    let wait = seconds(snowflake.stands_s);
    let refuses = format!("refuses with clock_behind for another {wait}");
    let message = if snowflake.yet_to_begin {
        format!(
            "keeps no state, and the clock has not reached its first tick: {refuses}; keep a state (state_dir)"
        )
    } else {
        format!(
            "the wall clock is too far behind the next ID: {refuses}; set the clock right, or give the source a worker \
             ID that was never used"
        )
    };
    Some((Effect::Refuses, message))
}

fn find_layout_end(snowflake: &SnowflakeStatus) -> Found {
    let ends = &snowflake.layout_ends;
    let years = snowflake.layout_years_left;
    let another = "another layout (a wider time field, or, for a table without its IDs, a later epoch)";
    if years <= 0.0 {
        let message = format!("the layout ended {ends}: change to {another}");
        return Some((Effect::Refuses, message));
    }
    let days = (years * 365.25) as u64;
    let message = format!("the layout ends {ends}, in {days} days: plan for {another}");
    (years < LAYOUT_YEARS).then_some((Effect::Look, message))
}

fn find_numbers_end(ticket: &TicketStatus) -> Found {
    let another = "move its table to larger IDs, or to a source with a layout";
    if ticket.restored {
        let message = "another process, or another copy of the machine that was restored from a snapshot, may hand out the \
                       same numbers: stop this daemon, and run `snowbank ticket set` with the highest number that any copy \
                       handed out";
        return Some((Effect::CouldRepeat, message.to_owned()));
    }
    if ticket.left == 0 {
        let message = format!("the counter has ended: {another}");
        return Some((Effect::Refuses, message));
    }
    let left = counted(ticket.left, "number");
    let percent = 100.0 * ticket.left_share;
    let message = format!("{left} left, {percent:.2} % of all: plan to {another}");
    (ticket.left_share < NUMBERS_SHARE).then_some((Effect::Look, message))
}

#[cfg(test)]
mod tests;
