//! Puts a status into words, for the page and `snowbank status`.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::amounts::{counted, seconds, times};
use crate::config::Grouped;
use crate::server::health::figures::Figure::*;
use crate::server::health::figures::{Figure, Group};
use crate::server::health::findings::left;
use crate::server::health::samples::{Samples, Subject};

/// Adds the facts of the daemon and of its sources.
pub(super) fn describe(samples: &mut Samples) {
    let facts = facts(samples).into_iter().map(|(name, text)| json!({ "name": name, "text": text }));
    let facts = Value::from_iter(facts);
    let now_s = samples.now_s();
    samples.daemon.put(Facts, facts);
    for source in samples.others.iter_mut().filter(|of| of.group == Group::Source) {
        let facts = source_in_words(source, &samples.daemon, now_s);
        source.put(SourceFacts, facts);
    }
}

/// Returns the facts about the daemon, as the lines of a table.
fn facts(samples: &Samples) -> Vec<(String, String)> {
    let daemon = &samples.daemon;
    let mut facts = vec![(String::from("connections"), connections_in_words(daemon))];
    for protocol in samples.of(Group::Protocol) {
        let text = format!(
            "{} open on {}; {}, {}",
            Grouped(protocol.count(ProtocolOpen)),
            protocol.texts(ProtocolAddresses),
            counted(protocol.count(ProtocolRequests), "request"),
            counted(protocol.count(ProtocolErrors), "error")
        );
        facts.push((protocol.name.clone(), text));
    }
    let others = [
        ("admin", Some(format!("on {}", daemon.texts(AdminAddresses)))),
        ("last minute", Some(last_minute_in_words(daemon))),
        ("errors", Some(counts_in_words(daemon, Errors))),
        ("closed", Some(counts_in_words(daemon, Closed))),
        ("wall clock", Some(clock_in_words(daemon))),
        ("ceilings", Some(ceilings_in_words(daemon))),
        ("worker IDs", Some(worker_ids_in_words(samples))),
        ("fleet", fleet_in_words(daemon)),
        ("certificate", daemon.measured(CertificateEnds).map(|ends| format!("ends {}", instant(ends)))),
        ("last reload", Some(reload_in_words(daemon))),
    ];
    facts.extend(others.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))));
    facts
}

fn connections_in_words(daemon: &Subject) -> String {
    let count = |figure| Grouped(daemon.count(figure));
    format!(
        "{} open of {}; {} accepted, {} refused; {} have yet to authorize themselves; {} of {} bytes queued",
        count(Open),
        count(OpenMax),
        count(Accepted),
        count(ConnectionsRefused),
        count(Unauthorized),
        count(QueuedBytes),
        count(QueuedBytesMax),
    )
}

fn last_minute_in_words(daemon: &Subject) -> String {
    let p99 = daemon.measured(MinuteP99Us).map_or_else(|| "–".to_owned(), |us| seconds(us / 1e6));
    let errors = Grouped(daemon.count(MinuteErrors));
    let answers = counted(daemon.count(MinuteAnswers), "request");
    format!("{errors} of {answers} answered with an error; 99 % within {p99}")
}

/// Returns the counts that are not 0, each with its name.
fn counts_in_words(daemon: &Subject, figure: Figure) -> String {
    let counts = daemon.counts(figure).filter(|(_, count)| *count > 0);
    let mut counts: Vec<String> = counts.map(|(name, count)| format!("{name} {}", Grouped(count))).collect();
    counts.sort();
    if counts.is_empty() { String::from("none") } else { counts.join(", ") }
}

fn reload_in_words(daemon: &Subject) -> String {
    let Some(at_unix_s) = daemon.measured(ReloadAt) else { return String::from("none since the start") };
    let result = if daemon.text(ReloadRefused).is_some() { "refused" } else { "done" };
    format!("{result} at {}", instant(at_unix_s))
}

fn worker_ids_in_words(samples: &Samples) -> String {
    let daemon = &samples.daemon;
    let mut with_layout = samples.sources().filter(|source| !source.is_ticket()).peekable();
    let has_none = with_layout.peek().is_some() && with_layout.all(|source| source.text(WorkerIds).is_none());
    if let Some(reason) = daemon.text(Lost) {
        return format!("lost: {reason}");
    }
    String::from(if daemon.text(FleetWaitsFor).is_some() || has_none {
        "none yet"
    } else if daemon.measured(FleetLeftS).is_some() {
        "held by this daemon alone"
    } else {
        "locked on this machine; only a fleet knows of other machines and containers"
    })
}

fn clock_in_words(daemon: &Subject) -> String {
    let by = seconds(daemon.measure(ClockByS));
    let wall = match daemon.text(ClockState) {
        Some("behind") => format!("{by} behind IDs already handed out"),
        Some("held") => format!("stepped forward by {by}, not followed yet"),
        _ => String::from("runs as expected"),
    };
    let steps = |direction| daemon.counts(ClockSteps).find(|(of, _)| *of == direction).map_or(0, |(_, n)| n);
    format!("{wall}; {} back, {} forward", counted(steps("back"), "step"), steps("forward"))
}

fn ceilings_in_words(daemon: &Subject) -> String {
    let failures = match (daemon.text(Failing), daemon.count(RaiseFailures)) {
        (Some(reason), count) => format!("failed {}, the last time with: {reason}", times(count)),
        (None, 0) => String::from("never failed"),
        (None, count) => format!("failed {}, not now", times(count)),
    };
    let Some(ago_s) = daemon.measured(LastRaiseAgoS) else {
        return format!("not raised yet; {failures}");
    };
    let raises = daemon.count(Raises);
    format!(
        "raised {} in {} each, last {} ago; at most {} in the last minute; {failures}",
        times(raises),
        seconds(daemon.measure(RaisingS) / raises.max(1) as f64),
        seconds(ago_s),
        seconds(daemon.measure(SlowestRaiseS)),
    )
}

fn fleet_in_words(daemon: &Subject) -> Option<String> {
    let left_s = daemon.measured(FleetLeftS)?;
    if let Some(reason) = daemon.text(FleetWaitsFor) {
        return Some(format!("waits: {reason}"));
    }
    let answers = match daemon.text(FleetSilent) {
        Some(reason) => format!("does not answer: {reason}"),
        None => String::from("answers"),
    };
    Some(format!(
        "coordinator {answers}; IDs last for {} without it; ceilings raised {} there",
        seconds(left_s),
        times(daemon.count(FleetRaises))
    ))
}

fn source_in_words(source: &Subject, daemon: &Subject, now_s: f64) -> Vec<String> {
    let mut lines =
        if source.is_ticket() { vec![ticket_in_words(source)] } else { snowflake_in_words(source, now_s) };
    lines.push(ceiling_in_words(source, daemon));
    let waiting = source.count(WaitingRequests);
    if waiting > 0 {
        let requests = counted(waiting, "request");
        let ids = Grouped(source.count(WaitingIds));
        lines.push(format!("waiting: {requests}, for {ids} IDs"));
    }
    lines
}

fn snowflake_in_words(source: &Subject, now_s: f64) -> Vec<String> {
    let per_second = Grouped(source.count(IdsPerSecond));
    let layout = source.text(Layout).unwrap_or_default();
    let workers = source
        .text(WorkerIds)
        .map_or_else(|| String::from("no worker ID yet"), |ids| format!("worker {ids}"));
    let ahead_s = source.measure(AheadS);
    let mut lines = vec![format!("{layout}; {workers}; at most {per_second}/s")];
    if let Some(headroom_s) = source.measured(FleetHeadroomS) {
        // `ahead_s` is added, because IDs are ahead of the wall clock during a catch-up.
        let until = instant(now_s + ahead_s + headroom_s);
        let ahead = seconds(headroom_s);
        lines.push(format!("fleet: {workers} held by this daemon until {until}, {ahead} ahead"));
    }
    let stands_s = source.measure(StandsS);
    lines.push(if stands_s > 0.0 {
        format!("clock: stands, and hands out nothing for another {}", seconds(stands_s))
    } else if ahead_s > 0.0 {
        let ahead = seconds(ahead_s);
        let most = seconds(source.measure(MaxAheadS));
        let catching_up = "at half speed until the wall clock has caught up";
        format!("clock: {ahead} ahead of the wall clock, {catching_up}; at most {most} is allowed")
    } else {
        String::from("clock: follows the wall clock")
    });
    lines.push(format!("layout: lasts until {}", source.text(LayoutEnds).unwrap_or_default()));
    lines
}

fn ticket_in_words(source: &Subject) -> String {
    let place = if source.is(TicketShared) { " at the fleet's coordinator" } else { "" };
    let last = match source.text(TicketLastText) {
        Some("0") => String::from("no number handed out yet; "),
        Some(last) if source.is(TicketLastIsExact) => format!("last number {last}; "),
        Some(last) => format!("last number at most {last}; "),
        None => String::new(),
    };
    format!(
        "{last}ticket counter{place}; increment {}, offset {}; {} numbers left",
        source.count(TicketIncrement),
        source.count(TicketOffset),
        Grouped(source.count(TicketLeft))
    )
}

fn ceiling_in_words(source: &Subject, daemon: &Subject) -> String {
    let left = left(source);
    if daemon.text(Lost).is_some() || source.is(TicketRestored) {
        return String::from("ceiling: revoked");
    }
    if source.text(Awaits).is_some() {
        return String::from("ceiling: none yet");
    }
    if source.is(TicketShared) {
        return format!("ceiling: {left} from the coordinator");
    }
    if !source.is_ceiling_reached() {
        return format!("ceiling: durable for {left} ahead");
    }
    if source.is_ticket() && source.count(TicketLeft) == 0 {
        return String::from("ceiling: at the maximum");
    }
    String::from(if source.measured(FleetHeadroomS) == Some(0.0) {
        "ceiling: reached; the fleet's ceiling must be raised first"
    } else if source.is(CeilingWanted) {
        "ceiling: reached, and being raised"
    } else {
        "ceiling: reached; the next request raises it"
    })
}

fn instant(unix_s: f64) -> Timestamp {
    Timestamp::from_second(unix_s as i64).unwrap_or(Timestamp::UNIX_EPOCH)
}
