//! Puts a status into words, for the page and `snowbank status`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::finding::seconds;
use super::status::{
    CeilingsStatus, ClockState, ClockStatus, FleetStatus, KindStatus, SnowflakeStatus, SourceStatus, Status,
    TicketStatus,
};
use crate::config::Grouped;

/// A fact about the daemon, as a line of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Fact {
    fn new(name: impl Into<String>, text: String) -> Fact {
        Fact { name: name.into(), text }
    }
}

impl Status {
    /// Fills in the facts of the daemon and of its sources.
    pub(super) fn describe(&mut self) {
        let mut facts = vec![Fact::new("connections", self.connections_in_words())];
        for protocol in &self.protocols {
            let text = format!(
                "{} open on {}; {}, {}",
                Grouped(protocol.connections),
                protocol.addresses.join(", "),
                counted(protocol.counts.requests, "request"),
                counted(protocol.counts.errors, "error")
            );
            facts.push(Fact::new(protocol.name.clone(), text));
        }
        facts.push(Fact::new("admin", format!("on {}", self.admin_addresses.join(", "))));
        facts.push(Fact::new("last minute", self.last_minute_in_words()));
        facts.push(Fact::new("errors", self.errors_in_words()));
        facts.push(Fact::new("wall clock", clock_in_words(&self.clock)));
        facts.push(Fact::new("ceilings", ceilings_in_words(&self.ceilings)));
        facts.push(Fact::new("worker IDs", self.worker_ids_in_words()));
        facts.extend(self.fleet.as_ref().map(|fleet| Fact::new("fleet", fleet_in_words(fleet))));
        if let Some(certificate) = &self.certificate {
            let ends = instant(certificate.ends_unix_s);
            facts.push(Fact::new("certificate", format!("ends {ends}")));
        }
        facts.push(Fact::new("last reload", self.reload_in_words()));
        self.facts = facts;
        let now_s = self.started_unix_s + self.uptime_s;
        let ceilings = &self.ceilings;
        for source in &mut self.sources {
            source.facts = source_in_words(source, ceilings, now_s);
        }
    }

    fn connections_in_words(&self) -> String {
        let connections = &self.connections;
        format!(
            "{} open of {}; {} accepted, {} refused; {} have yet to authorize themselves; {} of {} bytes queued",
            Grouped(connections.open),
            Grouped(connections.max),
            Grouped(connections.accepted),
            Grouped(connections.refused),
            Grouped(connections.unauthorized),
            Grouped(connections.queued_bytes),
            Grouped(connections.queued_bytes_max),
        )
    }

    fn last_minute_in_words(&self) -> String {
        let minute = &self.last_minute;
        let p99 = minute.p99_us.map_or_else(|| "–".to_owned(), |us| seconds(us / 1e6));
        let errors = Grouped(minute.errors);
        let answers = counted(minute.answers, "request");
        format!("{errors} of {answers} answered with an error; 99 % within {p99}")
    }

    fn errors_in_words(&self) -> String {
        let errors = self.errors.iter().filter(|(_, count)| **count > 0);
        let errors: Vec<String> = errors.map(|(code, count)| format!("{code} {}", Grouped(*count))).collect();
        if errors.is_empty() { String::from("none") } else { errors.join(", ") }
    }

    fn reload_in_words(&self) -> String {
        let Some(reload) = &self.last_reload else { return String::from("none since the start") };
        let result = if reload.refused.is_some() { "refused" } else { "done" };
        format!("{result} at {}", instant(reload.at_unix_s))
    }

    fn worker_ids_in_words(&self) -> String {
        match (&self.ceilings.lost, &self.fleet) {
            (Some(reason), _) => format!("lost: {reason}"),
            (None, Some(fleet)) if fleet.waits_for.is_some() => String::from("none yet"),
            (None, Some(_)) => String::from("held by this daemon alone"),
            (None, None) => {
                String::from("locked on this machine; only a fleet knows of other machines and containers")
            }
        }
    }
}

fn clock_in_words(clock: &ClockStatus) -> String {
    let by = seconds(clock.by_s);
    let wall = match clock.state {
        ClockState::Steady => String::from("runs as expected"),
        ClockState::Behind => format!("{by} behind IDs already handed out"),
        ClockState::Held => format!("stepped forward by {by}, not followed yet"),
    };
    format!("{wall}; {} back, {} forward", counted(clock.steps_back, "step"), clock.steps_forward)
}

fn ceilings_in_words(ceilings: &CeilingsStatus) -> String {
    let failures = match (&ceilings.failing, ceilings.failures) {
        (Some(reason), count) => format!("failed {}, the last time with: {reason}", times(count)),
        (None, 0) => String::from("never failed"),
        (None, count) => format!("failed {}, not now", times(count)),
    };
    let Some(ago_s) = ceilings.last_raise_ago_s else { return format!("not raised yet; {failures}") };
    format!(
        "raised {} in {} each, last {} ago; at most {} in the last minute; {failures}",
        times(ceilings.raises),
        seconds(ceilings.raising_s / ceilings.raises.max(1) as f64),
        seconds(ago_s),
        seconds(ceilings.slowest_raise_s),
    )
}

fn fleet_in_words(fleet: &FleetStatus) -> String {
    if let Some(reason) = &fleet.waits_for {
        return format!("no worker ID yet: {reason}");
    }
    let answers = match &fleet.silent {
        Some(reason) => format!("does not answer: {reason}"),
        None => String::from("answers"),
    };
    format!(
        "coordinator {answers}; IDs last for {} without it; ceilings raised {} there",
        seconds(fleet.left_s),
        times(fleet.raises)
    )
}

fn source_in_words(source: &SourceStatus, ceilings: &CeilingsStatus, now_s: f64) -> Vec<String> {
    let mut lines = match &source.kind {
        KindStatus::Snowflake(snowflake) => snowflake_in_words(source, snowflake, now_s),
        KindStatus::Ticket(ticket) => vec![ticket_in_words(ticket)],
    };
    lines.push(ceiling_in_words(source, ceilings));
    if source.waiting_requests > 0 {
        let requests = counted(source.waiting_requests, "request");
        let ids = Grouped(source.waiting_ids);
        lines.push(format!("waiting: {requests}, for {ids} IDs"));
    }
    lines
}

fn snowflake_in_words(source: &SourceStatus, snowflake: &SnowflakeStatus, now_s: f64) -> Vec<String> {
    let per_second = Grouped(snowflake.ids_per_second);
    let workers = &snowflake.worker_ids;
    let mut lines = vec![format!("{}; worker {workers}; at most {per_second}/s", snowflake.layout)];
    if let Some(headroom_s) = source.fleet_headroom_s {
        // `ahead_s` is added, because IDs are ahead of the wall clock during a catch-up.
        let until = instant(now_s + snowflake.ahead_s + headroom_s);
        let ahead = seconds(headroom_s);
        lines.push(format!("fleet: worker {workers} held by this daemon until {until}, {ahead} ahead"));
    }
    lines.push(if snowflake.ahead_s > 0.0 {
        let ahead = seconds(snowflake.ahead_s);
        let most = seconds(snowflake.max_ahead_s);
        let catching_up = "at half speed until the wall clock has caught up";
        format!("clock: {ahead} ahead of the wall clock, {catching_up}; at most {most} is allowed")
    } else {
        String::from("clock: follows the wall clock")
    });
    lines.push(format!("layout: lasts until {}", snowflake.layout_ends));
    lines
}

fn ticket_in_words(ticket: &TicketStatus) -> String {
    let place = if ticket.shared { " at the fleet's coordinator" } else { "" };
    let TicketStatus { increment, offset, left, .. } = ticket;
    let last = match ticket.last {
        Some(0) => String::from("no number handed out yet; "),
        Some(last) => format!("last number {last}; "),
        None => String::new(),
    };
    format!(
        "{last}ticket counter{place}; increment {increment}, offset {offset}; {} numbers left",
        Grouped(*left)
    )
}

fn ceiling_in_words(source: &SourceStatus, ceilings: &CeilingsStatus) -> String {
    let left = source.left();
    if ceilings.lost.is_some() || source.ticket().is_some_and(|ticket| ticket.restored) {
        return String::from("ceiling: revoked");
    }
    if source.ticket().is_some_and(|ticket| ticket.shared) {
        return format!("ceiling: {left} from the coordinator");
    }
    if !source.is_ceiling_reached() {
        return format!("ceiling: durable for {left} ahead");
    }
    String::from(if source.fleet_headroom_s == Some(0.0) {
        "ceiling: reached; the fleet's ceiling must be raised first"
    } else if source.ceiling_wanted {
        "ceiling: reached, and being raised"
    } else {
        "ceiling: reached; the next request raises it"
    })
}

fn instant(unix_s: f64) -> Timestamp {
    Timestamp::from_second(unix_s as i64).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Returns a count and its noun. The noun is singular if the count is 1.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", Grouped(count), if count == 1 { "" } else { "s" })
}

/// Returns how often something happened, in words.
pub(crate) fn times(count: u64) -> String {
    match count {
        1 => String::from("once"),
        count => format!("{} times", Grouped(count)),
    }
}
