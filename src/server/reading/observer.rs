//! The observer reads the daemon's status about once a second, or less often while no source is in
//! use. It logs changes of findings and of readiness. It runs on the keeper thread, which wakes up
//! once a second anyway.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::server::common::Common;
use crate::server::health::figures::Figure::{Awaits, Draining, ReloadAt, StandsS, Started, UptimeS};
use crate::server::health::finding::{Effect, Finding};
use crate::server::health::samples::Samples;
use crate::server::health::status::Status;
use snowbank_core::clock::{BootMicros, Reading};
use snowbank_core::keeper;
use snowbank_fleet::noticed_within;

/// The least time between two readings of the observer. It is less than [`keeper::PERIOD`], because
/// the time from one poll of the keeper to the next varies by some milliseconds.
const PERIOD: Duration = keeper::PERIOD.saturating_sub(Duration::from_millis(100));
/// The least time between two readings if no source was used for minutes. An idle daemon must cost
/// next to nothing, so the observer reads less often.
const UNUSED_PERIOD: Duration = Duration::from_secs(5);
/// The time for which a finding must stay better before the improvement is logged. So a finding
/// about clients that come and go every few seconds has only two lines in the log.
const SETTLED: Duration = Duration::from_secs(20);
/// For this time after the start, nothing is logged while a source waits for its first tick, if
/// this tick comes within [`BEGINS_WITHIN_S`]. A source without a state begins with the next tick,
/// so such a wait is normal.
const BEGINNING_S: f64 = 2.0;
const BEGINS_WITHIN_S: f64 = 1.0;

/// For this time after the start or a reload, nothing is logged while a source's grant is under way.
/// A daemon that takes a worker ID pauses for some seconds before it uses it.
const UNDER_WAY: Duration = noticed_within(Duration::ZERO).saturating_add(Duration::from_secs(1));

/// Reads the daemon's status, and logs its changes.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    read_at: Option<BootMicros>,
    /// The logged levels by the findings' full names. Has an entry for every finding that was
    /// ever logged.
    findings: BTreeMap<String, Logged>,
    /// The logged readiness. [`Effect::Refuses`] means that the daemon is not ready.
    readiness: Logged,
}

impl Observer {
    /// Logs what has changed since the last reading. Does nothing if the last reading was less than
    /// [`PERIOD`] ago or, if no source is in use, less than [`UNUSED_PERIOD`] ago.
    pub(crate) fn observe(&mut self, common: &Common, reading: Reading, is_in_use: bool) {
        let period = if is_in_use { PERIOD } else { UNUSED_PERIOD };
        if self.read_at.is_some_and(|read_at| reading.boot.since(read_at) < period) {
            return;
        }
        self.read_at = Some(reading.boot);
        self.lines(&common.observe(), Instant::now()).iter().for_each(Line::log);
    }
    /// Returns a line for each finding whose effect has changed, and for a change of readiness.
    /// Returns no lines during a stop, which has its own line, and at a start before the first
    /// tick.
    fn lines(&mut self, status: &Status, now: Instant) -> Vec<Line> {
        if status.samples.daemon.is(Draining) || is_beginning(&status.samples) {
            return Vec::new();
        }
        let mut lines = Vec::new();
        // The finding `reload` has no line, because the reload itself logs that it was refused.
        for finding in status.findings.iter().filter(|finding| finding.name != "reload") {
            let logged = self.findings.entry(finding.full_name()).or_default();
            let level = Level::Found(finding.effect);
            if logged.should_log(level, now) {
                lines.push(Line(level, format!("finding {}: {}", finding.full_name(), finding.message)));
            }
        }
        for (name, logged) in &mut self.findings {
            let is_found = status.findings.iter().any(|finding| finding.full_name() == *name);
            if !is_found && logged.should_log(Level::Ok, now) {
                lines.push(Line(Level::Ok, format!("finding {name} has ended")));
            }
        }
        let readiness = if status.is_ready() { Level::Ok } else { Level::Found(Effect::Refuses) };
        if self.readiness.should_log(readiness, now) {
            lines.push(readiness_line(status));
        }
        lines
    }
}

/// The state of a finding or of readiness, ordered from the worst to the best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Found(Effect),
    #[default]
    Ok,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line(Level, String);

impl Line {
    fn log(&self) {
        let Line(level, text) = self;
        match level {
            Level::Found(effect) if effect.is_urgent() => tracing::error!("{text}"),
            Level::Found(_) => tracing::warn!("{text}"),
            Level::Ok => tracing::info!("{text}"),
        }
    }
}

/// The logged level of one finding.
#[derive(Debug, Default)]
struct Logged {
    level: Level,
    /// The time since which the level has been better than the logged level. `None`: the level is
    /// not better.
    better_since: Option<Instant>,
}

impl Logged {
    /// Returns true if `level` must be logged. A worse level than the logged one is logged at once,
    /// a better one once it has lasted for [`SETTLED`].
    fn should_log(&mut self, level: Level, now: Instant) -> bool {
        if level <= self.level {
            self.better_since = None;
        }
        let is_settled =
            level > self.level && now.duration_since(*self.better_since.get_or_insert(now)) >= SETTLED;
        if level >= self.level && !is_settled {
            return false;
        }
        *self = Logged { level, better_since: None };
        true
    }
}

/// Returns true if the daemon has just started or reloaded, and a source has not begun. A source
/// may also wait for a first tick that comes soon.
fn is_beginning(samples: &Samples) -> bool {
    let daemon = &samples.daemon;
    let uptime_s = daemon.measure(UptimeS);
    let reload_at_s = daemon.measured(ReloadAt).map(|at_unix_s| at_unix_s - daemon.measure(Started));
    let begun_s = uptime_s - reload_at_s.unwrap_or(0.0);
    let is_under_way = samples.sources().any(|source| source.text(Awaits).is_some());
    let stands_s = samples.sources().map(|source| source.measure(StandsS)).fold(0.0, f64::max);
    is_under_way && begun_s < UNDER_WAY.as_secs_f64()
        || uptime_s < BEGINNING_S && stands_s > 0.0 && stands_s <= BEGINS_WITHIN_S
}

fn readiness_line(status: &Status) -> Line {
    let failing = status.findings.iter().filter(|finding| finding.effect.makes_unready());
    let failing: Vec<String> = failing.map(Finding::full_name).collect();
    let more = match failing.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    match failing.first() {
        None => Line(Level::Ok, String::from("ready again: /readyz answers 200")),
        Some(first) => {
            let text = format!("not ready: /readyz answers 503, because of {first}{more}");
            Line(Level::Found(Effect::Refuses), text)
        }
    }
}

#[cfg(test)]
mod tests;
