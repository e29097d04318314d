//! Derives the findings from the samples. The thresholds of all findings are in this file, except
//! two. That of the listeners' certificate is in `tls.rs`, because `snowbank check` and a start
//! warn by it, too. The length of a held step is in `clock`. The windows of time are in
//! `recent.rs`. The page, `snowbank status`, `/readyz`, the log and the metric `snowbank_finding`
//! show the findings. The alerts use this metric.

use super::figures::Figure::*;
use super::figures::Group;
use super::finding::{Effect, Finding};
use super::samples::{Samples, Subject};
use crate::amounts::{counted, seconds};
use crate::config::Grouped;

/// If at least this share of a source's requests is refused with `exhausted`, there is a finding.
/// Refusals for another reason have a finding of their own. At this share, one request in 10,000
/// fails if clients try twice, and nobody notices.
const REFUSED_SHARE: f64 = 0.01;
/// If at least this share of a source's requests is refused, alerts page somebody. At this share,
/// one request in a hundred fails if clients try twice.
const REFUSED_SHARE_PAGE: f64 = 0.1;
/// If at least this share of requests takes longer than [`slow_s`], there is a finding. At
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
type Find = fn(&Samples) -> Found;
type FindOfSource = fn(&Samples, &Subject) -> Found;

/// The subjects of findings about the daemon, each with the function that looks for a finding. The
/// metrics have a series for each subject. A stop is not in this table, because nobody needs an
/// alert about a stop.
const DAEMON: [(&str, Find); 11] = [
    ("worker_ids", |samples| find_lost_worker_ids(&samples.daemon)),
    ("reload", find_refused_reload),
    ("connections", |samples| find_full_connections(&samples.daemon)),
    ("authorization", |samples| find_unauthorized(&samples.daemon)),
    ("client_limits", find_limited_clients),
    ("queues", |samples| find_full_queues(&samples.daemon)),
    ("latency", find_latency),
    ("wall_clock", |samples| find_wall_clock(&samples.daemon)),
    ("fleet", |samples| find_fleet(&samples.daemon)),
    ("fleet_certificate", find_fleet_certificate),
    ("certificate", |samples| Some((Effect::Look, samples.daemon.text(CertificateWarning)?.to_owned()))),
];

/// The subjects of findings about a source, each with the function that looks for a finding.
const SOURCE: [(&str, FindOfSource); 5] = [
    ("clock", |_, source| find_clock(source)),
    ("ceiling", find_ceiling),
    ("refusals", find_refusals),
    ("layout", |_, source| find_layout_end(source)),
    ("numbers", |_, source| find_numbers_end(source)),
];

/// Returns the findings, the worst first. What refuses the requests of a source makes the daemon
/// unready only while no source serves.
pub(super) fn find(samples: &Samples) -> Vec<Finding> {
    let mut findings = Vec::new();
    if samples.daemon.is(Draining) {
        let message = "send requests to other daemons, because this one closes its listeners soon";
        findings.push(Finding {
            name: "stop".into(),
            source: None,
            effect: Effect::Refuses,
            message: message.into(),
        });
    }
    for (name, find) in DAEMON {
        if let Some((effect, message)) = find(samples) {
            findings.push(Finding { name: name.into(), source: None, effect, message });
        }
    }
    for source in samples.sources() {
        for (name, find) in SOURCE {
            let has_begun = source.text(Awaits).is_none() || name == "ceiling";
            if has_begun && let Some((effect, message)) = find(samples, source) {
                let source = Some(source.name.clone());
                findings.push(Finding { name: name.into(), source, effect, message });
            }
        }
    }
    if samples.sources().any(|source| serves(source, &findings)) {
        // A load balancer that left this daemon would take the other sources from their clients.
        let is_of_some = |finding: &&mut Finding| finding.source.is_some() || finding.name == "fleet";
        for finding in findings.iter_mut().filter(is_of_some).filter(|of| of.effect == Effect::Refuses) {
            finding.effect = Effect::RefusesSome;
        }
    }
    // The sort is stable, so findings with the same effect stay in this order.
    findings.sort_by_key(|finding| finding.effect);
    findings
}

/// Returns whether a source hands out IDs. A source that will soon refuse does not count,
/// because it has the disk of all other sources.
fn serves(source: &Subject, findings: &[Finding]) -> bool {
    let stops = |effect| matches!(effect, Effect::CouldRepeat | Effect::Refuses | Effect::RefusesSoon);
    let of_it = |finding: &&Finding| finding.source.as_ref() == Some(&source.name);
    let has_begun = source.text(Awaits).is_none() && !is_fleet_ceiling_reached(source);
    has_begun && !findings.iter().filter(of_it).any(|finding| stops(finding.effect))
}

fn is_fleet_ceiling_reached(source: &Subject) -> bool {
    source.measured(FleetHeadroomS).is_some_and(|left_s| left_s <= 0.0)
}

/// Adds a sample for each finding except `stop`. A sample without a finding has the value 0, so the
/// value returns to 0 when a finding ends.
pub(crate) fn put_levels(samples: &mut Samples, findings: &[Finding]) {
    let daemon = DAEMON.map(|(name, _)| (name, None));
    let sources = samples.others.iter().filter(|of| of.group == Group::Source);
    let by_source = sources.flat_map(|of| SOURCE.map(|(name, _)| (name, Some(of.name.clone()))));
    let levels = daemon.into_iter().chain(by_source).map(|(name, source)| {
        let found = findings.iter().find(|found| found.name == name && found.source == source);
        let level = found.map_or(0, |found| if found.effect.is_urgent() { 2 } else { 1 });
        (vec![name.to_owned(), source.unwrap_or_default()], level)
    });
    for (labels, level) in levels.collect::<Vec<_>>() {
        samples.daemon.put_labelled(FindingLevel, labels, level);
    }
}

/// Returns the effect of the worst finding, in a few words.
pub(super) fn headline(samples: &Samples, worst: Option<&Finding>) -> String {
    let Some(worst) = worst else { return String::from("Serving, all is as it should be") };
    if samples.daemon.is(Draining) {
        return String::from("Stopping");
    }
    let of = match &worst.source {
        Some(source) if samples.sources().count() > 1 => format!(" of source {source}"),
        _ => String::new(),
    };
    worst.effect.headline(&of)
}

/// Returns the time above which a request counts as slow.
pub(super) fn slow_s(samples: &Samples) -> f64 {
    samples.sources().map(|source| SLOW_WAIT_SHARE * source.measure(DefaultWaitS)).fold(0.0, f64::max)
}

fn find_lost_worker_ids(daemon: &Subject) -> Found {
    let reason = daemon.text(Lost)?;
    let advice = "no IDs are handed out any more: stop this daemon, and find the other one";
    Some((Effect::CouldRepeat, format!("lost: {reason}; {advice}")))
}

fn find_refused_reload(samples: &Samples) -> Found {
    let reason = samples.daemon.text(ReloadRefused)?;
    let ago = seconds((samples.now_s() - samples.daemon.measure(ReloadAt)).max(0.0));
    let effect = "the earlier configuration stays live, and the next start may refuse the file";
    let message = format!("the reload {ago} ago was refused: {reason}; {effect}");
    Some((Effect::Look, message))
}

/// Finds that so many connections are in use that new clients may not get a connection.
fn find_full_connections(daemon: &Subject) -> Found {
    let [open, max] = [Open, OpenMax].map(|figure| daemon.count(figure));
    let found = format!("{} of {} connections in use", Grouped(open), Grouped(max));
    let wanted = daemon.count(OpenWanted);
    let advice = more_connections(wanted);
    let refused = daemon.count(MinuteConnectionsRefused);
    if refused > 0 || open >= max {
        let refused = Grouped(refused);
        let message = format!("{found}; {refused} refused with too_busy in the last seconds: {advice}");
        return Some((Effect::RefusesSome, message));
    }
    if wanted > 0 {
        return Some((Effect::Look, format!("{found}: {advice}")));
    }
    let message = format!("{found}; when all are in use, new ones get too_busy: {advice}");
    let is_near = open as f64 >= CONNECTIONS_SHARE * max as f64;
    is_near.then_some((Effect::Look, message))
}

/// Says what allows more connections. `wanted` is the setting if the limit of open files allows fewer,
/// else 0.
pub(crate) fn more_connections(wanted: u64) -> String {
    if wanted == 0 {
        return String::from(
            "raise limits.max_connections and the limit of open files, or see who holds them",
        );
    }
    format!(
        "the limit of open files allows no more, and max_connections is {}; raise the limit (LimitNOFILE=, ulimit -n), \
         or lower the setting, and restart",
        Grouped(wanted)
    )
}

/// Finds that clients do not authorize themselves.
fn find_unauthorized(daemon: &Subject) -> Found {
    if daemon.count(UnauthorizedLately) < UNAUTHORIZED {
        return None;
    }
    let refused = Grouped(daemon.count(MinuteUnauthorized));
    let addresses = Grouped(daemon.count(UnauthorizedAddresses));
    let message = format!(
        "{refused} requests or connections refused in the last minute, from {addresses} addresses, because clients did \
         not authorize themselves (a wrong token or none, a TLS handshake that failed): the log names the addresses; \
         give those clients a token or a certificate, or keep them out"
    );
    Some((Effect::Look, message))
}

/// Finds identities whose limits slow or deny more than a few of their requests.
fn find_limited_clients(samples: &Samples) -> Found {
    let identities = samples.of(Group::Identity);
    let limited = identities.filter(|of| of.measure(MinuteLimitedShare) >= LIMITED_SHARE);
    let (count, most) = limited.fold((0, None::<&Subject>), |(count, most), identity| {
        let is_more = most.is_none_or(|most| identity.count(MinuteLimited) >= most.count(MinuteLimited));
        (count + 1, if is_more { Some(identity) } else { most })
    });
    let most = most?;
    let more = if count > 1 { ", and some of other identities" } else { "" };
    let [requests, limited] = [MinuteIdentityRequests, MinuteLimited].map(|figure| most.count(figure));
    let percent = 100.0 * limited as f64 / requests.max(1) as f64;
    let message = format!(
        "in the last {}, {percent:.1} % of the requests of identity {} were slowed or denied ({} of {}){more}: raise \
         rate or add sources in [[identities]]; or have those clients ask for less",
        seconds(samples.daemon.measure(MinuteS)),
        most.name,
        Grouped(limited),
        Grouped(requests),
    );
    Some((Effect::Look, message))
}

/// Finds that the budget for queued bytes is nearly used up.
fn find_full_queues(daemon: &Subject) -> Found {
    let [queued, max] = [QueuedBytes, QueuedBytesMax].map(|figure| daemon.count(figure));
    if (queued as f64) < QUEUES_SHARE * max.max(1) as f64 {
        return None;
    }
    let message = format!(
        "{} of {} bytes queued: the daemon reads no more requests of clients that do not take their replies, and \
         closes their connections after limits.stall_timeout; see who they are, or raise limits.max_queued_bytes",
        Grouped(queued),
        Grouped(max)
    );
    Some((Effect::Look, message))
}

/// Finds that requests are slow.
fn find_latency(samples: &Samples) -> Found {
    let daemon = &samples.daemon;
    if daemon.measure(MinuteSlowShare) < SLOW_SHARE {
        return None;
    }
    let mut reason =
        String::from("see whether requests wait for IDs, and whether the machine is short of CPU");
    if makes_wait(daemon) {
        let raise = seconds(daemon.measure(UsualRaiseS));
        reason = format!(
            "requests waited for storage, which takes {raise} to raise a ceiling: see the finding about ceilings"
        );
    }
    let message = format!(
        "slow: 99 % within {} in the last minute, where up to {} is expected; {reason}",
        seconds(daemon.measure(MinuteP99Us) / 1e6),
        seconds(slow_s(samples))
    );
    Some((Effect::Look, message))
}

/// Finds that the wall clock is behind or held. A source that hands out nothing because of this has
/// the finding `clock` as well.
fn find_wall_clock(daemon: &Subject) -> Found {
    let by = seconds(daemon.measure(ClockByS));
    let found = match daemon.text(ClockState)? {
        "behind" => format!("the wall clock is {by} behind IDs already handed out"),
        "held" => format!(
            "the wall clock stepped forward by {by}, and is not followed until the step has lasted clock.step_hold"
        ),
        _ => return None,
    };
    Some((Effect::Look, format!("{found}: check time synchronisation")))
}

/// Finds that the whole daemon waits, that the coordinator does not answer, or that a
/// ceiling there is reached. An outage alone does not make the daemon unready, because it affects
/// all daemons of the fleet at once.
fn find_fleet(daemon: &Subject) -> Found {
    if let Some(reason) = daemon.text(FleetWaitsFor) {
        let message = format!("waits, and hands out nothing: {reason}");
        return Some((Effect::Refuses, message));
    }
    let left_s = daemon.measured(FleetLeftS)?;
    let silent = daemon.text(FleetSilent);
    if left_s <= 0.0 {
        let raise = match silent {
            Some(reason) => format!("cannot be raised: {reason}"),
            None => String::from("being raised"),
        };
        let message = format!(
            "the ceiling at the coordinator is reached, and {raise}; refuses with no_ceiling until it is raised"
        );
        return Some((Effect::Refuses, message));
    }
    let reason = silent?;
    let left = seconds(left_s);
    let message =
        format!("the coordinator does not answer: {reason}; IDs last for another {left} without it");
    let effect = if left_s < FLEET_LEFT_S { Effect::RefusesSoon } else { Effect::Look };
    Some((effect, message))
}

/// Finds that the certificate for the coordinator expires soon or has expired. Open connections to
/// the coordinator are not affected.
fn find_fleet_certificate(samples: &Samples) -> Found {
    let left_s = samples.daemon.measured(FleetCertificateEnds)? - samples.now_s();
    let message = if left_s <= 0.0 {
        String::from(
            "fleet.certificate has expired: the coordinator refuses new connections; renew it, and its key",
        )
    } else {
        let left = seconds(left_s);
        format!("fleet.certificate ends in {left}; the coordinator refuses it then: renew it, and its key")
    };
    (left_s < FLEET_CERTIFICATE_S).then_some((Effect::Look, message))
}

/// Finds that storage is slow, or that it fails to raise a source's ceiling.
fn find_ceiling(samples: &Samples, source: &Subject) -> Found {
    if let Some(awaits) = source.text(Awaits) {
        // The finding `fleet` has the cause.
        if samples.daemon.text(FleetWaitsFor).is_some() {
            return None;
        }
        return Some((Effect::Refuses, format!("has not begun: {awaits}")));
    }
    let daemon = &samples.daemon;
    let is_elsewhere = daemon.text(Lost).is_some()
        || source.is(TicketRestored)
        || source.is(TicketShared)
        || is_fleet_ceiling_reached(source);
    if is_elsewhere {
        return None;
    }
    let is_reached = source.is_ceiling_reached();
    let took_s = daemon.measure(InFlightS);
    let usual_s = daemon.measure(UsualRaiseS);
    let horizon_s = daemon.measure(HorizonS);
    let slowest_s = daemon.measure(SlowestRaiseS);
    let usual = seconds(usual_s);
    let (effect, found) = match daemon.text(Failing) {
        Some(reason) if is_reached => (
            Effect::Refuses,
            format!("reached, and cannot be raised: {reason}; refuses with no_ceiling until storage works"),
        ),
        Some(reason) => {
            let left = left(source);
            (Effect::RefusesSoon, format!("cannot be raised: {reason}; IDs last for another {left}"))
        }
        None if is_reached && took_s > horizon_s => (
            Effect::Refuses,
            format!(
                "reached; storage has taken {} so far to raise the ceiling; refuses with no_ceiling until storage answers",
                seconds(took_s)
            ),
        ),
        None if usual_s > LONG_RAISE_SHARE * (horizon_s + source.measure(DefaultWaitS)) => (
            Effect::Refuses,
            format!(
                "storage takes {usual} to raise the ceiling, so it stays reached for longer than requests wait; refuses \
                 some with no_ceiling"
            ),
        ),
        None if makes_wait(daemon) => {
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

/// Finds that requests to a source are refused, or soon will be refused. If its numbers or its layout
/// have ended, another finding says so.
fn find_refusals(samples: &Samples, source: &Subject) -> Found {
    let end = find_numbers_end(source).or_else(|| find_layout_end(source));
    if end.is_some_and(|(effect, _)| effect == Effect::Refuses) {
        return None;
    }
    let share = source.measure(MinuteExhaustedShare);
    if share >= REFUSED_SHARE {
        let [requests, exhausted] = [MinuteSourceRequests, MinuteExhausted].map(|of| source.count(of));
        let effect = if share >= REFUSED_SHARE_PAGE { Effect::RefusesSome } else { Effect::Look };
        let message = format!(
            "refused {:.1} % of the requests of the last {} with exhausted ({} of {}): {}",
            100.0 * exhausted as f64 / requests.max(1) as f64,
            seconds(samples.daemon.measure(MinuteS)),
            Grouped(exhausted),
            Grouped(requests),
            more_worker_ids(source)
        );
        return Some((effect, message));
    }
    let queue_s = source.measured(WaitQueueS)?;
    let waiting = source.count(WaitingIds);
    // If the clock or the ceiling delays the source, other findings say why.
    let is_held_up = source.measure(StandsS) > 0.0 || source.is_ceiling_reached();
    let is_long = queue_s >= WAIT_QUEUE_SHARE * source.measure(DefaultWaitS);
    if waiting == 0 || !is_long || is_held_up {
        return None;
    }
    let message = format!(
        "saturated: {} requests wait for {} IDs, which take {}; more requests are refused with exhausted: {}",
        Grouped(source.count(WaitingRequests)),
        Grouped(waiting),
        seconds(queue_s),
        more_worker_ids(source)
    );
    Some((Effect::Look, message))
}

/// Returns true if requests wait for storage.
fn makes_wait(daemon: &Subject) -> bool {
    daemon.measure(UsualRaiseS) > LONG_RAISE_SHARE * daemon.measure(HorizonS)
}

/// Returns in words how long a source's IDs last, or how many numbers are left, without a raise.
pub(crate) fn left(source: &Subject) -> String {
    if source.is_ticket() {
        return format!("{} numbers", Grouped(source.count(TicketReserved)));
    }
    seconds(source.measure(HeadroomS))
}

fn more_worker_ids(source: &Subject) -> String {
    if source.is_ticket() {
        return String::from("the counter has no numbers left for these requests");
    }
    format!(
        "clients ask for more IDs than the layout yields ({} IDs/s), or wait too briefly: give the source more worker IDs, which no other daemon uses",
        Grouped(source.count(IdsPerSecond))
    )
}

/// Finds that a source hands out nothing because the clock is behind.
fn find_clock(source: &Subject) -> Found {
    let stands_s = source.measured(StandsS).filter(|stands_s| *stands_s > 0.0)?;
    let refuses = format!("refuses with clock_behind for another {}", seconds(stands_s));
    let message = if source.is(YetToBegin) {
        format!(
            "keeps no state, and the clock has not reached its first tick: {refuses}; keep a state (state_dir)"
        )
    } else {
        format!(
            "the wall clock is too far behind the next ID: {refuses}; set the clock right, or, if it is right, give the \
             source a worker ID that was never used"
        )
    };
    Some((Effect::Refuses, message))
}

fn find_layout_end(source: &Subject) -> Found {
    let years = source.measured(LayoutYearsLeft)?;
    let ends = source.text(LayoutEnds).unwrap_or_default();
    let another = "another layout (a wider time field, or, for a table without its IDs, a later epoch)";
    if years <= 0.0 {
        let message = format!("the layout ended {ends}: change to {another}");
        return Some((Effect::Refuses, message));
    }
    let days = (years * 365.25) as u64;
    let message = format!("the layout ends {ends}, in {days} days: plan for {another}");
    (years < LAYOUT_YEARS).then_some((Effect::Look, message))
}

fn find_numbers_end(source: &Subject) -> Found {
    let left_share = source.measured(TicketLeftShare)?;
    let another =
        "raise `maximum`, if one is set, or move its table to larger IDs, or to a source with a layout";
    if source.is(TicketRestored) {
        let message = "another process, or another copy of the machine that was restored from a snapshot, may hand out the \
                       same numbers: stop this daemon, and run `snowbank ticket set` with the highest number that any copy \
                       handed out";
        return Some((Effect::CouldRepeat, message.to_owned()));
    }
    let left = source.count(TicketLeft);
    if left == 0 {
        let message = format!("the counter has ended at its maximum: {another}");
        return Some((Effect::Refuses, message));
    }
    let left = counted(left, "number");
    let percent = 100.0 * left_share;
    let message = format!("{left} left, {percent:.2} % of all: plan to {another}");
    (left_share < NUMBERS_SHARE).then_some((Effect::Look, message))
}

#[cfg(test)]
mod tests;
